"""Each format: there and back field for field, and the twenty cases with their right answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.logs import formats
from cleaner_rl.logs.formats import Reading, detect
from cleaner_rl.logs.formats.base import log_of
from cleaner_rl.logs.purified import purify_log
from cleaner_rl.logs.records import read_record, write_record
from cleaner_rl.purify import RepairConfig
from cleaner_rl.tools import PluginError
from cleaner_rl.trajectory import TextSpan, Trajectory, undo
from tests.logs.agents import AGENTS
from tests.logs.cases import CASES, Case, Step, raised
from tests.logs.rendering import RENDERED
from tests.plugins import install

READING = Reading()
MINE = """
from cleaner_rl.logs.formats.openai import OpenAIFormat

class Mine(OpenAIFormat):
    name = "mine"

    def detects(self, record):
        return isinstance(record, dict) and "mine" in record
"""
ALL = RENDERED | AGENTS
BOTH = [(variant, case) for variant in ALL for case in CASES]
NAMES = [f"{variant}: {case.name}" for variant, case in BOTH]


def imported(variant: str, case: Case) -> tuple[dict[str, Any], Trajectory[TextSpan]]:
    record = ALL[variant](case)
    return record, read_record(record, variant.partition(",")[0], 0, READING)


@pytest.mark.parametrize(("variant", "case"), BOTH, ids=NAMES)
def test_a_record_is_known_by_its_content_and_comes_back_field_for_field(variant: str, case: Case) -> None:
    before = json.dumps(ALL[variant](case))
    record, trajectory = imported(variant, case)
    assert detect(record) == variant.partition(",")[0]
    assert "opaque" not in log_of(trajectory)
    assert len(trajectory.turns) == len(case.steps)
    assert json.dumps(write_record(trajectory)) == before
    assert json.dumps(record) == before, "reading changes nothing of it"
    assert trajectory.reward == (None if "lines" in record else case.reward), "a session file has none"


@pytest.mark.parametrize(("variant", "case"), BOTH, ids=NAMES)
def test_the_right_answer(variant: str, case: Case) -> None:
    record, trajectory = imported(variant, case)
    cleaned = purify_log(trajectory, RepairConfig()).trajectory
    kinds = [turn.edit.kind.value if turn.edit else "keep" for turn in cleaned.turns]
    assert tuple(kinds) == case.expected
    assert tuple(len(edit.original) for _, edit in cleaned.edits) == case.collapsed
    if not cleaned.edits:
        assert cleaned == trajectory
        assert write_record(cleaned) == record
    restored = cleaned
    for index, _ in reversed(cleaned.edits):
        restored = undo(restored, index)
    assert write_record(restored) == record, "the raw log is in the result"


@pytest.mark.parametrize(("variant", "case"), BOTH, ids=NAMES)
def test_what_is_written_after_a_repair_reads_as_the_repaired_conversation(variant: str, case: Case) -> None:
    """Against the same case as if the agent had made no mistake: told once more, rendered, and read."""
    _, trajectory = imported(variant, case)
    cleaned = purify_log(trajectory, RepairConfig()).trajectory
    steps = list(case.steps)
    told: list[Step] = []
    lengths = iter(case.collapsed)
    for kind in case.expected:
        taken = [steps.pop(0) for _ in range(1 if kind == "keep" else next(lengths))]
        told.append(replace(taken[-1], said=taken[0].said) if kind == "graft" else taken[-1])
    _, expected = imported(variant, replace(case, steps=tuple(told)))
    again = read_record(write_record(cleaned), variant.partition(",")[0], 0, READING)
    assert [(turn.reasoning, turn.action, turn.observation, turn.calls, turn.results) for turn in again.turns] == [
        (turn.reasoning, turn.action, turn.observation, turn.calls, turn.results) for turn in expected.turns
    ]


def test_a_graft_has_the_failure_s_words_the_correction_s_calls_and_nothing_that_is_true_of_neither() -> None:
    _, openai = imported("openai", CASES[0])
    record = write_record(purify_log(openai, RepairConfig()).trajectory)
    assert record["messages"][2] == {
        "role": "assistant",
        "content": "I add.",
        "tool_calls": [
            {
                "id": "call-1-0",
                "type": "function",
                "function": {"name": "python", "arguments": '{"code": "print(1 + 1)"}'},
            }
        ],
    }
    assert record["messages"][3] == {"role": "tool", "tool_call_id": "call-1-0", "content": "2"}
    _, atif = imported("atif", CASES[0])
    steps = write_record(purify_log(atif, RepairConfig()).trajectory)["steps"]
    assert [step["step_id"] for step in steps] == [1, 2, 3, 4]
    assert "metrics" not in steps[2]
    assert steps[2]["observation"]["results"] == [{"source_call_id": "call-1-0", "content": "2"}]
    assert steps[3]["metrics"] == {"completion_tokens": 5}
    _, verifiers = imported("verifiers", CASES[0])
    (trace,) = write_record(purify_log(verifiers, RepairConfig()).trajectory)["traces"]
    assert [node.get("parent") for node in trace["nodes"]] == [None, 0, 1, 2, 3]
    assert trace["nodes"][2] == {
        "parent": 1, "message": trace["nodes"][2]["message"], "sampled": True
    }, "its tokens are nobody's"  # fmt: skip


def test_calls_of_verifiers_0_stay_as_they_are_written() -> None:
    record, trajectory = imported("verifiers, version 0", CASES[0])
    (repaired, *_) = write_record(purify_log(trajectory, RepairConfig()).trajectory)["completion"]
    assert repaired["tool_calls"] == record["completion"][2]["tool_calls"]
    assert all(isinstance(call, str) for call in repaired["tool_calls"])
    opened = json.loads(json.dumps(record))
    for message in opened["completion"]:
        message["tool_calls"] = list(map(json.loads, message.get("tool_calls", ())))
    as_objects = read_record(opened, "verifiers", 0, READING)
    assert as_objects.turns == trajectory.turns
    assert write_record(as_objects) == opened


@pytest.mark.parametrize("call", ['{"id": "1"', '{"id":"1"}', '{"id": "1", "id": "2"}'])
def test_a_call_of_verifiers_0_that_would_be_written_otherwise_goes_through_as_it_is(call: str) -> None:
    record = RENDERED["verifiers, version 0"](CASES[0])
    record["completion"][0]["tool_calls"] = [call]
    trajectory = read_record(record, "verifiers", 0, READING)
    assert "opaque" in log_of(trajectory)
    assert write_record(trajectory) == record


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_no_finite_number_is_none(value: float) -> None:
    sample, episode = RENDERED["inspect"](CASES[0]), RENDERED["verifiers"](CASES[0])
    sample["scores"]["match"]["value"] = value
    episode["traces"][0]["rewards"]["exact"]["score"] = value
    for form, record in (("inspect", sample), ("verifiers", episode)):
        trajectory = read_record(record, form, 0, READING)
        assert (trajectory.reward, trajectory.success) == (None, None)


def test_a_third_party_s_format_is_found_and_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"cleaner_rl.log_adapters": {"mine": "mine_of_others:Mine"}}
    install(tmp_path, "others", entries, {"mine_of_others.py": MINE}, monkeypatch)
    assert detect({**RENDERED["openai"](CASES[0]), "mine": 1}) == "mine"
    assert detect(RENDERED["openai"](CASES[0])) == "openai"
    with pytest.raises(PluginError, match=r"'other'.*atif, .*mine, .*openai"):
        formats.log_format("other")


def test_plug_ins_are_not_looked_for_anew_with_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RENDERED["openai"](CASES[0])
    detect(record)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("they were found before"))
    assert detect(record) == "openai"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
HERMES_CALL = '<tool_call>{"name": "a", "arguments": {}}</tool_call>'
TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "<tool_call>",
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>',
        raised("ValueError: x"),
        "</tool_response>",
    ]
)
TEXT_PARTS = st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS})
TOOL_USES = st.fixed_dictionaries(
    {"type": st.just("tool_use")}, optional={"id": st.text(max_size=3), "name": TEXTS, "input": JSON}
)
TOOL_RESULTS = st.fixed_dictionaries(
    {"type": st.just("tool_result")},
    optional={
        "tool_use_id": st.text(max_size=3) | JSON,
        "content": TEXTS | st.lists(TEXT_PARTS | JSON, max_size=2) | JSON,
        "is_error": st.booleans(),
    },
)
CONTENTS = st.none() | TEXTS | st.lists(TEXT_PARTS | TEXTS | TOOL_USES | TOOL_RESULTS | JSON, max_size=4)
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": st.text(max_size=3)},
        optional={
            "function": st.fixed_dictionaries({}, optional={"name": TEXTS, "arguments": TEXTS | JSON}) | TEXTS,
            "arguments": TEXTS | JSON,
            "name": TEXTS,
            "more": JSON,
        },
    ),
    max_size=3,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["assistant", "tool", "user", "system", "odd"])},
        optional={
            "content": CONTENTS,
            "tool_calls": CALLS | st.none(),
            "function_call": st.fixed_dictionaries({}, optional={"name": TEXTS, "arguments": TEXTS | JSON}) | JSON,
            "tool_call_id": st.text(max_size=3) | JSON,
            "reasoning_content": TEXTS | JSON,
            "observation": JSON,
            "extra": JSON,
        },
    ),
    max_size=6,
)


@given(MESSAGES, st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_any_messages_come_back_and_undo_gives_them_back(messages: list[Any], rest: dict[str, Any]) -> None:
    record = {**rest, "messages": messages}
    before = json.dumps(record)
    trajectory = read_record(record, "openai", 0, READING)
    assert json.dumps(write_record(trajectory)) == before
    cleaned = purify_log(trajectory, RepairConfig()).trajectory
    write_record(cleaned)
    for index, _ in reversed(cleaned.edits):
        cleaned = undo(cleaned, index)
    assert json.dumps(write_record(cleaned)) == before


@given(
    st.text(max_size=30),
    st.lists(TEXTS | st.sampled_from(["\nuser\n", "\nassistant\n", "<tool_response>\n"]), max_size=8),
)
def test_any_output_of_verl_s_comes_back(prompt: str, parts: list[str]) -> None:
    record = {"input": prompt, "output": "".join(parts), "gts": None, "score": 1.0, "step": 3}
    assert write_record(read_record(record, "verl", 0, READING)) == record
