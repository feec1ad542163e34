"""`cleaner completion`: Tab completes commands, options, files and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes `cleaner` in a SHELL.

    \b
    Examples, for the shell's own start-up file:
      eval "$(cleaner completion bash)"       # ~/.bashrc
      eval "$(cleaner completion zsh)"        # ~/.zshrc
      cleaner completion fish | source        # ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    root = click.get_current_context().find_root()
    assert found is not None
    click.echo(found(root.command, {}, "cleaner", "_CLEANER_COMPLETE").source())
