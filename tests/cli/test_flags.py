"""The command line as a whole: its options are frozen, and one name means one thing everywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cleaner_rl.cli import COMMANDS, main
from tests import frozen

FROZEN = Path(__file__).with_name("flags.txt")
SANDBOX = "sandbox"
"""The command of another distribution, mounted here; its options are frozen there."""
DIFFER = {
    "--model": "doctor takes several, of which some are addresses",
    "--out": "a folder, but for demo's page; purify's may be in an object store",
    "--run": "eval takes the folder of a training run, rollout the name of its own",
    "--repair": "eval compares off and on, rollout says which kind",
    "--url": "eval has a default",
}
"""Options whose kind is not the same everywhere, each with its reason."""


def commands(command: click.Command = main, name: str = "cleaner") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        if each == SANDBOX:
            continue
        found = command.get_command(context, each)
        assert found is not None
        yield from commands(found, f"{name} {each}")


ALL = dict(commands())


def options_of(command: click.Command) -> Iterator[click.Option]:
    yield from (each for each in command.params if isinstance(each, click.Option))


def kind_of(option: click.Option) -> str:
    kind = "flag" if option.is_flag else option.type.name
    return kind + (", repeatable" if option.multiple else "") + (", required" if option.required else "")


def listed() -> str:
    lines = []
    for name, command in ALL.items():
        for each in command.params:
            if isinstance(each, click.Option):
                lines.append(f"{name}  {'/'.join((*each.opts, *each.secondary_opts))}  {kind_of(each)}")
            else:
                lines.append(f"{name}  {(each.name or '').upper()}")
    return "\n".join(sorted(lines)) + "\n"


def test_the_options_are_those_that_are_written_down() -> None:
    frozen.check(FROZEN, listed())


def test_one_name_is_of_one_kind_everywhere() -> None:
    kinds: dict[str, set[str]] = defaultdict(set)
    for command in ALL.values():
        for option in options_of(command):
            for name in (*option.opts, *option.secondary_opts):
                kinds[name].add(kind_of(option).removesuffix(", required"))
    assert {name for name, found in kinds.items() if len(found) > 1} <= DIFFER.keys()


@pytest.mark.parametrize("name", ALL)
def test_a_command_explains_each_option_and_gives_an_example(name: str) -> None:
    for option in options_of(ALL[name]):
        assert option.help, f"{name} {option.opts[0]} lacks words"
    assert "Example" in (ALL[name].help or ""), f"{name} lacks an example"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    ran = CliRunner().invoke(main, ["completion", shell], prog_name="cleaner")
    assert ran.exit_code == 0
    assert "_CLEANER_COMPLETE" in ran.output


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["do"], "doctor"),
        (["sandbox", "ch"], "check"),
        (["purify", "--meth"], "--method"),
        (["rollout", "--prompt", "state"], "stateless"),
        (["eval", "--tasks", "aime"], "aime24"),
    ],
)
def test_tab_completes(words: list[str], found: str) -> None:
    environment = {
        "_CLEANER_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["cleaner", *words]),
        "COMP_CWORD": str(len(words)),
    }
    ran = CliRunner().invoke(main, [], prog_name="cleaner", env=environment)
    assert f"plain,{found}" in ran.output.splitlines()


def test_the_list_of_commands_is_in_order_and_has_their_lines() -> None:
    assert list(COMMANDS) == sorted(COMMANDS)
    assert all(later.line[-1] in ".?" for later in COMMANDS.values())
