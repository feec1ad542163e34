"""The command `cleaner`: thin, one group; each room's commands join it as the room is built.

Commands are imported when they are named, so that `cleaner --help` loads no server and no engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from cleaner_rl import __version__

COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("cleaner_rl.cli.demo", "Watch a failure being repaired: one page with before and after, in seconds."),
    "doctor": ("cleaner_rl.cli.doctor", "What this machine can do, and what to do about what it can't."),
    "purify": ("cleaner_rl.cli.purify", "Repair logs of agents that exist, and make training data of them."),
    "verify": ("cleaner_rl.cli.verify", "Replay a store's calls, and say which give what it says."),
    "compare": ("cleaner_rl.cli.compare", "What changed from one evaluation to another."),
    "plugins": ("cleaner_rl.cli.plugins", "Call formats, graders, tools and more: what is installed, and is it whole?"),
    "rollout": ("cleaner_rl.cli.rollout", "Let a model work on tasks, with repair, into a store of trajectories."),
    "eval": ("cleaner_rl.cli.eval", "Judge a model: pass@k with intervals, tool errors, cost; repair off and on."),
    "sandbox": ("cleaner_rl.cli.sandbox", "Run model-written Python: serve nodes, attack them, measure them."),
    "train": ("cleaner_rl.cli.train", "Train a model by a recipe, on verl."),
    "view": ("cleaner_rl.cli.view", "See trajectories, what was changed in them, and runs, in a browser."),
}
"""Name, the module that holds it under the same name, and its line in the list of commands."""


class LazyGroup(click.Group):
    """A group with commands that are imported only when they are used."""

    def __init__(self, *arguments: Any, later: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._later = later

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted({*super().list_commands(ctx), *self._later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name."""
        if cmd_name not in self._later:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(self._later[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands; of those that come later, from the table rather than from the commands themselves."""
        lines = {name: line for name, (_, line) in self._later.items()}
        for name in self.list_commands(ctx):
            lines[name] = lines.get(name) or self.commands[name].get_short_help_str()
        with formatter.section("Commands"):
            formatter.write_dl(sorted(lines.items()))


@click.group(cls=LazyGroup, later=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cleaner")
def main() -> None:
    """Train tool-using language models on clean trajectories."""
