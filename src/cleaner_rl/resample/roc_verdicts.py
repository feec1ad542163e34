"""Why each rollout of a group was kept or not, in words for a person, to travel with it (`info.verdict`).

Limits: it tells what `select` decided, and decides nothing. Among draws there is no better reason than the draw.
"""

from __future__ import annotations

from typing import TypedDict

from cleaner_rl.resample.groups import PlainConfig, RefillReason, Selection
from cleaner_rl.resample.quality import penalties
from cleaner_rl.resample.roc import PositiveSelection, RocConfig

REFILL_MESSAGES = {
    RefillReason.TOO_SMALL: "the group was refilled: too few of its rollouts are usable",
    RefillReason.ZERO_VARIANCE: "the group was refilled: all its rewards are equal",
}
ABSENT = "not usable: a fault, or dropped"
ALL_KEPT = "all usable rollouts are kept"


class RocVerdict(TypedDict):
    """Says what happened to one rollout and why; JSON values only."""

    kept: bool
    why: str
    penalty: float | None
    """Penalty by which successes were compared, lower is cleaner; None for all others."""
    advantage: float | None


def verdicts(selection: Selection, config: RocConfig | PlainConfig) -> tuple[RocVerdict, ...]:
    """Return one verdict per rollout, in the order of the group's columns."""
    group = selection.group
    advantage = dict(zip(selection.kept, selection.advantages, strict=True)) if selection.advantages else {}
    penalty: dict[int, float] = {}
    if isinstance(config, RocConfig):
        successes = [index for index in (*selection.kept, *selection.dropped) if group.positive[index]]
        ranked = penalties([group.qualities[index] for index in successes], config.quality_of)
        penalty = {index: total for index, (total, _) in zip(successes, ranked, strict=True)}
    return tuple(
        RocVerdict(
            kept=index in selection.kept,
            why=_why(index, selection, config),
            penalty=penalty.get(index),
            advantage=advantage.get(index),
        )
        for index in range(len(group.rollouts))
    )


def _why(index: int, selection: Selection, config: RocConfig | PlainConfig) -> str:
    if index in selection.absent:
        return ABSENT
    if selection.refill is not None:
        return REFILL_MESSAGES[selection.refill]
    if isinstance(config, PlainConfig):
        return ALL_KEPT
    positive = selection.group.positive
    kept = sum(positive[each] == positive[index] for each in selection.kept)
    side = kept + sum(positive[each] == positive[index] for each in selection.dropped)
    is_kept = index in selection.kept
    if not positive[index]:
        return f"a failure, {'drawn' if is_kept else 'not drawn'}: {kept} of {side} are kept, at random"
    if config.positives is PositiveSelection.WEIGHTED:
        return f"a success, {'drawn' if is_kept else 'not drawn'}: {kept} of {side} are kept, cleaner ones likelier"
    return f"a success, {'among' if is_kept else 'not among'} the {kept} cleanest of {side}"
