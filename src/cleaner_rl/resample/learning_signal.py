"""What the groups of a step can teach about the first call.

A zero-variance group has no gradient. In the others, right rollouts are reinforced and wrong ones suppressed. So a
first call that works is reinforced as far as right rollouts begin with one more often than wrong rollouts do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleaner_rl.trajectory import AnyTrajectory


@dataclass(frozen=True, slots=True)
class LearningSignal:
    """Shares over the groups of a step, as they are trained on; NaN where there is nothing to count."""

    zero_variance: float
    """Groups in which all rollouts are right, or all are wrong."""
    works_if_right: float
    """In the other groups: right rollouts whose first turn has no failed call."""
    works_if_wrong: float
    """In the other groups: wrong rollouts whose first turn has no failed call."""

    @property
    def first_call(self) -> float:
        """Return how much a working first call is reinforced: 0 not at all, below 0 it is suppressed."""
        return (1 - self.zero_variance) * (self.works_if_right - self.works_if_wrong)


def learning_signal(trajectories: Iterable[AnyTrajectory]) -> LearningSignal:
    """Return what the groups of one step can teach.

    Examples:
        >>> from cleaner_rl.resample import learning_signal
        >>> from cleaner_rl.trajectory import Key, TextSpan, Trajectory, Turn
        >>> def rollout(task, success):
        ...     return Trajectory(TextSpan("?"), (Turn(TextSpan("2")),), Key(task=task), success=success)
        >>> signal = learning_signal([rollout("a", True), rollout("a", False), rollout("b", True)])
        >>> signal.zero_variance, signal.works_if_right, signal.works_if_wrong, signal.first_call
        (0.5, 1.0, 1.0, 0.0)
    """
    groups: dict[str, list[AnyTrajectory]] = defaultdict(list)
    for each in trajectories:
        if each.usable and each.success is not None:
            groups[each.key.task].append(each)
    mixed = [group for group in groups.values() if len({each.success for each in group}) > 1]
    works = {
        success: [float(not each.turns[0].failed) for group in mixed for each in group if each.success is success]
        for success in (True, False)
    }
    return LearningSignal(1 - _share(len(mixed), len(groups)), _mean(works[True]), _mean(works[False]))


def _mean(values: Sequence[float]) -> float:
    return _share(sum(values), len(values))


def _share(part: float, whole: int) -> float:
    return part / whole if whole else float("nan")
