"""Several weighted graders: the reward is the raw rollout's, and the task's own grader says what a success is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.purify import PurifyConfig, PurifyScope
from cleaner_rl.resample import group_of
from cleaner_rl.rollout import Purifier, RolloutRunner
from cleaner_rl.rollout.graders import Graders
from cleaner_rl.rollout.rewards import TERMS
from cleaner_rl.tasks import ChoiceGrader, Grade, Outcome, RewardScale, Task, WrongGradeError, grade
from cleaner_rl.trajectory import AnyTrajectory, RepairMode, StopReason, first_attempt_tally, residual_tally
from tests.nodes import asynchronous
from tests.rollout.scripted import TASK, ScriptedEngine, call
from tests.rollout.test_grading import finished


def fingerprint(task: Task, text: str, rollout: AnyTrajectory) -> float:
    """Any function of all that a rollout holds."""
    shown = [(turn.text, turn.failed, turn.edit) for turn in rollout.turns]
    return crc32(repr((shown, rollout.success, rollout.info.answer)).encode()) / 2**32


def still_failing(task: Task, text: str, rollout: AnyTrajectory) -> float:
    return -float(residual_tally(rollout).failed)


GRADERS = Graders({"choice": ChoiceGrader(), "mine": fingerprint, "residual": still_failing, **TERMS})
WEIGHTS = {"answer": 1.0, "format": 0.1, "failed_calls": 0.2, "residual": 0.2, "mine": 0.5}
STEPS = st.lists(st.sampled_from(["fine", "error", "errors"]), max_size=5)
ANSWERS = st.sampled_from(["The answer: C", "The answer: B", "I don't know."])


@given(STEPS, ANSWERS)
@settings(deadline=None)
def test_a_repair_never_changes_a_reward(steps: list[str], said: str) -> None:
    replies = [*map(call, steps), said]

    def made(purifier: Purifier | None) -> AnyTrajectory:
        return asyncio.run(finished(ScriptedEngine(replies), purifier, graders=GRADERS, weights=WEIGHTS))

    raw = made(None)
    repaired = made(Purifier(RepairMode.HINDSIGHT, PurifyConfig(scope=PurifyScope.ALL)))
    assert (repaired.reward, repaired.success, repaired.info.terms) == (raw.reward, raw.success, raw.info.terms)
    ahead = made(Purifier())
    for each in (raw, repaired, ahead):
        assert each.info.terms is not None
        failed = first_attempt_tally(each).failed
        assert each.info.terms["failed_calls"] == each.info.terms["residual"] == -failed
        assert each.reward == pytest.approx(sum(WEIGHTS[name] * term for name, term in each.info.terms.items()))


@asynchronous
async def test_a_penalty_for_failed_calls_survives_the_repair() -> None:
    replies = [call("error"), call("errors"), call("fine"), "The answer: C"]
    weights = {"answer": 1.0, "failed_calls": 0.25}
    for mode in RepairMode:
        trajectory = await finished(ScriptedEngine(replies), Purifier(mode), graders=GRADERS, weights=weights)
        assert any(edit.commits for _, edit in trajectory.edits)
        assert residual_tally(trajectory).failed < first_attempt_tally(trajectory).failed
        assert trajectory.reward == 1.0 - 0.25 * first_attempt_tally(trajectory).failed


@asynchronous
async def test_the_answer_alone_is_the_reward_by_default() -> None:
    trajectory = await finished(ScriptedEngine([call("error"), "The answer: B"]), graders=GRADERS)
    assert (trajectory.reward, trajectory.info.terms) == (-1.0, None)


@asynchronous
async def test_success_is_the_answers_whatever_its_weight_is() -> None:
    weights = {"mine": 1.0}
    right = await finished(ScriptedEngine(["The answer: C"]), graders=GRADERS, weights=weights)
    wrong = await finished(ScriptedEngine(["The answer: B"]), graders=GRADERS, weights=weights)
    assert [each.success for each in (right, wrong)] == [True, False]
    assert set(right.info.terms or {}) == {"mine"}
    shaped = replace(wrong, key=replace(wrong.key, rollout=2), reward=9.0)
    assert group_of([right, shaped]).positive == [True, False], "RoC goes by success, not by reward"


@pytest.mark.parametrize(
    ("score", "threshold", "outcome"),
    [(1.0, None, "right"), (0.9, None, "wrong"), (True, None, "right"), (0.5, 0.5, "right"), (0.4, 0.5, "wrong")],
)
def test_a_number_is_a_success_from_the_tasks_threshold_on(score: float, threshold: float, outcome: str) -> None:
    task = replace(TASK, grader="mine", extra={} if threshold is None else {"threshold": threshold})
    judged = asyncio.run(grade(task, "C", {"mine": lambda *_: score}))
    assert (judged.outcome, judged.reward(RewardScale.SIGNED)) == (outcome, score)


def test_a_threshold_decides_about_a_grade_with_a_score() -> None:
    class Partly:
        async def grade(self, task: Task, text: str) -> Grade:
            return Grade(Outcome.WRONG, text, "7 of 10 cases", score=0.7)

    def outcome(**extra: float) -> Outcome:
        return asyncio.run(grade(replace(TASK, extra=extra), "x", {"choice": Partly()})).outcome

    assert [outcome(), outcome(threshold=0.7), outcome(threshold=0.8)] == [Outcome.WRONG, Outcome.RIGHT, Outcome.WRONG]


@pytest.mark.parametrize("wrong", [None, "0.5", float("nan"), [1.0], Grade(Outcome.RIGHT, score=float("inf"))])
@asynchronous
async def test_a_grader_that_returns_the_wrong_thing_ends_the_run_at_its_first_task(wrong: Any) -> None:
    asked = []

    def mine(task: Task, text: str, rollout: AnyTrajectory) -> Any:
        asked.append(task)
        return wrong

    graders = Graders({"choice": ChoiceGrader(), "mine": mine})
    with pytest.raises(WrongGradeError, match=r"'mine' returned .* 'test/1'.*finite number"):
        await finished(ScriptedEngine(["C"]), graders=graders, weights={"answer": 1.0, "mine": 1.0})
    assert len(asked) == 1


@asynchronous
async def test_a_function_may_wait_and_one_that_raises_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.tasks.grading.PAUSE", 0.0)

    async def slow(task: Task, text: str, rollout: AnyTrajectory) -> float:
        await asyncio.sleep(0)
        return 0.5

    def broken(task: Task, text: str, rollout: AnyTrajectory) -> float:
        raise KeyError(text)

    graders = Graders({"choice": ChoiceGrader(), "slow": slow, "broken": broken})
    waited = await finished(ScriptedEngine(["C"]), graders=graders, weights={"answer": 1.0, "slow": 2.0})
    assert waited.reward == 2.0
    fault = await finished(ScriptedEngine(["C"]), graders=graders, weights={"answer": 1.0, "broken": 2.0})
    assert (fault.stop_reason, fault.reward) == (StopReason.FAULT, None)
    assert "'broken' raised KeyError" in fault.info.fault


def test_thinking_that_was_cut_off_is_an_empty_answer_for_a_function() -> None:
    judged = asyncio.run(grade(replace(TASK, grader="length"), "<think>C", {"length": lambda _, text, __: len(text)}))
    assert (judged.outcome, judged.score) == (Outcome.WRONG, 0.0)


def runner(weights: dict[str, float], graders: Graders = GRADERS) -> RolloutRunner[Any]:
    nothing: Any = None
    return RolloutRunner(nothing, nothing, nothing, graders, weights=weights)


def test_weights_that_no_grader_has_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no grader 'formt'.*'answer'.*'format'"):
        runner({"answer": 1.0, "formt": 0.1})
    with pytest.raises(ValueError, match="'format' is nan"):
        runner({"format": float("nan")})


def test_a_function_is_named_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text("def brief(task, text, rollout):\n    return float(len(text) < 9)\n")
    name = f"{file}:brief"
    graders = Graders({})
    assert asyncio.run(grade(TASK, "C", graders, name=name)).score == 1.0
    assert runner({name: 1.0}, graders).weights == {name: 1.0}
    for missing in (f"{file}:long", f"{tmp_path}/none.py:brief"):
        with pytest.raises(ValueError, match=r"can't be loaded"):
            runner({missing: 1.0}, graders)
