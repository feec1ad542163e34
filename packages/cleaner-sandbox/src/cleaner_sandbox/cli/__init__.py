"""The command `cleaner-sandbox`: options in, one call of a public function, words out."""

from __future__ import annotations

from typing import Any

import click

from cleaner_sandbox.cli.check import check
from cleaner_sandbox.cli.env import env
from cleaner_sandbox.cli.mcp import mcp
from cleaner_sandbox.cli.ray import down, up
from cleaner_sandbox.cli.serve import serve
from cleaner_sandbox.cli.words import visible
from cleaner_sandbox.version import __version__


class Commands(click.Group):
    """Prints errors as text that no terminal obeys, because they may name files of any name."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except click.UsageError:  # it names what was typed
            raise
        except click.ClickException as error:
            raise click.ClickException(visible(error.format_message())) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cleaner-sandbox")
def sandbox() -> None:
    """Run model-written Python and bash: serve nodes, and attack them."""


for command in (check, down, env, mcp, serve, up):
    sandbox.add_command(command)
