"""Stores of every published schema version stay readable. Never make these files anew: they stand for kept ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner_rl.tools import CallKind, ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import (
    AnyTrajectory,
    Edit,
    Key,
    Phase,
    RepairKind,
    RepairMode,
    RolloutInfo,
    Scores,
    StopReason,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    token_span,
)
from cleaner_rl.trajectory.store import read

DATA = Path(__file__).parent / "data"


def version_3() -> list[AnyTrajectory]:
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
        (ToolCall("python", {"code": "y"}, "y", 0, 12, kind=CallKind.PYTHON),),
        (broken,),
    )
    unread = Turn(
        token_span("Hm. ", [21], [-2.0]),
        token_span("<tool_call>{", [], []),
        token_span("unreadable", [22]),
        (ToolCall("", {}, "y", 0, 12, "It is not JSON."),),
        (ToolResult(Status.MALFORMED, explanation="It is not JSON."),),
        attempt=1,
        edit=Edit(RepairMode.SAAR, RepairKind.NONE, (failed,), refusal="no attempt was verified"),
    )
    repaired = Turn(
        failed.reasoning,
        TokenSpan("<tool_call>!", token_span("", [31, 32]).ids, scores(-0.75, -0.125), scores(-3.0, -4.0, version=5)),
        token_span("2", [33]),
        (ToolCall("python", {"code": "x", "deep": [1, {"a": None}]}, "x", 0, 12, kind=CallKind.PYTHON),),
        (ToolResult(Status.OK, "2", versions={"python": "3.11.7"}),),
        edit=Edit(RepairMode.HINDSIGHT, RepairKind.GRAFT, (failed, unread), 0.625, "difflib", "", ("the error",)),
    )
    answer = Turn(token_span("42", [41, 42], [-0.0, -0.5], version=3))
    info = RolloutInfo(
        seconds=1.5,
        stateful=True,
        limits={"cpu_seconds": 2},
        tool={"kind": "python", "options": {}},
        messages=[{"role": "user", "content": "What?"}],
        answer="42",
        verdict={"kept": True, "why": "é"},  # the files have its former name, `roc`
        injected="NameError",
        other={"note": ["ü", 1.5]},
    )
    command = ToolCall("Solver", {"command": "make test"}, "make test", 0, 12, kind=CallKind.SHELL)
    ran = Turn(TextSpan("Run. "), TextSpan("<tool_call>…"), TextSpan(""), (command,), (ToolResult(Status.REFUSED),))
    return [
        Trajectory(
            token_span("What? ", [1, 2, 3]),
            (repaired, answer),
            Key("sample", 1, "task/é", 7, Phase.EVALUATION),
            0.5,
            True,
            StopReason.ANSWERED,
            info,
        ),
        Trajectory(TextSpan("Q\0"), (Turn(TextSpan("")), Turn(TextSpan("A\ufffd"))), Key("sample", 1, "text", 0)),
        Trajectory(TextSpan("?"), (ran,), Key("sample", 1, "shell", 0)),
    ]


def scores(*logprobs: float, version: int | None = None) -> Scores:
    made = token_span("", range(len(logprobs)), logprobs, version).sampled
    assert made is not None
    return made


@pytest.mark.parametrize("name", ["version-3", "version-3.jsonl"])
def test_version_3_stays_readable(name: str) -> None:
    assert list(read(DATA / name)) == version_3()
