"""Small stores for the viewer's tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from cleaner_rl.logs import LogSettings, purify
from cleaner_rl.purify import RepairConfig, hindsight
from cleaner_rl.purify.saar import NO_CORRECTION
from cleaner_rl.tools import Status, ToolResult
from cleaner_rl.trajectory import (
    AnyTrajectory,
    Edit,
    Key,
    RepairKind,
    RepairMode,
    RolloutInfo,
    Scores,
    StopReason,
    TokenSpan,
    Trajectory,
)
from cleaner_rl.trajectory.store import ParquetWriter
from tests.builders import answered, failed, trajectory, worked

HOSTILE = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\"> "
    "\x1b[31mred\x1b[0m \x00\x07\x9b \u202egnirts\u202c \u200b\u2066 </textarea> {{7*7}} javascript:alert(1)"
)
LOG = Path(__file__).parents[2] / "benchmarks" / "data" / "view_log.jsonl"
MEGABYTE = "x" * 2**20


def grafted(rollout: int = 0, task: str = "sum", step: int = 0, run: str = "saar") -> Trajectory[TokenSpan]:
    """A failure and its correction, made one in hindsight."""
    found = hindsight(
        trajectory(failed("print(y)\nprint(3)"), worked("print(2)\nprint(3)"), answered()), RepairConfig(threshold=0.0)
    )
    return keyed(found.trajectory, run, step, task, rollout, 1.0)


def replaced(rollout: int = 1, task: str = "sum", step: int = 0, run: str = "saar") -> Trajectory[TokenSpan]:
    """The same, with the reasoning replaced."""
    found = hindsight(trajectory(failed(), worked(), answered()), RepairConfig(threshold=2.0))
    return keyed(found.trajectory, run, step, task, rollout, 1.0)


def uncorrected(rollout: int = 3, task: str = "sum", step: int = 0, run: str = "saar") -> Trajectory[TokenSpan]:
    """A failure for which a lookahead found no correction."""
    turn = failed()
    edit = Edit(RepairMode.SAAR, RepairKind.NONE, (turn, replace(failed(), attempt=1)), refusal=NO_CORRECTION)
    return keyed(trajectory(replace(turn, edit=edit), answered()), run, step, task, rollout, 0.0)


def moved(*lost: float, rollout: int = 6) -> Trajectory[TokenSpan]:
    """Grafts one after the other, each with what a token of its call lost by moving."""
    found, turns = grafted(rollout), []
    turn = found.turns[0]
    assert turn.action is not None
    assert turn.action.sampled is not None
    for each in lost:
        lower = Scores(turn.action.sampled.logprobs - each)
        turns.append(replace(turn, action=replace(turn.action, rescored=lower)))
    return replace(found, turns=(*turns, *found.turns[1:]))


def clean(rollout: int = 2, task: str = "sum", step: int = 0, run: str = "saar") -> Trajectory[TokenSpan]:
    """Nothing to repair."""
    return keyed(trajectory(worked(), answered()), run, step, task, rollout, 1.0)


def broken(rollout: int = 3, task: str = "sum", step: int = 0, run: str = "saar") -> Trajectory[TokenSpan]:
    """A failure that stands."""
    turns = (failed(), failed(result=ToolResult(Status.TIMEOUT)))
    return replace(keyed(trajectory(*turns), run, step, task, rollout, 0.0), stop_reason=StopReason.TURN_LIMIT)


def hostile(rollout: int = 4) -> Trajectory[TokenSpan]:
    """All that a page could stumble over."""
    printed = ToolResult(Status.OK, HOSTILE + MEGABYTE, stderr=HOSTILE)
    turn = replace(worked(f"print({HOSTILE!r})", HOSTILE), results=(printed,))
    bad = failed(HOSTILE, HOSTILE, ToolResult(Status.ERROR, HOSTILE, explanation=HOSTILE))
    found = hindsight(trajectory(bad, turn, answered(HOSTILE)), RepairConfig(threshold=2.0)).trajectory
    return replace(
        keyed(found, "<b>run</b>\u202e", 0, HOSTILE, rollout, 1.0), info=RolloutInfo(other={HOSTILE: HOSTILE})
    )


def keyed(
    found: Trajectory[TokenSpan], run: str, step: int, task: str, rollout: int, reward: float
) -> Trajectory[TokenSpan]:
    """With its name and how it ended."""
    key = Key(run, step, task, rollout)
    return replace(found, key=key, reward=reward, success=reward > 0, stop_reason=StopReason.ANSWERED)


def write(folder: Path, trajectories: Iterable[AnyTrajectory]) -> Path:
    """A store of these."""
    with ParquetWriter(folder) as writer:
        for each in trajectories:
            writer.write(each)
    return folder


def logs(folder: Path) -> Path:
    """The store of a purified log: calls of a shell, an editor, a database and an MCP server."""
    purify(LOG, folder, LogSettings())
    return folder / "store"


def small(folder: Path) -> Path:
    """A run's folder with two runs, two steps, metrics, and what resampling said of one group."""
    told = {"kept": True, "why": "a success, among the 2 cleanest of 3", "penalty": 0.5, "advantage": 0.86}
    group = [grafted(), replaced(), clean(), broken()]
    group[0] = replace(group[0], info=RolloutInfo(verdict=told))
    group[3] = replace(
        group[3], info=RolloutInfo(verdict={**told, "kept": False, "why": "a failure, not drawn: 0 of 1 are kept"})
    )
    others = [clean(0, "other", 1), broken(1, "other", 1), clean(0, "sum", 0, "grpo"), broken(1, "sum", 1, "grpo")]
    write(folder / "trajectories", [*group, *others])
    lines = [{"run": "saar", "step": step, "metrics": {"reward": step / 4, "actor/entropy": 1.0}} for step in range(4)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
