from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cleaner_rl.evaluate import measure
from cleaner_rl.purify import PurifyConfig, repair
from cleaner_rl.trajectory import RolloutInfo, StopReason, TextSpan, Trajectory
from tests.builders import (
    AMPLE,
    FAULT,
    SEEDS,
    ScriptedModel,
    ScriptedTool,
    answered,
    as_text,
    drafted,
    error,
    failed,
    observed,
    trajectory,
    worked,
    written,
)


def test_a_rollout_without_repair() -> None:
    turns = (failed(), failed("print(z)"), worked(), failed("1/0"), answered())
    rollout = replace(trajectory(*turns, success=True), stop_reason=StopReason.ANSWERED, info=RolloutInfo(seconds=1.5))
    found = measure(rollout)
    assert found.right is True
    assert (found.turns, found.calls, found.failed_first, found.failed_left) == (5, 4, 3, 3)
    assert (found.episodes, found.recovered) == (2, 1), "two failures in a row are one episode; the last stays open"
    assert found.sampled == sum(len(turn.text.encode()) for turn in turns), "one token a byte; no observation counts"
    assert (found.lookahead, found.seconds, found.stop_reason) == (0, 1.5, "answered")


@pytest.mark.parametrize("mends", [True, False])
def test_with_repair_the_first_attempt_and_what_is_left_differ(mends: bool) -> None:
    broken, attempt = failed(), drafted(written("print(1)"))
    tool = ScriptedTool() if mends else ScriptedTool({"print(1)": error()})
    history = trajectory()
    model = ScriptedModel([attempt] * 3)
    repaired = asyncio.run(
        repair(
            history,
            broken,
            sample=model.sample,
            execute=tool.execute,
            config=PurifyConfig(attempts=3),
            budget=AMPLE,
            seeds=SEEDS,
        )
    )
    found = measure(replace(history, turns=(*repaired.turns, answered()), success=True))
    assert (found.calls, found.failed_first) == (1, 1)
    assert found.failed_left == (0 if mends else 4)
    assert (found.episodes, found.recovered) == (1, int(mends))
    size = len(written("print(1)").encode())
    assert found.lookahead == size * (1 if mends else 3)
    assert found.sampled == len(broken.text.encode()) + len(answered().text.encode()), "nothing is counted twice"


def test_tool_seconds_are_all_that_ran() -> None:
    timed = replace(error(), seconds=0.25)
    found = measure(trajectory(failed(result=timed), failed(result=timed), success=False))
    assert found.tool_seconds == 0.5


def test_a_fault_is_neither_right_nor_wrong() -> None:
    broken = trajectory(observed(drafted(written("print(1)")), FAULT), success=False)
    assert (measure(broken).right, measure(broken).fault) == (None, "no node answered")
    ended = replace(trajectory(answered()), stop_reason=StopReason.FAULT, info=RolloutInfo(fault="the engine is gone"))
    assert (measure(ended).right, measure(ended).fault) == (None, "the engine is gone")
    ungraded = trajectory(answered())
    assert measure(ungraded).right is None
    assert measure(ungraded).fault


def test_a_dropped_rollout_cannot_be_left_out_of_a_score() -> None:
    with pytest.raises(ValueError, match="failures"):
        measure(replace(trajectory(failed()), stop_reason=StopReason.DROPPED))


def test_text_is_measured_in_characters_and_says_so() -> None:
    turn = as_text(worked())
    found = measure(Trajectory(TextSpan("?"), (turn,), success=True))
    assert not found.tokens
    assert found.sampled == len(turn.text)
