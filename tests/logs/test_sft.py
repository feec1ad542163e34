"""What a row teaches, and what it only shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.messages import Unreadable
from cleaner_rl.logs.records import read_record
from cleaner_rl.logs.sft import UnsureTurns, sft_rows
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import RolloutInfo, StopReason, TextSpan, TokenSpan, Trajectory, Turn
from tests.builders import answered, drafted, failed, trajectory, worked, written
from tests.logs.cases import CASES, Case
from tests.logs.rendering import QUESTION, RENDERED, inspect, openai, verl


def sft_row(*arguments: Any, **options: Any) -> dict[str, Any] | None:
    """The row of a trajectory with one context; None if it has none."""
    rows = sft_rows(*arguments, **options)
    assert len(rows) < 2
    return rows[0] if rows else None


ASKED = RolloutInfo(messages=[{"role": "user", "content": "What is 1+1?"}], tools=[])
CUT_OFF = drafted(written("print(2"))


@pytest.mark.parametrize(
    ("last", "stop_reason", "taught"),
    [
        (answered(), StopReason.ANSWERED, [0, 1, 1]),
        (answered("The ans"), StopReason.TOKEN_LIMIT, [0, 1, 0]),
        (CUT_OFF, StopReason.TOKEN_LIMIT, [0, 1, 0]),
        (worked(), StopReason.TOKEN_LIMIT, [0, 1, 1]),  # only what it was told had no room
    ],
)
def test_turns_that_failed_or_were_cut_off_are_shown_and_not_taught(
    last: Turn[TokenSpan], stop_reason: StopReason, taught: list[int]
) -> None:
    made = replace(trajectory(failed(), worked(), last), stop_reason=stop_reason, info=ASKED)
    row = sft_row(made)
    assert row is not None
    written_by = [message["role"] for message in row["messages"]]
    assert [mask for role, mask in zip(written_by, row["loss_mask"], strict=True) if role == "assistant"] == taught
    assert sft_row(made, clean_only=True) is None, "it has a failed call"


def test_of_clean_rollouts_those_that_were_cut_off_give_no_row() -> None:
    cut_off = replace(trajectory(worked(), CUT_OFF), stop_reason=StopReason.TOKEN_LIMIT, info=ASKED)
    assert sft_row(cut_off, clean_only=True) is None
    assert sft_row(
        replace(trajectory(worked(), answered()), stop_reason=StopReason.ANSWERED, info=ASKED), clean_only=True
    )


def row_of(record: dict[str, Any], form: str = "openai", **options: Any) -> dict[str, Any] | None:
    return sft_row(read_record(record, form, 0, Reading()), **options)


def comparable(messages: list[Any]) -> list[Any]:
    """Without ids, since OpenAI's first calls had none, and however JSON is spelt."""
    bare: list[Any] = json.loads(json.dumps(messages))
    for message in bare:
        message.pop("tool_call_id", None)
        for call in message.get("tool_calls", ()):
            del call["id"]
            assert isinstance(call["function"]["arguments"], dict)
    return bare


