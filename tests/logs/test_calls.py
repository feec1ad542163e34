"""Calls as logs have them, in fields and in text."""

from __future__ import annotations

from typing import Any

import pytest

from cleaner_rl.logs import Reading, purify_log, read_record, write_record
from cleaner_rl.purify import RepairConfig
from cleaner_rl.tools import CallKind
from tests.logs.cases import CASES, Case
from tests.logs.rendering import hermes


def fenced(case: Case) -> dict[str, Any]:
    """Programs in fences, each with its result in a message of its own."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "1 + 1?"}]
    for step in case.steps:
        blocks = "".join(f"\n```python\n{call.arguments['code']}\n```" for call in step.calls)
        messages.append({"role": "assistant", "content": step.said + blocks})
        messages += [{"role": "tool", "content": call.text} for call in step.calls]
    return {"messages": messages}


def test_programs_in_fences_are_calls_and_their_failures_are_repaired() -> None:
    record = fenced(CASES[0])
    trajectory = read_record(record, "openai", 0, Reading(call_format="fenced"))
    assert [[(call.name, call.code, call.problem) for call in turn.calls] for turn in trajectory.turns] == [
        [("python", "print(1 + )\n", None)],
        [("python", "print(1 + 1)\n", None)],
        [],
    ]
    assert write_record(trajectory) == record
    repaired = write_record(purify_log(trajectory, RepairConfig()).trajectory)
    assert [message["content"] for message in repaired["messages"]] == [
        "1 + 1?",
        "I add.\n```python\nprint(1 + 1)\n```",
        "2",
        "The answer is 2.",
    ]


def test_programs_in_fences_are_calls_unasked_where_a_tool_answers_them() -> None:
    record = fenced(CASES[0])
    record["messages"][-1]["content"] += "\n```python\nprint(2)\n```"
    trajectory = read_record(record, "openai", 0, Reading())
    assert [len(turn.calls) for turn in trajectory.turns] == [1, 1, 0]
    assert [turn.failed for turn in trajectory.turns] == [True, False, False]
    assert write_record(trajectory) == record


@pytest.mark.parametrize("words", ["{}\nIn metres, please.", "In metres, please.\n{}", "{}\n</tool_response>"])
def test_a_person_s_words_beside_a_result_are_a_border(words: str) -> None:
    record = hermes(CASES[0])
    record["messages"][2]["content"] = words.format(record["messages"][2]["content"])
    trajectory = read_record(record, "openai", 0, Reading())
    assert trajectory.turns[0].failed
    cleaned = purify_log(trajectory, RepairConfig()).trajectory
    assert not cleaned.edits
    assert write_record(cleaned) == record


def test_a_program_in_a_fence_is_for_the_tool_that_the_user_names() -> None:
    (call,) = Reading(("Solver",)).tools.text_calls("```python\n1\n```", "fenced")
    assert call.name == "Solver"


def test_a_tool_that_the_user_names_is_known_however_it_is_spelt() -> None:
    tools = Reading(("Solver",)).tools
    assert tools.kind("Solver", {}) is CallKind.PYTHON
    assert tools.kind("solver", {}) is CallKind.PYTHON
    assert tools.kind("search", {}) is CallKind.OTHER


def test_as_much_as_can_be_made_out_of_a_broken_call_is_there_to_compare() -> None:
    text = '<tool_call>{"name": "python", "arguments": {"code": "print(1)\nprint(2)"}}</tool_call>'
    (call,) = Reading().tools.text_calls(text, "hermes")
    assert call.problem is not None
    assert call.code == "print(1)\nprint(2)"


def test_what_a_tool_needs_is_no_matter_of_its_log() -> None:
    (call,) = Reading().tools.text_calls(
        '<tool_call>{"name": "python", "arguments": {"code": " "}}</tool_call>', "hermes"
    )
    assert (call.code, call.problem) == (" ", None)
