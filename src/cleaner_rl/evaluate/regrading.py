"""Grades stored rollouts again, because graders change: what was sampled stays, what is said about it is renewed.

Works on the folders of `cleaner eval` and `cleaner rollout`. Their files are replaced whole, with the same rollouts,
and the report of an evaluation is written anew.

Limits: a rollout that has no answer for a grader to read (its engine or tool broke, it was dropped or ran out of wall
time) stays as it is; so does one whose task has changed since, or can't be graded now. Edits stay as they are, also
where only right rollouts were to be purified.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from cleaner_rl import __version__
from cleaner_rl.evaluate.cache import asked
from cleaner_rl.evaluate.grade_changes import GradeChange, Regraded
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.report import write_report
from cleaner_rl.evaluate.results import Evaluation, ResultsError, read_results
from cleaner_rl.evaluate.run import EvalPlan, EvalProgress
from cleaner_rl.purify import PurifyConfig
from cleaner_rl.rollout import Journal, RolloutRunner
from cleaner_rl.tasks import AnyGrader, RewardScale, Task, load_sets
from cleaner_rl.trajectory import AnyTrajectory, Key, StopReason, TokenSpan, Turn

CONCURRENCY = 64
UNREAD = (StopReason.TIME_LIMIT, StopReason.DROPPED)
BROKE = "no complete rollout"
NO_TASK = "not one of the tasks"
CHANGED = "of a task that has changed since"
UNABLE = "the grader had a fault"
END = re.compile(r"<[^<>\s]{1,40}>\Z")
"""The end-of-turn token as text, which is the last thing in a sampled turn that is complete."""


async def regrade(
    folder: Path,
    graders: Mapping[str, AnyGrader],
    *,
    tasks: Sequence[str] = (),
    dry_run: bool = False,
) -> Regraded:
    """Grade the stored rollouts of a run again, and say what changed.

    Args:
        folder: What `cleaner eval` or `cleaner rollout` wrote.
        graders: Graders by name, such as `rollout.standard_graders` returns.
        tasks: Names or files of the run's data sets; default: those that the run itself names.
        dry_run: Write nothing.

    Raises:
        ResultsError: The folder is neither kind of run, or doesn't say which tasks it is of.

    Examples:
        >>> import asyncio, pathlib
        >>> from cleaner_rl.evaluate import regrade
        >>> from cleaner_rl.rollout import standard_graders
        >>> from cleaner_sandbox import open_sandbox
        >>> from cleaner_rl.tasks import MathPool
        >>> async def main() -> None:
        ...     async with open_sandbox() as sandbox:
        ...         with MathPool() as pool:
        ...             found = await regrade(pathlib.Path("evals/mine"), standard_graders(sandbox, pool))
        ...             print(found.counts)
        >>> asyncio.run(main())  # doctest: +SKIP
    """
    if (folder / "results.json").exists():
        return await _evaluation(folder, graders, tasks, dry_run)
    settings = folder / "settings.json"
    if not settings.exists() or not (folder / "trajectories").is_dir():
        raise ResultsError(f"{folder} is no folder of `cleaner eval` or `cleaner rollout`; give one that they wrote")
    chosen = json.loads(settings.read_text(encoding="utf-8"))
    by_id = {
        task.id: task
        for some in _sets(folder, tasks or chosen.get("sets"), chosen.get("seed", 0)).values()
        for task in some
    }
    scale = RewardScale(chosen.get("reward", RewardScale.SIGNED))
    found = Regraded(folder, dry_run)
    with Journal(folder / "trajectories") as journal:
        await _grade_all(journal, by_id, graders, scale, found)
    return found


async def _evaluation(folder: Path, graders: Mapping[str, AnyGrader], tasks: Sequence[str], dry_run: bool) -> Regraded:
    before = read_results(folder)
    plan = _plan(before, _sets(folder, tasks or before.settings.get("tasks"), _whole(before, "seed")))
    found = Regraded(folder, dry_run, before=before)
    progress = EvalProgress()
    wanted = {job.key for job in plan.jobs()}
    with Journal(_store(folder, before), lambda each: each.info.asked == _asked(plan.tasks, each)) as journal:
        graded = await _grade_all(journal, plan.tasks, graders, RewardScale.SIGNED, found)
        for trajectory in journal.stored():
            if trajectory.key in wanted and journal.counts(trajectory) and trajectory.key not in progress:
                progress.add(graded.get(trajectory.key, trajectory))
    settings = {**before.settings, "regraded": f"by cleaner-rl {__version__}"}
    found.after = replace(progress.results(plan, before.model, settings), store=before.store)
    if not dry_run:
        write_report(found.after, folder)
    return found


async def _grade_all(
    journal: Journal, tasks: Mapping[str, Task], graders: Mapping[str, AnyGrader], scale: RewardScale, found: Regraded
) -> dict[Key, AnyTrajectory]:
    """Grade what a journal holds; returned are the rollouts that changed."""
    runner: RolloutRunner[Any] = RolloutRunner(
        cast("Any", StoredTurns()), cast("Any", None), cast("Any", None), graders, scale=scale
    )
    changed: dict[Key, AnyTrajectory] = {}
    verdicts: dict[str, list[tuple[AnyTrajectory, AnyTrajectory]]] = defaultdict(list)

    async def grade(stored: AnyTrajectory) -> AnyTrajectory:
        task = tasks.get(stored.key.task)
        if stored.broken or stored.stop_reason in UNREAD:
            return _left(stored, BROKE)
        if task is None:
            return _left(stored, NO_TASK)
        if not journal.counts(stored):
            return _left(stored, CHANGED)
        bare = replace(stored.info, answer=None, grade="", fault="")
        again = await runner.grade_one(task, replace(cast("Any", stored), reward=None, success=None, info=bare))
        if again.ungraded:
            return _left(stored, UNABLE)
        found.graded += 1
        verdicts[task.id].append((stored, again))
        return again if _said(again) != _said(stored) else stored

    def _left(stored: AnyTrajectory, why: str) -> AnyTrajectory:
        found.skipped[why] += 1
        return stored

    async def change(stored: AnyTrajectory) -> AnyTrajectory:
        again = await grade(stored)
        if again is not stored:
            changed[stored.key] = again
        return stored if found.dry_run else again

    await journal.revise(change, CONCURRENCY)
    for task, pairs in sorted(verdicts.items()):
        changes = [_change(*pair) for pair in pairs if _verdict(pair[0]) != _verdict(pair[1])]
        if changes:
            found.changes += sorted(changes, key=lambda each: (each.key.run, each.key.rollout))
            found.rates[task] = _rate(first for first, _ in pairs), _rate(second for _, second in pairs)
    return changed


class StoredTurns:
    """Replaces the model of a stored rollout: all that a grader needs is the text of a turn."""

    def answer(self, turn: Turn[Any]) -> str:
        """Return the text of a turn without its end-of-turn token."""
        return END.sub("", turn.text, count=1) if isinstance(turn.reasoning, TokenSpan) else turn.text


def _change(before: AnyTrajectory, after: AnyTrajectory) -> GradeChange:
    return GradeChange(after.key, _verdict(before), _verdict(after), after.info.answer, after.info.grade)


def _verdict(trajectory: AnyTrajectory) -> str:
    return {True: "right", False: "wrong", None: "ungraded"}[trajectory.success]


def _said(trajectory: AnyTrajectory) -> tuple[object, ...]:
    """All that grading says about a rollout."""
    info = trajectory.info
    return trajectory.success, trajectory.reward, info.answer, info.grade, info.fault


def _rate(trajectories: Iterable[AnyTrajectory]) -> Rate:
    judged = [each.success for each in trajectories if each.success is not None]
    return Rate(sum(judged), len(judged))


def _plan(before: Evaluation, sets: Mapping[str, Sequence[Task]]) -> EvalPlan:
    missing = [each.name for each in before.sets if each.name not in sets]
    if missing:
        raise ResultsError(
            f"the results are of sets that are not among the tasks: {', '.join(missing)}; name all of them"
        )
    limit = before.settings.get("limit")
    chosen = {each.name: sets[each.name][: limit if isinstance(limit, int) else None] for each in before.sets}
    repairs = tuple(dict.fromkeys(repair for each in before.sets for repair in each.runs))
    config = PurifyConfig(attempts=_whole(before, "attempts"))
    return EvalPlan(
        chosen, _whole(before, "samples"), repairs, _whole(before, "recovery"), config, _whole(before, "seed")
    )


def _whole(before: Evaluation, name: str) -> int:
    value = before.settings.get(name)
    if not isinstance(value, int):
        raise ResultsError(f"the results don't say '{name}', so they were not written by `cleaner eval`")
    return value


def _store(folder: Path, before: Evaluation) -> Path:
    """Where the rollouts of an evaluation are; results of earlier releases don't say so."""
    if before.store:
        return folder / before.store
    found = [each.parent for each in (folder / "trajectories").glob("*/settings.json")]
    if len(found) != 1:
        raise ResultsError(
            f"{folder} doesn't say which of its {len(found)} folders of rollouts the results are of; run `cleaner "
            "eval` again, which samples nothing that is there"
        )
    return found[0]


def _sets(folder: Path, names: object, seed: int) -> dict[str, Sequence[Task]]:
    if not isinstance(names, Sequence) or not names:
        raise ResultsError(f"{folder} doesn't say which tasks it is of; name them with --tasks")
    listed = [name.strip() for each in names for name in str(each).split(",")]
    return {name: each.tasks for name, each in load_sets(listed, seed=seed).items()}


def _asked(tasks: Mapping[str, Task], trajectory: AnyTrajectory) -> str | None:
    task = tasks.get(trajectory.key.task)
    return None if task is None else asked(task)
