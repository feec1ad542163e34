"""Selects the rollouts of a group that are trained on, in one fixed order, with nothing lost on the way.

The order: rollouts that can't be trained on are *absent*, gone before anything is counted → a group left
too small goes back → so does one whose rewards are all equal, tested on the whole oversampled group (DAPO's dynamic
sampling) → GRPO-RoC → advantages on the kept. A batch is made of such groups, whole; groups that are returned are
sampled again. verl's queue does both (docs/methods/grpo-roc.md has what a loop of your own does).

Ranks are the caller's: a group is never split to fit their number. With `RocConfig` every group has exactly `keep`
rows, so check once, when configuring, that wanted groups x keep divides by the number of ranks (and by the
mini-batch). Plain groups differ in size when a rollout is absent: pad such a batch with rows whose loss mask is 0.

Limits: zero variance is tested exactly, and before RoC. With shaped rewards, or a minimum of 0, the kept can still be
equal among themselves; their advantages are then 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from math import fsum, isfinite, nan, sqrt
from operator import not_

from cleaner_rl.resample.quality import Quality, assess
from cleaner_rl.resample.roc import RocConfig, resample
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import AnyTrajectory

DELTA = 1e-6
"""Keeps the division defined where all rewards are equal; verl's value."""


class RefillReason(StrEnum):
    """Says why a group is returned to be sampled again."""

    TOO_SMALL = "too_small"
    """Too few usable rollouts: sample more of the same prompt."""
    ZERO_VARIANCE = "zero_variance"
    """Nothing to prefer: sample another prompt, or this one again later."""