@pytest.mark.parametrize("variant", ["openai, anthropic", "openai, function_call"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_wherever_calls_and_results_stand_they_are_in_the_row(variant: str, case: Case) -> None:
    expected, found = row_of(openai(case)), row_of(RENDERED[variant](case))
    assert expected is not None
    assert found is not None
    assert comparable(found["messages"]) == comparable(expected["messages"])
    assert (found["tools"], found["loss_mask"]) == (expected["tools"], expected["loss_mask"])


@pytest.mark.parametrize("name", ["tools", "functions"])
@pytest.mark.parametrize("write", [json.dumps, lambda tools: list(map(json.dumps, tools))])
def test_tools_as_json_text_are_in_the_row(name: str, write: Callable[[Any], Any]) -> None:
    record = openai(CASES[0])
    tools = record.pop("tools")
    row = row_of({**record, name: write(tools)})
    assert row is not None
    assert row["tools"] == tools


@pytest.mark.parametrize("tools", ["[{", '{"name": "python"}', "python", {"name": "python"}, 3, [3], ["python"]])
def test_tools_that_nobody_can_read_make_no_row(tools: Any) -> None:
    with pytest.raises(Unreadable, match="tools"):
        row_of(openai(CASES[0]) | {"tools": tools})


@pytest.mark.parametrize("tools", [None, [], "", "[]", "null"])
def test_a_log_without_tools_has_none_in_its_row(tools: Any) -> None:
    row = row_of(openai(CASES[0]) | {"tools": tools})
    assert row is not None
    assert row["tools"] is None


def test_an_error_that_stands_beside_the_result_is_its_words() -> None:
    record = inspect(CASES[0])
    record["messages"][2] |= {"content": "", "error": {"type": "timeout", "message": "It took too long."}}
    row = row_of(record, "inspect")
    assert row is not None
    assert row["messages"][2]["content"] == "It took too long."


@pytest.mark.parametrize("begun", ["", "<think>\n", "<think>\n\n</think>\n\n"])
def test_the_thought_that_a_prompt_of_verl_s_begins_is_the_model_s(begun: str) -> None:
    record = verl(CASES[0])
    row = row_of({**record, "input": f"system\nBe brief.\n{record['input']}{begun}"}, "verl")
    assert row is not None
    assert row["messages"][:2] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    said = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
    assert said[0].startswith(f"{begun}I add.")
    assert said[1].startswith("Now right.")


def test_a_prompt_of_another_template_makes_no_row() -> None:
    with pytest.raises(Unreadable, match="template"):
        row_of({**verl(CASES[0]), "input": f"user\n{QUESTION}\nassistant\nHm.\nuser\nWell?\nassistant\n"}, "verl")


USER = {"role": "user", "content": "What is it?"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "user", "content": ["This.", PICTURE]}, "image_url"),
        ({"role": "assistant", "refusal": "I can't."}, "assistant.*`refusal`"),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, "type refusal"),
        ({"role": "assistant", "content": {"text": "A cat."}}, "neither text nor parts"),
        ({"role": "assistant", "content": [["A cat."]]}, "not an object"),
        ({"role": "user", "content": [{"type": "tool_result", "content": [PICTURE]}]}, "image_url"),
        ({"role": "tool", "content": [PICTURE]}, "image_url"),
        ({"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "a"}}]}, "without a name"),
        ({"role": "assistant", "tool_calls": [{"name": "a", "args": {"b": 1}}]}, "without arguments"),
        ({"role": "assistant", "function_call": "a(1)"}, "`function_call`"),
        ({"role": "assistant", "reasoning": [{"summary": "Hm."}]}, "`reasoning`"),
        ({"role": "assistant", "observation": {"results": [{"content": [PICTURE]}]}}, "image_url"),
    ],
)
def test_what_a_row_has_no_place_for_makes_none(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        row_of({"messages": [USER, {"role": "assistant", "content": "Let me see."}, message]})


@pytest.mark.parametrize("content", [None, "", " \n", [], [{"type": "text", "text": ""}]])
def test_a_turn_that_says_nothing_is_not_taught(content: Any) -> None:
    record = {
        "messages": [USER, {"role": "assistant", "content": content}, USER, {"role": "assistant", "content": "A"}]
    }
    row = row_of(record)
    assert row is not None
    assert row["loss_mask"] == [0, 0, 0, 1]
    assert row_of(record, clean_only=True) is None


def turn_of(status: Status | None, number: int) -> Turn[TextSpan]:
    """A turn with a call that ended so; None: nobody knows."""
    call = ToolCall("bash", {"command": f"make {number}"}, f"make {number}", 0, 9, kind=CallKind.SHELL)
    results = () if status is None else (ToolResult(status, "out"),)
    return Turn(TextSpan("Run it. "), TextSpan("<tool_call>"), TextSpan("out"), (call,), results)


OUTCOMES = st.lists(st.none() | st.sampled_from(Status), min_size=1, max_size=5)


def trained(row: dict[str, Any]) -> list[bool]:
    """Whether each of the model's messages is in the loss."""
    return [
        bool(mask)
        for message, mask in zip(row["messages"], row["loss_mask"], strict=True)
        if message["role"] == "assistant"
    ]


@given(OUTCOMES, st.sampled_from(UnsureTurns))
def test_no_turn_is_taught_that_failed_or_was_denied_or_is_unsure(
    statuses: list[Status | None], unsure: UnsureTurns
) -> None:
    turns = tuple(turn_of(status, number) for number, status in enumerate(statuses))
    made = Trajectory(TextSpan("Build it."), (*turns, Turn(TextSpan("Done."))), info=ASKED)
    row = sft_row(made, unsure=unsure)
    if Status.FAULT in statuses:
        assert row is None, "what broke says nothing about the model"
        return
    assert row is not None
    taught = [status is Status.OK or (status is None and unsure is UnsureTurns.TRAIN) for status in statuses]
    assert trained(row) == [*taught, True]
    assert (sft_row(made, unsure=unsure, clean_only=True) is not None) == all(taught)


RESULTS = st.sampled_from(
    [
        ({"content": "all well"}, True),
        ({"content": "out", "exit_code": 0}, True),
        ({"content": "out", "metadata": {"exit_code": 2}}, False),
        ({"content": "out", "is_error": True}, False),
        ({"content": "[exit code 127]"}, False),
        ({"content": "bash: make: command not found"}, False),
        ({"content": "Permission to use Bash with command make has been denied."}, False),
        ({"content": "The user doesn't want to proceed with this tool use."}, False),
        ({"content": "Command timed out after 2m 0.0s"}, False),
        ({"content": "error: nobody knows"}, False),
    ]
)


@given(st.lists(st.lists(RESULTS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_no_row_of_a_log_teaches_a_call_that_is_not_known_to_have_worked(turns: list[list[Any]]) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Build it."}]
    for number, results in enumerate(turns):
        ids = [f"{number}-{index}" for index in range(len(results))]
        function = {"name": "Bash", "arguments": json.dumps({"command": "make"})}
        calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
        messages.append({"role": "assistant", "content": "Run it.", "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": each, **told[0]} for each, told in zip(ids, results, strict=True)]
    messages.append({"role": "assistant", "content": "Done."})
    row = row_of({"messages": messages})
    assert row is not None
    assert trained(row) == [*(all(worked for _, worked in results) for results in turns), True]


WORD = "\0word"
"""Stands where a message says something; each becomes another word."""
LEAF = st.just(WORD)
PARTS = st.sampled_from(
    [
        WORD,
        {"type": "text", "text": WORD},
        {"type": "thinking", "thinking": WORD},
        {"type": "tool_use", "id": "1", "name": "a", "input": {"code": WORD}},
        {"type": "tool_use", "name": "a", "arguments": WORD},
        {"type": "tool_result", "tool_use_id": "1", "content": WORD},
        {"type": "tool_result", "content": [WORD, {"type": "text", "text": WORD}]},
        {"type": "tool_result", "content": [{"type": "image", "source": WORD}]},
        {"type": "image_url", "image_url": {"url": WORD}},
        {"type": "of next year", "text": WORD},
        {"text": WORD},
        None,
    ]
)
FIELDS: dict[str, Any] = {
    "content": LEAF | st.none() | st.lists(PARTS, max_size=3) | st.just({"text": WORD}),
    "tool_calls": st.none() | st.just([{"id": "1", "function": {"name": "a", "arguments": WORD}}]),
    "function_call": st.none() | st.just({"name": "a", "arguments": WORD}) | LEAF,
    "reasoning_content": LEAF | st.none() | st.just([WORD]),
    "refusal": st.none() | LEAF,
    "observation": st.none() | LEAF | st.just({"results": [{"content": WORD}]}),
}
SPOKEN = st.lists(
    st.sampled_from(["assistant", "tool", "function", "user", "system"]).flatmap(
        lambda role: st.fixed_dictionaries({"role": st.just(role)}, optional=FIELDS)
    ),
    max_size=5,
)


@given(SPOKEN)
def test_every_word_of_a_log_is_in_its_row_or_there_is_none(messages: list[Any]) -> None:
    whole = json.dumps(messages).split(json.dumps(WORD))
    words = [f"word{number:03}" for number in range(len(whole) - 1)]
    text = whole[0] + "".join(json.dumps(word) + rest for word, rest in zip(words, whole[1:], strict=True))
    try:
        row = row_of({"messages": json.loads(text)})
    except Unreadable:
        return
    if row is not None:
        shown = json.dumps(row["messages"])
        assert [word for word in words if word not in shown] == []
        for message, taught in zip(row["messages"], row["loss_mask"], strict=True):
            said = message["content"], message.get("reasoning_content"), message.get("tool_calls")
            assert not taught or any(said), "an empty message is no example"
