"""Public names and options are frozen: a change of them is meant, or a mistake.

python -m tests.test_frozen      write both lists again
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cleaner_sandbox.cli import sandbox

NAMES, OPTIONS = Path(__file__).with_name("public_api.txt"), Path(__file__).with_name("flags.txt")
MODULES = ("cleaner_sandbox", "cleaner_sandbox.client", "cleaner_sandbox.protocol", "cleaner_sandbox.check")


def names() -> Iterator[str]:
    for module in MODULES:
        found = importlib.import_module(module)
        for name in sorted(found.__all__):
            value = getattr(found, name)
            parameters = inspect.signature(value).parameters if inspect.isfunction(value) else ()
            yield f"{module}.{name}" + (f"({', '.join(parameters)})" if inspect.isfunction(value) else "")


def commands(group: click.Group = sandbox, path: str = "cleaner-sandbox") -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def options() -> Iterator[str]:
    for name, command in commands():
        for each in command.params:
            if isinstance(each, click.Option):
                kind = "flag" if each.is_flag else each.type.name
                yield f"{name}  {'/'.join((*each.opts, *each.secondary_opts))}  {kind}"


LISTS = {NAMES: names, OPTIONS: options}


@pytest.mark.parametrize("file", LISTS, ids=lambda file: file.name)
def test_a_list_is_as_it_was_written_down(file: Path) -> None:
    assert file.read_text().splitlines() == list(LISTS[file]()), "if this is meant: python -m tests.test_frozen"


@pytest.mark.parametrize("command", dict(commands()).values(), ids=dict(commands()))
def test_a_command_explains_each_option_and_gives_an_example(command: click.Command) -> None:
    assert "Example" in (command.help or "")
    assert [each.name for each in command.params if isinstance(each, click.Option) and not each.help] == []


if __name__ == "__main__":
    for path, lines in LISTS.items():
        path.write_text("".join(f"{line}\n" for line in lines()))
