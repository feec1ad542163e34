"""Stores of every schema version stay readable. Never make these files anew: an old release wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner_rl.tools import ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import (
    AnyTrajectory,
    Edit,
    Ending,
    Granularity,
    Key,
    Mode,
    Scores,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    token_span,
)
from cleaner_rl.trajectory.store import read

DATA = Path(__file__).parent / "data"


def version_1() -> list[AnyTrajectory]:
    broken = ToolResult(
        Status.ERROR,
        "1\n",
        "warning",
        ExceptionInfo("NameError", "name 'y' is not defined", 2, "Trace…"),
        "",
        9000,
        0.25,
    )
    failed = Turn(
        token_span("Let me see 🙂. ", [11, 12], [-0.5, -1.25], version=3),
        token_span("<tool_call>…", [13], [-0.1]),
        token_span("NameError", [14, 15]),
        (ToolCall("python", {"code": "y"}, "y", 0, 12),),
        (broken,),
    )
    unread = Turn(
        token_span("Hm. ", [21], [-2.0]),
        token_span("<tool_call>{", [], []),
        token_span("unreadable", [22]),
        (ToolCall("", {}, "y", 0, 12, "It is not JSON."),),
        (ToolResult(Status.MALFORMED, explanation="It is not JSON."),),
        attempt=1,
        edit=Edit(Mode.LIVE, Granularity.NONE, (failed,), refusal="no attempt was verified"),
    )
    mended = Turn(
        failed.reasoning,
        TokenSpan("<tool_call>!", token_span("", [31, 32]).ids, scores(-0.75, -0.125), scores(-3.0, -4.0, version=5)),
        token_span("2", [33]),
        (ToolCall("python", {"code": "x", "deep": [1, {"a": None}]}, "x", 0, 12),),
        (ToolResult(Status.OK, "2", versions={"python": "3.11.7"}),),
        edit=Edit(Mode.HINDSIGHT, Granularity.GRAFT, (failed, unread), 0.625, "difflib", "", ("the error",)),
    )
    answer = Turn(token_span("42", [41, 42], [-0.0, -0.5], version=3))
    return [
        Trajectory(
            token_span("What? ", [1, 2, 3]),
            (mended, answer),
            Key("sample", 1, "task/é", 7),
            0.5,
            True,
            Ending.ANSWERED,
            {"note": ["ü", 1.5]},
        ),
        Trajectory(TextSpan("Q\0"), (Turn(TextSpan("")), Turn(TextSpan("A\ufffd"))), Key("sample", 1, "text", 0)),
    ]


def scores(*logprobs: float, version: int | None = None) -> Scores:
    made = token_span("", range(len(logprobs)), logprobs, version).sampled
    assert made is not None
    return made


@pytest.mark.parametrize("name", ["version-1", "version-1.jsonl"])
def test_version_1_stays_readable(name: str) -> None:
    assert list(read(DATA / name)) == version_1()
