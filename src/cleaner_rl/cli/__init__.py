"""The command `cleaner`: thin, one group; each room's commands join it as the room is built.

Commands are imported when they are named, so that `cleaner --help` loads no server and no engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

from cleaner_rl import __version__

COMMANDS: Mapping[str, tuple[str, str]] = {
    "sandbox": ("cleaner_rl.cli.sandbox", "Run model-written Python: serve a node, or many."),
}
"""Name, the module that holds it under the same name, and its line in the list of commands."""


class LazyGroup(click.Group):
    """A group whose commands are imported only when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table rather than from the commands themselves."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cleaner")
def main() -> None:
    """Train tool-using language models on clean trajectories."""
