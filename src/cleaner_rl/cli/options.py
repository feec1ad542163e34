"""Options that several commands have: one name, one kind, one meaning everywhere (`tests/cli/test_flags.py`)."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from cleaner_rl.tasks import dataset_names, prompt_names
from cleaner_sandbox.cli.options import COUNT, PORT, SECONDS, as_json, ray_address, sandbox, sandbox_token

__all__ = [
    "AT_LEAST_0",
    "COUNT",
    "PORT",
    "SECONDS",
    "SHARE",
    "Named",
    "as_json",
    "names_of",
    "prompt",
    "ray_address",
    "sandbox",
    "sandbox_token",
    "tasks",
]

SHARE = click.FloatRange(0, 1)
AT_LEAST_0 = click.FloatRange(min=0)


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


def names_of(values: Iterable[str]) -> list[str]:
    """Return the names, one by one, of values that may hold several separated by commas."""
    return [name for value in values for each in value.split(",") if (name := each.strip())]
