"""The command `cleaner`: options in, one call of a public function, words out.

Commands are imported when they are named, so that `cleaner --help` loads no server and no engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from cleaner_rl import __version__
from cleaner_rl.cli.words import visible


class Later(NamedTuple):
    """A command that is imported when it is used."""

    module: str
    """Holds it under its own name."""
    line: str
    """In the list of commands."""
    extras: str = ""
    """What its imports need beside the core."""


COMMANDS: Mapping[str, Later] = {
    "compare": Later("cleaner_rl.cli.compare", "Compare two evaluations."),
    "completion": Later("cleaner_rl.cli.completion", "Print the script that completes commands in a shell."),
    "demo": Later("cleaner_rl.cli.demo", "Show a repair on one page, before and after, in seconds."),
    "doctor": Later("cleaner_rl.cli.doctor", "Check what this machine can run, and how to fix what it can't."),
    "eval": Later(
        "cleaner_rl.cli.eval",
        "Evaluate a model: pass@k with intervals, tool errors, cost; repair off and on.",
        "eval,rollout,sandbox",
    ),
    "plugins": Later(
        "cleaner_rl.cli.plugins", "List installed plug-ins (call formats, graders, tools, …) and check them."
    ),
    "purify": Later("cleaner_rl.cli.purify", "Repair agent logs, and write training data."),
    "regrade": Later("cleaner_rl.cli.regrade", "Grade the stored rollouts of a run again.", "eval,rollout,sandbox"),
    "review": Later("cleaner_rl.cli.review", "Judge a sample of verdicts and edits, and get your own error rates."),
    "rollout": Later(
        "cleaner_rl.cli.rollout",
        "Run a model on tasks, with repair, and store its trajectories.",
        "eval,rollout,sandbox",
    ),
    "sandbox": Later(
        "cleaner_sandbox.cli", "Run model-written Python: serve, attack and measure sandbox nodes.", "sandbox"
    ),
    "train": Later("cleaner_rl.cli.train", "Train a model by a recipe, on verl.", "verl"),
    "verify": Later("cleaner_rl.cli.verify", "Run the calls of a store again, and compare the results."),
    "view": Later("cleaner_rl.cli.view", "View trajectories, their edits, and runs in a browser."),
}


class LazyGroup(click.Group):
    """A group with commands that are imported only when they are used."""

    def __init__(self, *arguments: Any, later: Mapping[str, Later], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._later = later

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted({*super().list_commands(ctx), *self._later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name."""
        if cmd_name not in self._later:
            return super().get_command(ctx, cmd_name)
        later = self._later[cmd_name]
        try:
            command: click.Command = getattr(importlib.import_module(later.module), cmd_name)
        except ModuleNotFoundError as error:
            if not later.extras or str(error.name).startswith("cleaner_rl"):
                raise
            raise click.ClickException(
                f"`cleaner {cmd_name}` needs {error.name}, which is not installed: "
                f"pip install 'cleaner-rl[{later.extras}]'"
            ) from None
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Its errors are printed by click, and may name files of any name."""
        try:
            return super().invoke(ctx)
        except click.UsageError:  # which names what was typed
            raise
        except click.ClickException as error:
            raise click.ClickException(visible(error.format_message())) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names that begin so; none of the commands is imported for it."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._later[name].line if name in self._later else None) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands; of those that come later, from the table rather than from the commands themselves."""
        lines = {name: later.line for name, later in self._later.items()}
        for name in self.list_commands(ctx):
            lines[name] = lines.get(name) or self.commands[name].get_short_help_str()
        with formatter.section("Commands"):
            formatter.write_dl(sorted(lines.items()))


@click.group(cls=LazyGroup, later=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cleaner")
def main() -> None:
    """Train tool-using language models on clean trajectories."""
