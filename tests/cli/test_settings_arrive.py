"""Every option of a command reaches the object that uses it.

For each command there is a table: its options, each with words that set it to another value than the default, and what
must then differ in what the command's function receives. A new option without an entry fails, and so does an option
that is read and dropped.

To add a command: write a `Command` with the function that it calls (where the command's module has it), what that
function's arguments mean, and a line for each option, and add it to `COMMANDS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.cli.purify import purify
from cleaner_rl.cli.verify import verify
from cleaner_rl.purify import PurifyScope
from cleaner_rl.replay import TextMatch

NO_SETTINGS = {"--json", "--dry-run"}
"""They say how a result is printed, and that another function is called (`test_report.py` has that one)."""


@dataclass(frozen=True)
class Option:
    """One option of a command."""

    words: Sequence[str]
    """What is written on the command line."""
    changes: Mapping[str, Any]
    """Path of each argument or field that differs because of the option, and its value."""
    besides: Sequence[str] = ()
    """Options that this one needs. They are given both times."""


@dataclass(frozen=True)
class Command:
    """A command, and what its options do to the arguments of the function behind it."""

    command: click.Command
    calls: str
    """The function that it calls, as a path for monkeypatching."""
    arguments: Sequence[str]
    """What must always be given."""
    options: Mapping[str, Option]
    positional: Sequence[str] = field(default_factory=tuple)
    """Names of the function's positional arguments."""


COMMANDS = {
    "purify": Command(
        purify,
        "cleaner_rl.cli.purify.purify_logs",
        ("log.jsonl", "--out", "out", "--no-replay"),
        {
            "--out": Option(("--out", "other"), {"out": "other"}),
            "--from": Option(("--from", "verl"), {"settings.log_format": "verl"}),
            "--calls": Option(
                ("--calls", "fenced"),
                {"settings.reading.call_format": "fenced", "check.settings.reading.call_format": "fenced"},
                ("--replay",),
            ),
            "--python-tool": Option(
                ("--python-tool", "a", "--python-tool", "b"),
                {"settings.reading.python_tools": ("a", "b"), "check.settings.reading.python_tools": ("a", "b")},
                ("--replay",),
            ),
            "--method": Option(("--method", "mask"), {"settings.repair": None}),
            "--threshold": Option(("--threshold", "0.7"), {"settings.repair.threshold": 0.7}),
            "--measure": Option(("--measure", "ast"), {"settings.repair.measure": "ast"}),
            "--refuse-stale": Option(("--refuse-stale",), {"settings.repair.refuse_stale": True}),
            "--scope": Option(("--scope", "successful"), {"settings.scope": PurifyScope.SUCCESSFUL}),
            "--distill": Option(("--distill", "jsonl"), {"settings.distill": "jsonl"}),
            "--sft": Option(("--sft", "parquet"), {"settings.sft": "parquet"}),
            "--sft-for": Option(("--sft-for", "axolotl"), {"settings.sft": "parquet", "settings.sft_for": "axolotl"}),
            "--tokenizer": Option(("--tokenizer", "model"), {"settings.tokenizer": "model"}),
            "--max-tokens": Option(("--max-tokens", "9"), {"settings.max_tokens": 9}, ("--tokenizer", "model")),
            "--solved-only": Option(("--solved-only",), {"settings.solved_only": True}),
            "--reviews": Option(("--reviews", "reviews.jsonl"), {"settings.found_wrong": frozenset({"a1"})}),
            "--clean-only": Option(("--clean-only",), {"settings.clean_only": True}),
            "--unsure": Option(("--unsure", "train"), {"settings.unsure": "train"}),
            "--same": Option(("--same",), {"settings.same": True}),
            "--redact": Option(("--redact",), {"settings.redact": True}),
            "--replay": Option(("--replay",), {"check": "ReplayCheck"}),
            "--no-replay": Option(("--no-replay",), {"check": None}, ("--replay",)),
            "--only-proven": Option(("--only-proven",), {"check.only_proven": True}, ("--replay",)),
            "--session": Option(("--session",), {"check.settings.session": True}, ("--replay",)),
            "--fresh": Option(("--fresh",), {"check.settings.session": False}, ("--replay",)),
            "--text-match": Option(
                ("--text-match", "exact"), {"check.settings.text_match": TextMatch.EXACT}, ("--replay",)
            ),
            "--sandbox": Option(("--sandbox", "http://a"), {"check.settings.nodes": ("http://a",)}, ("--replay",)),
            "--sandbox-token": Option(("--sandbox-token", "t"), {"check.settings.token": "t"}, ("--replay",)),
            "--roc": Option(("--roc", "4"), {"settings.roc": 4}),
            "--jobs": Option(("--jobs", "3"), {"jobs": 3}),
            "--ray": Option(("--ray",), {"on_ray": True}),
            "--piece-mb": Option(("--piece-mb", "2"), {"settings.piece_bytes": 2 << 20}),
        },
        ("paths", "out", "settings"),
    ),
    "verify": Command(
        verify,
        "cleaner_rl.cli.verify.verify_store",
        ("store",),
        {
            "--session": Option(("--session",), {"settings.session": True}),
            "--fresh": Option(("--fresh",), {"settings.session": False}),
            "--text-match": Option(("--text-match", "exact"), {"settings.text_match": TextMatch.EXACT}),
            "--echo": Option(("--echo",), {"settings.echo": True}),
            "--no-echo": Option(("--no-echo",), {"settings.echo": False}),
            "--python-tool": Option(("--python-tool", "a"), {"settings.reading.python_tools": ("a",)}),
            "--calls": Option(("--calls", "xml"), {"settings.reading.call_format": "xml"}),
            "--sandbox": Option(("--sandbox", "http://a"), {"settings.nodes": ("http://a",)}),
            "--sandbox-token": Option(("--sandbox-token", "t"), {"settings.token": "t"}),
        },
        ("store", "settings"),
    ),
}


