"""Rescues a group in which every rollout is wrong: one failed call is repaired, and the rollout goes on from there.

GRPO learns nothing from a group whose rewards are all the same. Where a call failed in such a group, a rescue may give
it a right rollout:

1. The turns of one wrong rollout, drawn by seed, are given up to its first failed call. Their calls run again, which
   restores the state of the tools.
2. The failed call is repaired as by SAAR: the model samples corrections in the context of the error, and the first that
   runs takes its place in a history without the error. Later failures stay.
3. The model goes on from there, with the turns that are left.
4. The rollout joins its group if its answer is right. Otherwise it is left out.

The given turns and all that follows the repair are on-policy. The repaired call is not: it is re-scored, as in SAAR.

Limits: one try per group. If the given calls give something else when they run again, there is no rescue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

from cleaner_rl.purify import OnUnrepaired, PurifyConfig, without_hindsight
from cleaner_rl.rollout.prefilled import first_failure, shown
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.trajectory import RepairMode, S, Trajectory, Turn, derive_seed


@dataclass(frozen=True, slots=True)
class RescueConfig:
    """How much a rescue may try."""

    attempts: int = 3
    """Corrections of the failed call that are sampled at most."""
    share: float = 0.2
    """Tokens that a rescue may sample, as a share of those that its group sampled: half of them for corrections, half
    to go on."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.share <= 0:
            raise ValueError(f"a rescue needs at least one attempt and some tokens, not {self}")


@dataclass(frozen=True, slots=True)
class RescueStart(Generic[S]):
    """Where a rescue begins."""

    of: int
    """The number of the wrong rollout."""
    turns: tuple[Turn[S], ...]
    """Its turns up to the first one that failed, and this one."""


def rescue_start(group: Sequence[Trajectory[S]], seed: int) -> RescueStart[S] | None:
    """Return where to begin a rescue of a group; None if a rollout is right or none has a failed call."""
    usable = [each for each in group if each.usable and each.reward is not None]
    if any(each.success for each in usable):
        return None
    raw = [(each.key.rollout, without_hindsight(each)) for each in usable]
    failed = [(number, each, turn) for number, each in raw if (turn := first_failure(each)) is not None]
    if not failed:
        return None
    key = usable[0].key
    number, chosen, turn = failed[derive_seed(seed, key.task, key.step, "rescue") % len(failed)]
    return RescueStart(number, chosen.turns[: turn + 1])


def rescue_purifier(config: RescueConfig, purifier: Purifier | None) -> Purifier:
    """Return how the failed call is repaired: as the run repairs, with the attempts of the rescue."""
    base = Purifier() if purifier is None else purifier
    repair = PurifyConfig(config.attempts, base.config.repair, on_unrepaired=OnUnrepaired.DROP)
    return replace(base, mode=RepairMode.SAAR, config=repair, fallback=None)


def rescue_budget(
    config: RescueConfig, budget: RolloutBudget, group: Sequence[Trajectory[S]], start: RescueStart[S], unit: int
) -> RolloutBudget:
    """Return what the rescue may use; `unit` is the model's."""
    half = int(config.share / 2 * sum(each.info.sampled or 0 for each in group)) // unit
    given = sum(map(len, start.turns)) // unit
    return replace(budget, tokens=min(budget.tokens, given + half), lookahead=min(budget.lookahead, half))


def is_rescue(made: Trajectory[S], start: RescueStart[S]) -> bool:
    """Return whether a rollout began as it should: with the same results up to the failed turn, which was repaired."""
    *before, failed = start.turns
    if len(made.turns) < len(start.turns) or shown(made.turns[: len(before)]) != shown(tuple(before)):
        return False
    edit = made.turns[len(before)].edit
    return edit is not None and edit.commits and shown(edit.original[:1]) == shown((failed,))


def with_start(made: Trajectory[S], start: RescueStart[S]) -> Trajectory[S]:
    """Return a rescue with where it began, and without the given turns in the number of sampled tokens."""
    spans = [span for turn in start.turns for span in (turn.reasoning, turn.action) if span is not None]
    sampled = None if made.info.sampled is None else made.info.sampled - sum(map(len, spans))
    rescued = {"of": start.of, "turn": len(start.turns) - 1}
    return replace(made, info=replace(made.info, sampled=sampled, rescued=rescued))
