"""From groups to a batch, in one fixed order, with nothing lost on the way.

`select`, for a group: rollouts that can't be learnt from are *absent*, gone before anything is counted → a group left
too small goes back → so does one whose rewards are all equal, tested on the whole oversampled group (DAPO's dynamic
sampling) → GRPO-RoC → advantages on the kept. `fill_batch`, for a step: whole groups up to the wanted number, the
others carried over, and the list of what to sample again and why. It is for a training loop of one's own
(docs/methods/grpo-roc.md); on verl, its queue does as much.

Ranks are the caller's: a group is never split to fit their number. With `RocPolicy` every group has exactly `keep`
rows, so check once, when configuring, that wanted groups x keep divides by the number of ranks (and by the
mini-batch). Plain groups differ in size when a rollout is absent: pad such a batch with rows whose loss mask is 0.

Limits: equal rewards are tested exactly, and before RoC. With shaped rewards, or a minimum of 0, the kept can still be
equal among themselves; their advantages are then 0. A carried group is as old as the step that sampled it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from math import fsum, isfinite, nan, sqrt
from operator import not_

from cleaner_rl.resample.quality import Quality, assess
from cleaner_rl.resample.roc import RocPolicy, resample
from cleaner_rl.trajectory import AnyTrajectory, derive_seed

DELTA = 1e-6
"""Keeps the division defined where all rewards are equal; verl's value."""


class RefillReason(StrEnum):
    """Why a group goes back."""

    TOO_SMALL = "too_small"
    """Too few usable rollouts: sample more of the same prompt."""
    EQUAL_REWARDS = "equal_rewards"
    """Nothing to prefer: sample another prompt, or this one again later."""


@dataclass(frozen=True, slots=True)
class PlainPolicy:
    """Groups without RoC: all usable rollouts are kept."""

    minimum: int = 2
    """Usable rollouts that a group must have; one alone has nothing to be compared with."""

    def __post_init__(self) -> None:
        if self.minimum < 2:
            raise ValueError(f"minimum={self.minimum}: a rollout needs another to be compared with; take 2 or more")


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one prompt, in columns: a step has thousands of them."""

    task: str
    step: int
    rewards: Sequence[float]
    qualities: Sequence[Quality]
    positive: Sequence[bool]
    """Which solved the task: see `is_positive`."""
    rollouts: Sequence[int]
    """Their numbers in the group, which stay theirs wherever they stand in the columns."""
    usable: Sequence[bool]
    """False for a fault's or a dropped rollout, whose reward then means nothing."""

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
    """What becomes of a group. Every index of its columns is in exactly one of kept, dropped and absent."""

    group: Group
    kept: tuple[int, ...]
    """To train on, ascending; empty if the group goes back."""
    dropped: tuple[int, ...]
    """Usable, but not kept. A group that is too small can be completed with more rollouts beside these."""
    absent: tuple[int, ...]
    """Not usable: in no statistic."""
    refill: RefillReason | None = None
    """Why the group goes back; None if it is trained on."""
    advantages: tuple[float, ...] = ()
    """One for each of the kept."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step trains on, and what is left to do."""

    wanted: int
    taken: tuple[Selection, ...]
    carried: tuple[Selection, ...]
    """More than wanted: put them in front of the next step's."""
    refill: tuple[Selection, ...]
    """To be sampled again, each with its reason."""

    @property
    def missing(self) -> int:
        """Groups still to be sampled before the step can run."""
        return self.wanted - len(self.taken)


def is_positive(reward: float, success: bool | None = None) -> bool:
    """Solved; without a word on that, a reward above 0, which is right for {0, 1} and for {-1, 1}."""
    return reward > 0 if success is None else success


def group_of(trajectories: Sequence[AnyTrajectory], answers: Sequence[int] | None = None) -> Group:
    """The graded rollouts of one prompt, repaired or not, as a group.

    `answers` says how many final answers each of them holds; without it, their format counts as clean.
    """
    keys = {(trajectory.key.task, trajectory.key.step) for trajectory in trajectories}
    if len(keys) != 1:
        raise ValueError(f"a group has one task and one step, not {sorted(keys)}; split the rollouts by both")
    ((task, step),) = keys
    counts = [1] * len(trajectories) if answers is None else answers
    return Group(
        task=task,
        step=step,
        rewards=[_reward(trajectory) for trajectory in trajectories],
        qualities=[assess(trajectory, count) for trajectory, count in zip(trajectories, counts, strict=True)],
        positive=[is_positive(_reward(trajectory), trajectory.success) for trajectory in trajectories],
        rollouts=[trajectory.key.rollout for trajectory in trajectories],
        usable=[trajectory.usable for trajectory in trajectories],
    )


def select(group: Group, policy: RocPolicy | PlainPolicy, run_seed: int, *, dynamic_sampling: bool = True) -> Selection:
    """Which rollouts of a group are trained on, and with which advantages; or why the group goes back.

    Without `dynamic_sampling`, groups of equal rewards are kept too; but for rounding, their advantages are 0.
    """
    everyone = range(len(group.usable))
    present = tuple(compress(everyone, group.usable))
    absent = tuple(compress(everyone, map(not_, group.usable)))
    # Size comes first: of two rollouts that agree it is too early to say that all would.
    if len(present) < (policy.keep if isinstance(policy, RocPolicy) else policy.minimum):
        return Selection(group, (), present, absent, RefillReason.TOO_SMALL)
    if dynamic_sampling and len(set(compress(group.rewards, group.usable))) == 1:
        return Selection(group, (), present, absent, RefillReason.EQUAL_REWARDS)
    kept = _resampled(group, present, policy, run_seed) if isinstance(policy, RocPolicy) else present
    dropped = tuple(sorted(set(present).difference(kept)))
    return Selection(group, kept, dropped, absent, None, advantages([group.rewards[index] for index in kept]))


def advantages(rewards: Sequence[float], delta: float = DELTA) -> tuple[float, ...]:
    """(reward - mean) / (std + delta), with the sample's std (n - 1), as verl's GRPO has it (`torch.std`)."""
    if len(rewards) < 2:
        raise ValueError(f"{len(rewards)} rewards can't be compared; a group needs 2 or more")
    # `fsum` is exact, so the order of the rollouts can't show in the last bit.
    mean = fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    scale = sqrt(fsum([each * each for each in centred]) / (len(rewards) - 1)) + delta
    return tuple([each / scale for each in centred])


def fill_batch(selections: Iterable[Selection], wanted: int) -> Batch:
    """The first `wanted` groups that can be trained on, whole; the rest carried over or handed back, in order."""
    if wanted < 1:
        raise ValueError(f"wanted={wanted}: a batch holds 1 group or more")
    ready: list[Selection] = []
    refill: list[Selection] = []
    for selection in selections:
        (ready if selection.refill is None else refill).append(selection)
    return Batch(wanted, tuple(ready[:wanted]), tuple(ready[wanted:]), tuple(refill))


def _reward(trajectory: AnyTrajectory) -> float:
    return nan if trajectory.reward is None else trajectory.reward


def _resampled(group: Group, present: Sequence[int], policy: RocPolicy, run_seed: int) -> tuple[int, ...]:
    places = resample(
        list(compress(group.positive, group.usable)),
        list(compress(group.qualities, group.usable)),
        list(compress(group.rollouts, group.usable)),
        policy,
        derive_seed(run_seed, "roc", group.step, group.task),
    )
    return tuple([present[place] for place in places])
