"""What `cleaner rollout` shows while it runs, and says at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from cleaner_rl.trajectory import AnyTrajectory, Ending, Granularity, first_attempt_tally, residual_tally


class Watch:
    """Counts rollouts as they finish; a context manager with a bar on a terminal."""

    def __init__(self, length: int, before: Iterable[AnyTrajectory]) -> None:
        """`before`: rollouts of an earlier start of the same run."""
        self._endings: Counter[str] = Counter()
        self._edits: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._rollouts = self._tokens = self._new_tokens = self._lookahead = self._new = 0
        self._first = self._residual = self._calls = 0
        self._right = self._graded = 0
        self._bar: Any = click.progressbar(
            length=length,
            label="rollouts",
            file=sys.stderr,
            hidden=not sys.stderr.isatty(),
            item_show_func=lambda _: self._line(),
        )
        for trajectory in before:
            self._count(trajectory)
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.__enter__()
        self._bar.update(self._rollouts)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds = time.monotonic() - self._begun
        self._bar.__exit__(kind, error, trace)

    def add(self, trajectory: AnyTrajectory) -> None:
        """Count one that just finished."""
        self._new += 1
        self._new_tokens += self._count(trajectory)
        self._bar.update(1, current_item=trajectory)

    def _count(self, trajectory: AnyTrajectory) -> int:
        self._rollouts += 1
        self._endings[str(trajectory.ending)] += 1
        if trajectory.ending is Ending.FAULT:
            self._faults[str(trajectory.extra.get("fault"))] += 1
        lookahead = trajectory.extra.get("lookahead")
        ahead = lookahead if isinstance(lookahead, int) else 0
        sampled = sum(len(placed.span) for placed in trajectory.placed() if placed.owner.sampled)
        self._tokens += sampled
        self._lookahead += ahead
        first, residual = first_attempt_tally(trajectory), residual_tally(trajectory)
        self._first += first.failed
        self._residual += residual.failed
        self._calls += residual.calls
        for _, edit in trajectory.edits:
            self._edits[str(edit.granularity)] += 1
        if trajectory.success is not None:
            self._graded += 1
            self._right += trajectory.success
        return sampled + ahead

    def _line(self) -> str:
        seconds = max(time.monotonic() - self._begun, 1e-9)
        errors = self._residual / max(self._rollouts, 1)
        return f"{self._new_tokens / seconds:,.0f} tokens/s, {errors:.2f} errors each, {self._repairs} repairs"

    @property
    def all_faults(self) -> str:
        """The most frequent reason, if nothing else came of it all; else empty."""
        return self._faults.most_common(1)[0][0] if 0 < self._rollouts == self._endings[Ending.FAULT] else ""

    @property
    def _repairs(self) -> int:
        return self._edits[Granularity.GRAFT] + self._edits[Granularity.REPLACE]

    def summary(self) -> dict[str, Any]:
        """All of it, for machines."""
        return {
            "rollouts": self._rollouts,
            "done_now": self._new,
            "graded": self._graded,
            "accuracy": self._right / self._graded if self._graded else None,
            "endings": dict(self._endings),
            "faults": dict(self._faults),
            "calls": self._calls,
            "errors_per_trajectory": self._residual / self._rollouts if self._rollouts else None,
            "first_attempt_errors_per_trajectory": self._first / self._rollouts if self._rollouts else None,
            "grafts": self._edits[Granularity.GRAFT],
            "replacements": self._edits[Granularity.REPLACE],
            "unrepaired": self._edits[Granularity.NONE],
            "sampled_tokens": self._tokens,
            "lookahead_tokens": self._lookahead,
            "seconds": round(self._seconds, 3),
            "tokens_per_second": self._new_tokens / self._seconds if self._seconds else None,
        }

    def table(self, output: Path) -> str:
        """All of it, for people."""
        said = self.summary()
        accuracy = "-" if said["accuracy"] is None else f"{said['accuracy']:.3f} of {self._graded} graded"
        endings = ", ".join(f"{number} {name}" for name, number in sorted(self._endings.items())) or "none"
        lines = [
            f"rollouts     {self._rollouts} ({self._new} now): {endings}",
            f"accuracy     {accuracy}",
            f"errors       {said['errors_per_trajectory'] or 0:.3f} a trajectory "
            f"({said['first_attempt_errors_per_trajectory'] or 0:.3f} before repair), {self._calls} calls",
            f"repairs      {self._edits[Granularity.GRAFT]} grafts, {self._edits[Granularity.REPLACE]} replacements, "
            f"{self._edits[Granularity.NONE]} failures that no attempt mended",
            f"speed        {said['tokens_per_second'] or 0:,.0f} tokens/s over {self._seconds:.1f} s",
            f"store        {output / 'trajectories'}",
        ]
        lines += [f"fault        {number} × {reason}" for reason, number in self._faults.most_common(5)]
        return "\n".join(lines)
