"""Why each rollout of a group was kept or not, in words for a person, to travel with it (`extra["roc"]`).

Limits: it tells what `select` decided, and decides nothing. Among draws there is no better reason than the draw.
"""

from __future__ import annotations

from typing import TypedDict

from cleaner_rl.resample.groups import PlainPolicy, RefillReason, Selection
from cleaner_rl.resample.quality import penalties
from cleaner_rl.resample.roc import Positives, RocPolicy

WENT_BACK = {
    RefillReason.TOO_SMALL: "the group went back: too few of its rollouts are usable",
    RefillReason.EQUAL_REWARDS: "the group went back: all its rewards are equal",
}
ABSENT = "not usable: a fault, or dropped"
ALL_KEPT = "all usable rollouts are kept"


class RocVerdict(TypedDict):
    """What became of one rollout; JSON values only."""

    kept: bool
    why: str
    penalty: float | None
    """What successes were compared by, less is cleaner; None for all others."""
    advantage: float | None


def verdicts(selection: Selection, policy: RocPolicy | PlainPolicy) -> tuple[RocVerdict, ...]:
    """One for each rollout, in the order of the group's columns."""
    group = selection.group
    advantage = dict(zip(selection.kept, selection.advantages, strict=True)) if selection.advantages else {}
    penalty: dict[int, float] = {}
    if isinstance(policy, RocPolicy):
        successes = [index for index in (*selection.kept, *selection.dropped) if group.positive[index]]
        ranked = penalties([group.qualities[index] for index in successes], policy.quality_of)
        penalty = {index: total for index, (total, _) in zip(successes, ranked, strict=True)}
    return tuple(
        RocVerdict(
            kept=index in selection.kept,
            why=_why(index, selection, policy),
            penalty=penalty.get(index),
            advantage=advantage.get(index),
        )
        for index in range(len(group.rollouts))
    )


def _why(index: int, selection: Selection, policy: RocPolicy | PlainPolicy) -> str:
    if index in selection.absent:
        return ABSENT
    if selection.refill is not None:
        return WENT_BACK[selection.refill]
    if isinstance(policy, PlainPolicy):
        return ALL_KEPT
    positive = selection.group.positive
    kept = sum(positive[each] == positive[index] for each in selection.kept)
    side = kept + sum(positive[each] == positive[index] for each in selection.dropped)
    is_kept = index in selection.kept
    if not positive[index]:
        return f"a failure, {'drawn' if is_kept else 'not drawn'}: {kept} of {side} are kept, at random"
    if policy.positives is Positives.WEIGHTED:
        return f"a success, {'drawn' if is_kept else 'not drawn'}: {kept} of {side} are kept, cleaner ones likelier"
    return f"a success, {'among' if is_kept else 'not among'} the {kept} cleanest of {side}"
