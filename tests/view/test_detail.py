"""What the page is given of one trajectory: calls by what they do, and what is verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cleaner_rl.tools import ToolCall, call_code, call_kind
from cleaner_rl.trajectory import RepairMode, RolloutInfo, TextSpan, Trajectory, Turn
from cleaner_rl.view.detail import detail
from tests.view.stores import grafted, uncorrected


def shown(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    kind = call_kind(name, arguments)
    call = ToolCall(name, arguments, call_code(kind, arguments), 0, 0, kind=kind)
    found: dict[str, Any] = detail(Trajectory(TextSpan("user: q\n"), (Turn(TextSpan(""), calls=(call,)),)))
    (given,) = found["turns"][0]["calls"]
    return {name: given[name] for name in ("kind", "code", "arguments")}


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "code", "others"),
    [
        ("bash", {"command": "ls\npwd", "timeout": 5}, "shell", "ls\npwd", {"timeout": 5}),
        ("shell", {"command": ["bash", "-lc", "ls"], "workdir": "/w"}, "shell", "ls", {"workdir": "/w"}),
        ("execute_sql", {"query": "SELECT 1"}, "sql", "SELECT 1", {}),
        ("python", {"code": "print(1)"}, "python", "print(1)", {}),
        ("get_issue", {"number": 3, "body": "a\nb"}, "other", "", {"number": 3, "body": "a\nb"}),
        ("apply_patch", {"input": "*** Update File: a\n-b\n+c"}, "edit", "*** Update File: a\n-b\n+c", {}),
    ],
)
def test_a_call_has_its_code_and_its_other_arguments(
    name: str, arguments: dict[str, Any], kind: str, code: str, others: dict[str, Any]
) -> None:
    assert shown(name, arguments) == {"kind": kind, "code": code, "arguments": others}


def test_a_file_edit_has_path_and_lines() -> None:
    edit = {"command": "str_replace", "path": "a.py", "old_str": "b\nc", "new_str": "d"}
    assert shown("str_replace_editor", edit)["code"] == "str_replace a.py\n-b\n-c\n+d"


LOG = {"format": "openai", "source": {"file": "a.jsonl", "line": 3, "id": "r"}, "record": {"large": True}}


@pytest.mark.parametrize(
    ("mode", "info", "verified"),
    [
        (RepairMode.SAAR, RolloutInfo(), True),
        (RepairMode.HINDSIGHT, RolloutInfo(replay="same"), True),
        (RepairMode.HINDSIGHT, RolloutInfo(replay="same", log=LOG), True),
        (RepairMode.HINDSIGHT, RolloutInfo(stateful=False), True),
        (RepairMode.HINDSIGHT, RolloutInfo(stateful=True), False),
        (RepairMode.HINDSIGHT, RolloutInfo(), False),
        (RepairMode.HINDSIGHT, RolloutInfo(log=LOG, stateful=False), False),
        (RepairMode.HINDSIGHT, RolloutInfo(replay="nondeterministic", log=LOG), False),
        (RepairMode.HINDSIGHT, RolloutInfo(replay="not_replayable", log=LOG), False),
    ],
)
def test_only_what_ran_in_its_place_is_verified(mode: RepairMode, info: RolloutInfo, verified: bool) -> None:
    found = grafted()
    turn = found.turns[0]
    assert turn.edit is not None
    changed = replace(found, info=info, turns=(replace(turn, edit=replace(turn.edit, mode=mode)), *found.turns[1:]))
    assert bool(detail(changed)["turns"][0]["edit"]["verified"]) is verified


def test_an_edit_that_keeps_the_failure_verifies_nothing() -> None:
    assert detail(uncorrected())["turns"][0]["edit"]["verified"] is None


def test_a_log_says_where_its_record_is_and_not_all_of_it() -> None:
    found = detail(replace(grafted(), info=RolloutInfo(log=LOG, session="s")))
    assert found["source"] == {"format": "openai", "file": "a.jsonl", "line": 3, "id": "r"}
    assert found["info"] == {"session": "s"}
    assert detail(grafted())["source"] is None


@pytest.mark.parametrize("odd", [None, 3, [3], [{"turn": "0"}], [{"why": "x"}]])
def test_a_failed_turn_says_why_it_was_left_alone(odd: object) -> None:
    entry = {"turn": 0, "reason": "finding", "why": "the failure is a result"}
    found = detail(replace(grafted(), info=RolloutInfo(log={**LOG, "left_alone": [entry]})))
    assert [turn["left_alone"] for turn in found["turns"]][:1] == ["the failure is a result"]
    assert {turn["left_alone"] for turn in found["turns"][1:]} <= {None}
    other = detail(replace(grafted(), info=RolloutInfo(log={**LOG, "left_alone": odd})))
    assert {turn["left_alone"] for turn in other["turns"]} == {None}
