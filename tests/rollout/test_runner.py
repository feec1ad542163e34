"""What a runner, and a folder that is resumed, do about faults: what is complete is never sampled again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner_rl.rollout import EngineFaultError, RolloutSummary, collect
from cleaner_rl.tasks import ChoiceGrader, Grade, Grader, Outcome, Task, UngradableError
from cleaner_rl.trajectory import AnyTrajectory, Key, StopReason
from cleaner_rl.trajectory.store import read
from tests.evaluate.standins import RIGHT, WRONG, RuleEngine, runner, tasks


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.rollout.runner.PAUSE", 0.0)
    monkeypatch.setattr("cleaner_rl.tasks.grading.PAUSE", 0.0)


class FailsAtFirst:
    """A grader whose process dies some times; then it grades."""

    def __init__(self, times: int) -> None:
        self.left, self.texts = times, list[str]()

    async def grade(self, task: Task, text: str) -> Grade:
        self.texts.append(text)
        self.left -= 1
        if self.left >= 0:
            return Grade(Outcome.FAULT, None, "the verifier died")
        return await ChoiceGrader().grade(task, text)


def one(engine: RuleEngine, grader: Grader) -> AnyTrajectory:
    async def go() -> AnyTrajectory:
        async with runner(engine, {"choice": grader}) as made:
            (task,) = tasks(1)
            return await made.run_one(task, Key("r", 0, task.id, 0))

    return asyncio.run(go())


def test_a_grader_that_fails_is_asked_again_about_the_same_text() -> None:
    engine, grader = RuleEngine(lambda context, seed: RIGHT), FailsAtFirst(2)
    trajectory = one(engine, grader)
    assert (trajectory.success, trajectory.info.fault) == (True, "")
    assert len(engine.requests) == 1
    assert grader.texts == [RIGHT] * 3


def test_a_complete_rollout_whose_grader_keeps_failing_is_kept_as_it_is() -> None:
    engine, grader = RuleEngine(lambda context, seed: RIGHT), FailsAtFirst(99)
    trajectory = one(engine, grader)
    assert len(engine.requests) == 1
    assert grader.texts == [RIGHT] * 3, "three times in all"
    assert (trajectory.stop_reason, trajectory.info.fault) == (StopReason.ANSWERED, "grader: the verifier died")
    assert (trajectory.success, trajectory.reward) == (None, None)
    assert trajectory.ungraded
    assert not trajectory.usable, "nothing is learnt from it"


def test_tasks_that_no_grader_can_grade_are_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    engine = RuleEngine(lambda context, seed: RIGHT)
    (task,) = tasks(1)

    async def go() -> None:
        async with runner(engine) as made:
            with pytest.raises(UngradableError, match="no grader 'choise'"):
                await made.run_group(replace(task, grader="choise"))
            with pytest.raises(UngradableError, match="set/0"):
                await collect(made, [replace(task, truth="?")], tmp_path / "run")

    asyncio.run(go())
    assert not engine.requests
    assert not (tmp_path / "run").exists()


def collected(folder: Path, engine: RuleEngine, grader: Grader) -> RolloutSummary:
    async def go() -> RolloutSummary:
        async with runner(engine, {"choice": grader}) as made:
            return await collect(made, tasks(3), folder)

    return asyncio.run(go())


def test_a_resumed_folder_grades_what_is_complete_and_samples_what_broke(tmp_path: Path) -> None:
    def breaks(context: str, seed: int) -> str:
        if "How many are 1 and" in context:
            raise EngineFaultError("the engine is gone")
        return RIGHT

    first = collected(tmp_path, RuleEngine(breaks), FailsAtFirst(99))
    assert first.faults == {"grader: the verifier died": 2, "the engine is gone": 1}
    assert first.only_faults
    engine = RuleEngine(lambda context, seed: WRONG)
    second = collected(tmp_path, engine, ChoiceGrader())
    assert len(engine.requests) == 1, "only the rollout whose engine broke"
    assert (second.rollouts, second.new, second.right, second.graded) == (3, 1, 2, 3)
    stored = list(read(tmp_path / "trajectories"))
    assert len(stored) == len({each.key for each in stored}) == 3, "the broken one is gone"
    assert not second.faults
