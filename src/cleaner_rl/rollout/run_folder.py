"""Rollouts of many tasks into a folder, which can be killed at any moment and gone on with.

OUT/settings.json    what the rollouts depend on
OUT/trajectories     the store, written seconds after each rollout finishes
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cleaner_rl.rollout.journal import Journal
from cleaner_rl.rollout.model import TokenModel
from cleaner_rl.rollout.runner import RolloutRunner, finished
from cleaner_rl.tasks import Task, check_gradable
from cleaner_rl.trajectory import AnyTrajectory, Key, RepairKind, first_attempt_tally, residual_tally


@dataclass(slots=True)
class RolloutSummary:
    """Counts over the rollouts of a folder; `add` takes one more."""

    rollouts: int = 0
    new: int = 0
    """Rollouts of this call; the others were there before."""
    graded: int = 0
    right: int = 0
    calls: int = 0
    failed_calls: int = 0
    """Failed calls that are left after repair."""
    failed_first: int = 0
    """Failed calls as they were sampled, before repair."""
    sampled: int = 0
    """Tokens that the model sampled, in the trajectories after repairs."""
    lookahead: int = 0
    new_tokens: int = 0
    seconds: float = 0.0
    stop_reasons: Counter[str] = field(default_factory=Counter)
    edits: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, trajectory: AnyTrajectory, *, new: bool) -> None:
        """Count one more finished rollout; `new`: whether this call finished it."""
        self.rollouts += 1
        self.stop_reasons[str(trajectory.stop_reason)] += 1
        if trajectory.info.fault or trajectory.broken:
            self.faults[trajectory.info.fault] += 1
        ahead = trajectory.info.lookahead or 0
        sampled = sum(len(placed.span) for placed in trajectory.placed() if placed.owner.sampled)
        self.sampled += sampled
        self.lookahead += ahead
        residual = residual_tally(trajectory)
        self.failed_first += first_attempt_tally(trajectory).failed
        self.failed_calls += residual.failed
        self.calls += residual.calls
        self.edits.update(str(edit.kind) for _, edit in trajectory.edits)
        if trajectory.success is not None:
            self.graded += 1
            self.right += trajectory.success
        if new:
            self.new += 1
            self.new_tokens += sampled + ahead

    @property
    def only_faults(self) -> str:
        """Return the most frequent fault if every rollout had one; else an empty text."""
        return self.faults.most_common(1)[0][0] if 0 < self.rollouts == self.faults.total() else ""

    def to_json(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        each = max(self.rollouts, 1)
        return {
            "rollouts": self.rollouts,
            "done_now": self.new,
            "graded": self.graded,
            "accuracy": self.right / self.graded if self.graded else None,
            "stop_reasons": dict(self.stop_reasons),
            "faults": dict(self.faults),
            "calls": self.calls,
            "errors_per_trajectory": self.failed_calls / each if self.rollouts else None,
            "first_attempt_errors_per_trajectory": self.failed_first / each if self.rollouts else None,
            "grafts": self.edits[RepairKind.GRAFT],
            "replacements": self.edits[RepairKind.REPLACE],
            "unrepaired": self.edits[RepairKind.NONE],
            "sampled_tokens": self.sampled,
            "lookahead_tokens": self.lookahead,
            "seconds": round(self.seconds, 3),
            "tokens_per_second": self.new_tokens / self.seconds if self.seconds else None,
        }


async def collect(
    runner: RolloutRunner[Any],
    tasks: Iterable[Task],
    out: Path,
    *,
    samples: int = 1,
    run: str = "rollout",
    step: int = 0,
    settings: Mapping[str, object] | None = None,
    progress: Callable[[RolloutSummary], None] = lambda _: None,
) -> RolloutSummary:
    """Run each task `samples` times, and keep the trajectories in `out`.

    A folder that was begun before is resumed: no rollout is lost, and none that is complete is sampled again. Rollouts
    whose grader had a fault are graded again; those whose engine or tool broke are sampled again.

    Args:
        runner: What runs the rollouts.
        tasks: What to run.
        out: The folder; it is made if it isn't there.
        samples: Rollouts of each task.
        run: Name of the run in the store.
        step: Training step of the model in the store.
        settings: What the rollouts depend on; a folder that was begun with others is refused. A setting that the
            folder doesn't name is taken to be as it is now.
        progress: Called with the counts so far, at the start and after each rollout.

    Raises:
        ValueError: The folder was begun with other settings; the message names them.
        UngradableError: Some tasks can't be graded; nothing was sampled.

    Examples:
        >>> import asyncio, pathlib
        >>> from cleaner_rl.rollout import Connection, collect, open_runner
        >>> from cleaner_sandbox import open_sandbox
        >>> from cleaner_rl.tasks import Message, Task
        >>> async def main() -> None:
        ...     model = Connection(("http://127.0.0.1:8000",), "Qwen/Qwen3-4B")
        ...     task = Task("sum", (Message("user", "What is 1 + 1?"),), grader="math", truth="2")
        ...     async with open_sandbox() as sandbox, open_runner(model, "stateless", sandbox) as runner:
        ...         summary = await collect(runner, [task], pathlib.Path("runs/sum"), samples=8)
        ...         print(summary.rollouts, summary.to_json()["accuracy"])
        >>> asyncio.run(main())  # doctest: +SKIP
    """
    tasks = list(tasks)
    check_gradable(tasks, runner.graders)
    begin(out, settings or {})
    if isinstance(runner.model, TokenModel):
        runner.model.chat.save_tokenizer(out)
    jobs = [(task, Key(run, step, task.id, number)) for task in tasks for number in range(samples)]
    wanted = {key: task for task, key in jobs}
    summary = RolloutSummary()
    begun = time.monotonic()
    with Journal(out / "trajectories") as journal:
        await journal.resume(
            wanted, lambda trajectory: runner.grade_one(wanted[trajectory.key], trajectory), runner.concurrency
        )
        for trajectory in journal.stored():
            if trajectory.key in wanted:
                summary.add(trajectory, new=False)
        progress(summary)

        def count(trajectory: AnyTrajectory) -> None:
            summary.add(trajectory, new=True)
            summary.seconds = time.monotonic() - begun
            progress(summary)

        left = [job for job in jobs if job[1] not in journal.done]
        await journal.keep(finished(left, runner.run_one, runner.concurrency), count)
    summary.seconds = time.monotonic() - begun
    return summary


def begin(out: Path, settings: Mapping[str, object]) -> None:
    """Write down the settings that a folder's results depend on; raise an error if it was begun with other settings."""
    file = out / "settings.json"
    now = json.loads(json.dumps(settings, default=str))
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".settings.{os.getpid()}")
        unfinished.write_text(json.dumps(now, indent=1) + "\n")
        os.replace(unfinished, file)
        return
    before = json.loads(file.read_text())
    changed = sorted(name for name in now if name in before and before[name] != now[name])
    if changed:
        listed = ", ".join(f"{name} was {before[name]}, is {now[name]}" for name in changed)
        raise ValueError(f"{out} was begun with other settings: {listed}; choose another folder, or the same settings")