@dataclass(frozen=True, slots=True)
class PlainConfig:
    """Groups without RoC: all usable rollouts are kept."""

    minimum: int = 2
    """Usable rollouts that a group must have; one alone has nothing to be compared with."""

    def __post_init__(self) -> None:
        if self.minimum < 2:
            raise ValueError(f"minimum={self.minimum}: a rollout needs another to be compared with; take 2 or more")


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The rollouts of one prompt, in columns: a step has thousands of them."""

    task: str
    step: int
    rewards: Sequence[float]
    qualities: Sequence[Quality]
    positive: Sequence[bool]
    """Which rollouts solved the task: see `is_positive`."""
    rollouts: Sequence[int]
    """Number of each rollout in its group; it does not depend on the order of the columns."""
    usable: Sequence[bool]
    """False for a rollout that was dropped or ended in a fault; its reward means nothing."""

    def __post_init__(self) -> None:
        columns = (self.rewards, self.qualities, self.positive, self.rollouts, self.usable)
        if len(set(map(len, columns))) != 1:
            raise ValueError(f"the columns of task '{self.task}' differ in length; give each rollout one entry in each")
        if len(set(self.rollouts)) != len(self.rollouts):
            raise ValueError(f"two rollouts of task '{self.task}' have the same number; number them within the group")
        if not all(map(isfinite, compress(self.rewards, self.usable))):
            raise ValueError(f"a usable rollout of task '{self.task}' has no finite reward; grade it, or don't use it")


@dataclass(frozen=True, slots=True)
class Selection:
    """Says what happens to a group. Every index of its columns is in exactly one of kept, dropped and absent."""

    group: RolloutGroup
    kept: tuple[int, ...]
    """Rollouts to train on, ascending; empty if the group is returned."""
    dropped: tuple[int, ...]
    """Usable rollouts that are not kept. A group that is too small can be completed with more rollouts beside these."""
    absent: tuple[int, ...]
    """Rollouts that are not usable; they count in no statistic."""
    refill: RefillReason | None = None
    """Why the group is returned; None if it is trained on."""
    advantages: tuple[float, ...] = ()
    """One for each kept rollout."""


def is_positive(reward: float, success: bool | None = None) -> bool:
    """Return whether a rollout solved its task; if `success` is None, whether its reward is above 0."""
    return reward > 0 if success is None else success


def group_of(
    trajectories: Sequence[AnyTrajectory],
    answers: Sequence[int] | None = None,
    *,
    usable: Sequence[bool] | None = None,
) -> RolloutGroup:
    """Make a group of the graded rollouts of one prompt, repaired or not.

    Args:
        trajectories: The rollouts.
        answers: How many final answers each of them holds; without it, their format counts as clean.
        usable: Which of them can be trained on; without it, those that say so themselves.

    Examples:
        >>> from cleaner_rl.resample import group_of
        >>> from cleaner_rl.trajectory import Key, StopReason, TextSpan, Trajectory
        >>> def rollout(number, reward):
        ...     key = Key("run", 0, "sum", number)
        ...     return Trajectory(TextSpan("1 + 1?"), key=key, reward=reward, stop_reason=StopReason.ANSWERED)
        >>> group = group_of([rollout(0, 1.0), rollout(1, -1.0)])
        >>> group.rewards, group.positive
        ([1.0, -1.0], [True, False])
    """
    keys = {(trajectory.key.task, trajectory.key.step) for trajectory in trajectories}
    if len(keys) != 1:
        raise ValueError(f"a group has one task and one step, not {sorted(keys)}; split the rollouts by both")
    ((task, step),) = keys
    counts = [1] * len(trajectories) if answers is None else answers
    return RolloutGroup(
        task=task,
        step=step,
        rewards=[_reward(trajectory) for trajectory in trajectories],
        qualities=[assess(trajectory, count) for trajectory, count in zip(trajectories, counts, strict=True)],
        positive=[is_positive(_reward(trajectory), trajectory.success) for trajectory in trajectories],
        rollouts=[trajectory.key.rollout for trajectory in trajectories],
        usable=[trajectory.usable for trajectory in trajectories] if usable is None else usable,
    )


def select(
    group: RolloutGroup, config: RocConfig | PlainConfig, run_seed: int, *, dynamic_sampling: bool = True
) -> Selection:
    """Select the rollouts of a group that are trained on, with their advantages; or say why the group is returned.

    Without `dynamic_sampling`, zero-variance groups are kept too; their advantages are 0, apart from rounding.

    Examples:
        >>> from cleaner_rl.resample import PlainConfig, group_of, select
        >>> from cleaner_rl.trajectory import Key, StopReason, TextSpan, Trajectory
        >>> def rollout(number, reward):
        ...     key = Key("run", 0, "sum", number)
        ...     return Trajectory(TextSpan("1 + 1?"), key=key, reward=reward, stop_reason=StopReason.ANSWERED)
        >>> selection = select(group_of([rollout(0, 1.0), rollout(1, -1.0)]), PlainConfig(), run_seed=0)
        >>> selection.kept, [round(advantage, 2) for advantage in selection.advantages]
        ((0, 1), [0.71, -0.71])
        >>> select(group_of([rollout(0, 1.0), rollout(1, 1.0)]), PlainConfig(), run_seed=0).refill
        <RefillReason.ZERO_VARIANCE: 'zero_variance'>
    """
    everyone = range(len(group.usable))
    present = tuple(compress(everyone, group.usable))
    absent = tuple(compress(everyone, map(not_, group.usable)))
    # Size comes first: of two rollouts that agree it is too early to say that all would.
    if len(present) < (config.keep if isinstance(config, RocConfig) else config.minimum):
        return Selection(group, (), present, absent, RefillReason.TOO_SMALL)
    if dynamic_sampling and len(set(compress(group.rewards, group.usable))) == 1:
        return Selection(group, (), present, absent, RefillReason.ZERO_VARIANCE)
    kept = _resampled(group, present, config, run_seed) if isinstance(config, RocConfig) else present
    dropped = tuple(sorted(set(present).difference(kept)))
    return Selection(group, kept, dropped, absent, None, advantages([group.rewards[index] for index in kept]))


def advantages(rewards: Sequence[float], delta: float = DELTA) -> tuple[float, ...]:
    """Return (reward - mean) / (std + delta), with the sample's std (n - 1), as in verl's GRPO (`torch.std`)."""
    if len(rewards) < 2:
        raise ValueError(f"{len(rewards)} rewards can't be compared; a group needs 2 or more")
    # `fsum` is exact, so the order of the rollouts can't show in the last bit.
    mean = fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    scale = sqrt(fsum([each * each for each in centred]) / (len(rewards) - 1)) + delta
    return tuple([each / scale for each in centred])


def _reward(trajectory: AnyTrajectory) -> float:
    return nan if trajectory.reward is None else trajectory.reward


def _resampled(group: RolloutGroup, present: Sequence[int], config: RocConfig, run_seed: int) -> tuple[int, ...]:
    places = resample(
        list(compress(group.positive, group.usable)),
        list(compress(group.qualities, group.usable)),
        list(compress(group.rollouts, group.usable)),
        config,
        derive_seed(run_seed, "roc", group.step, group.task),
    )
    return tuple([present[place] for place in places])
