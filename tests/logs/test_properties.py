"""Whatever the log: undoing the edits gives it back, and no row teaches a turn that failed, was denied or is unsure."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from cleaner_rl.logs import PurifiedLog, Reading, detect, purify_log, read_record, write_record
from cleaner_rl.logs.sft import sft_rows
from cleaner_rl.purify import RepairConfig
from cleaner_rl.trajectory import without_hindsight

TRACE = 'Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\n'
DENIED = "The user doesn't want to proceed with this tool use. The tool use was rejected."
# A failed call, its correction, and what the tool says of the first; others only look alike.
PAIRS: dict[str, list[tuple[dict[str, Any], dict[str, Any], str]]] = {
    "python": [
        ({"code": "print(1 + y)"}, {"code": "print(1 + 1)"}, TRACE + "NameError: name 'y' is not defined"),
        ({"code": "print(lenn([3]))"}, {"code": "print(len([3]))"}, TRACE + "NameError: name 'lenn' is not defined"),
        ({"code": "assert f(2) == 4"}, {"code": "print('skipped')"}, TRACE + "AssertionError"),
    ],
    "bash": [
        ({"command": "lss -l src"}, {"command": "ls -l src"}, "bash: lss: command not found"),
        ({"command": "pytest -q"}, {"command": "pytest -q || true"}, "1 failed, 3 passed"),
        ({"command": "git commit -m x"}, {"command": "git commit --no-verify -m x"}, "hook declined"),
    ],
    "query": [
        ({"sql": "SELECT aeg FROM t"}, {"sql": "SELECT age FROM t"}, "no such column: aeg"),
        ({"sql": "DELETE FROM t"}, {"sql": "DELETE FROM u"}, "FOREIGN KEY constraint failed"),
    ],
}
UNSURE: dict[str, tuple[dict[str, Any], str]] = {
    "python": ({"code": "print(1)"}, "ValueError: x"),
    "bash": ({"command": "pytest -q"}, "error: x"),
    "query": ({"sql": "SELECT age FROM t"}, "failed"),
}
FLAGS: dict[str, list[dict[str, Any]]] = {
    "ok": [{"exit_code": 0}, {"is_error": False}],
    "failed": [{"exit_code": 1}, {"is_error": True}],
    "denied": [{"is_error": True}],
    "unsure": [{}],
}


@st.composite
def logs(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str]]:
    """A log in OpenAI's form, and how each of its calls ended, by the call's id."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Do it."}]
    truth: dict[str, str] = {}

    def say(*calls: tuple[str, dict[str, Any], str, str]) -> None:
        said: dict[str, Any] = {"role": "assistant", "content": draw(st.sampled_from(["I try.", "Again.", "é ✓"]))}
        results = []
        for tool, arguments, ended, text in calls:
            name = f"call-{len(truth)}"
            truth[name] = ended
            function = {"name": tool, "arguments": arguments}
            said.setdefault("tool_calls", []).append({"id": name, "type": "function", "function": function})
            flags = draw(st.sampled_from(FLAGS[ended]))
            results.append({"role": "tool", "tool_call_id": name, "content": text, **flags})
        messages.extend([said, *results])

    for _ in range(draw(st.integers(1, 5))):
        tool = draw(st.sampled_from([*PAIRS]))
        failed, correction, told = draw(st.sampled_from(PAIRS[tool]))
        if draw(st.booleans()):
            say((tool, failed, "failed", told))
            say((tool, correction, "ok", "done"))
        else:
            either = draw(st.sampled_from([failed, correction]))
            texts = {
                "ok": (either, "done"),
                "failed": (either, told),
                "denied": (either, DENIED),
                "unsure": UNSURE[tool],
            }
            ends = draw(st.lists(st.sampled_from([*texts]), max_size=2))
            say(*((tool, texts[ended][0], ended, texts[ended][1]) for ended in ends))
        if draw(st.integers(0, 3)) == 0:
            messages.append({"role": "user", "content": "Go on."})
    return {"messages": messages}, truth


def purified(log: dict[str, Any]) -> PurifiedLog[Any]:
    form = detect(log)
    assert form is not None
    return purify_log(read_record(log, form, 0, Reading()), RepairConfig())


@given(logs())
def test_undoing_the_edits_gives_back_the_record(made: tuple[dict[str, Any], dict[str, str]]) -> None:
    log, _ = made
    found = purified(log).trajectory
    event("edited" if found.edits else "left alone")
    assert write_record(without_hindsight(found)) == log


@given(logs())
def test_no_row_teaches_a_turn_that_failed_was_denied_or_is_unsure(made: tuple[dict[str, Any], dict[str, str]]) -> None:
    log, truth = made
    rows = sft_rows(purified(log).trajectory)
    if not rows:
        event("teaches nothing")
        return
    (row,) = rows
    assert any(row["loss_mask"])
    taught = [message for message, mask in zip(row["messages"], row["loss_mask"], strict=True) if mask]
    assert {message["role"] for message in taught} <= {"assistant"}
    ended = {truth[call["id"]] for message in taught for call in message.get("tool_calls", ())}
    event("teaches a call" if ended else "teaches none")
    assert ended <= {"ok"}
