"""Options that several commands have: one name, one kind, one meaning everywhere (`tests/cli/test_flags.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from cleaner_rl.tasks import dataset_names, prompt_names

COUNT = click.IntRange(min=1)
PORT = click.IntRange(0, 65_535)
SHARE = click.FloatRange(0, 1)
AT_LEAST_0 = click.FloatRange(min=0)


class Seconds(click.FloatRange):
    """A number of seconds, positive and finite."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, if it is one."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{seconds} is not a finite number of seconds.", param, ctx)
        return seconds


SECONDS = Seconds()


class Named(click.types.StringParamType):
    """Completes names of the package's own, and files."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the names that begin so, and files."""
        names = [CompletionItem(name) for name in self._names if name.startswith(incomplete)]
        return [*names, CompletionItem(incomplete, type="file")]


prompt = click.option(
    "--prompt",
    type=Named(prompt_names()),
    default="stateless",
    show_default=True,
    help="Name or TOML file of the prompt: system message, tool, answer format.",
)
tasks = click.option(
    "--tasks",
    "sets",
    type=Named(dataset_names()),
    multiple=True,
    required=True,
    help="Data sets: aime24=FILE, mine.jsonl, a name on the hub; repeatable, or separated by commas.",
)
sandbox = click.option(
    "--sandbox",
    multiple=True,
    metavar="URL",
    help="Address of a sandbox node; repeatable. Default: one is started here.",
)
sandbox_token = click.option(
    "--sandbox-token", envvar="CLEANER_SANDBOX_TOKEN", help="Token for the nodes of --sandbox, if they need one."
)
ray_address = click.option(
    "--ray-address", metavar="ADDRESS", help="Address of a Ray cluster. Default: Ray's own choice."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def names_of(values: Iterable[str]) -> list[str]:
    """Return the names, one by one, of values that may hold several separated by commas."""
    return [name for value in values for each in value.split(",") if (name := each.strip())]