class Received(Exception):  # noqa: N818 - it carries what a command handed over, and is no error
    """Ends a command where its function would begin."""


def flat(name: str, value: Any) -> dict[str, Any]:
    """A value by its path; a data class also by the paths of its fields. Callbacks are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {name: type(value).__name__}
        for each in fields(value):
            found |= flat(f"{name}.{each.name}", getattr(value, each.name))
        return found
    return {} if callable(value) else {name: value}


def received(command: Command, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a command's function is called with."""

    def function(*arguments: Any, **named: Any) -> None:
        raise Received(dict(zip(command.positional, arguments, strict=True)) | named)

    monkeypatch.setattr(command.calls, function)
    ran = CliRunner().invoke(command.command, [*command.arguments, *words])
    assert isinstance(ran.exception, Received), ran.output
    (given,) = ran.exception.args
    return {path: value for name, each in given.items() for path, value in flat(name, each).items()}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()
    answers = ({"id": "a1", "said": "wrong"}, {"id": "a2", "said": "right"})
    (tmp_path / "reviews.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_an_entry(name: str) -> None:
    found = {
        each
        for option in COMMANDS[name].command.params
        if isinstance(option, click.Option)
        for each in (*option.opts, *option.secondary_opts)
    }
    assert found - NO_SETTINGS == COMMANDS[name].options.keys()
    assert main.get_command(click.Context(main), name) is COMMANDS[name].command


@pytest.mark.parametrize(("name", "option"), [(name, each) for name, made in COMMANDS.items() for each in made.options])
def test_an_option_arrives_where_it_is_used(name: str, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = COMMANDS[name]
    entry = command.options[option]
    without = received(command, entry.besides, monkeypatch)
    given = received(command, (*entry.besides, *entry.words), monkeypatch)
    below = tuple(f"{path}." for path in entry.changes)
    differ = {path for path in {**without, **given} if without.get(path) != given.get(path)}
    assert {path for path in differ if not path.startswith(below)} == entry.changes.keys(), "and nothing else"
    for path, value in entry.changes.items():
        assert given[path] == value
