"""Stores of every schema version stay readable. Never make these files anew: the release of that version wrote them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
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
    return [
        Trajectory(
            token_span("What? ", [1, 2, 3]),
            (repaired, answer),
            Key("sample", 1, "task/é", 7),
            0.5,
            True,
            StopReason.ANSWERED,
            RolloutInfo(other={"note": ["ü", 1.5]}),
        ),
        Trajectory(TextSpan("Q\0"), (Turn(TextSpan("")), Turn(TextSpan("A\ufffd"))), Key("sample", 1, "text", 0)),
    ]


def scores(*logprobs: float, version: int | None = None) -> Scores:
    made = token_span("", range(len(logprobs)), logprobs, version).sampled
    assert made is not None
    return made


def version_2() -> list[AnyTrajectory]:
    first, second = version_1()
    info = RolloutInfo(
        seconds=1.5,
        stateful=True,
        limits={"cpu_seconds": 2},
        tool={"kind": "python", "options": {}},
        messages=[{"role": "user", "content": "What?"}],
        answer="42",
        roc={"kept": True, "why": "é"},
        injected="NameError",
        other={"note": ["ü", 1.5]},
    )
    evaluated = replace(first.key, phase=Phase.EVALUATION)
    return [replace(cast("Trajectory[TokenSpan]", first), key=evaluated, info=info), second]


def version_3() -> list[AnyTrajectory]:
    command = ToolCall("Solver", {"command": "make test"}, "make test", 0, 12, kind=CallKind.SHELL)
    ran = Turn(TextSpan("Run. "), TextSpan("<tool_call>…"), TextSpan(""), (command,), (ToolResult(Status.REFUSED),))
    return [*version_2(), Trajectory(TextSpan("?"), (ran,), Key("sample", 1, "shell", 0))]


@pytest.mark.parametrize("name", ["version-1", "version-1.jsonl"])
def test_version_1_stays_readable(name: str) -> None:
    assert list(read(DATA / name)) == version_1()


@pytest.mark.parametrize("name", ["version-2", "version-2.jsonl"])
def test_version_2_stays_readable(name: str) -> None:
    assert list(read(DATA / name)) == version_2()


@pytest.mark.parametrize("name", ["version-3", "version-3.jsonl"])
def test_version_3_stays_readable(name: str) -> None:
    assert list(read(DATA / name)) == version_3()


def test_the_evaluations_of_version_1_are_known_by_the_name_of_their_run(tmp_path: Path) -> None:
    line = (DATA / "version-1.jsonl").read_text(encoding="utf-8").splitlines()[1]
    stored = json.loads(line) | {"run": "sample-evaluation", "extra": json.dumps({"put_in": "loop", "limits": None})}
    (tmp_path / "old.jsonl").write_text(json.dumps(stored), encoding="utf-8")
    (part,) = (DATA / "version-1").rglob("*.parquet")
    table = pq.read_table(part, partitioning=None)
    for name, value in (("run", "sample-evaluation"), ("extra", '{"put_in": "loop", "mine": 1}')):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array([value] * len(table)))
    folder = tmp_path / "store" / "run=sample-evaluation" / "step=1"
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part.parquet")
    expected = Key("sample", 1, "text", 0, Phase.EVALUATION)
    (in_json,) = read(tmp_path / "old.jsonl")
    assert (in_json.key, in_json.info) == (expected, RolloutInfo(injected="loop"))
    in_parquet = list(read(tmp_path / "store", Phase.EVALUATION))[1]
    assert (in_parquet.key, in_parquet.info) == (expected, RolloutInfo(injected="loop", other={"mine": 1}))
    assert not list(read(tmp_path / "store", Phase.TRAINING))
