"""Rescues a group in which every rollout is wrong: one failed call is repaired, and the rollout goes on from there.

GRPO learns nothing from a group whose rewards are all the same. Where a call failed in such a group, a rescue may give
it a right rollout:

1. The turns of one wrong rollout, drawn by seed, are given up to its first failed call. Their calls run again, which
   restores the state of the tools.
2. The failed call is repaired as by SAAR: the model samples corrections in the context of the error, and the first that
   runs takes its place in a history without the error. Later failures stay.
3. The model goes on from there, with the turns that are left.
4. The rollout joins its group if its answer is right. Otherwise it is left out.

Only the repaired turn is off-policy. It is re-scored, as in SAAR.

Limits: one try per group. If a given call is answered in other words when it runs again, the rescue ends: also if it is
an address in memory or a time that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

from cleaner_rl.purify import Draft, OnUnrepaired, PurifyConfig, SampleRequest, without_hindsight
from cleaner_rl.rollout.loop import sampled_length
from cleaner_rl.rollout.model import Model
from cleaner_rl.rollout.prefilled import PrefilledModel, first_failure, shown
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.trajectory import RepairMode, S, Trajectory, derive_seed


@dataclass(frozen=True, slots=True)
class RescueConfig:
    """How much a rescue may try."""

    attempts: int = 3
    """Corrections of the failed call that are sampled at most."""
    share: float = 0.2
    """Tokens that a rescue may sample, as a share of those that its group sampled: half of them for corrections, half
    for the continuation. What tools answer counts in the second half."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.share <= 0:
            raise ValueError(f"a rescue needs at least one attempt and some tokens, not {self}")


@dataclass(frozen=True, slots=True)
class RescueStart(Generic[S]):
    """Where a rescue begins."""

    source: Trajectory[S]
    """The wrong rollout, up to its first failed turn."""

    @property
    def turn(self) -> int:
        """Return the number of the failed turn."""
        return len(self.source.turns) - 1


@dataclass(frozen=True, slots=True)
class RescueTry(Generic[S]):
    """A rescue that was tried, whether it succeeded or not."""

    tokens: int = 0
    """Tokens that it sampled; characters in a text rollout."""
    rescued: Trajectory[S] | None = None
    """The right rollout, which joins its group; None if the rescue ended without one."""


class DivergedError(Exception):
    """A given call was answered in other words than before, or the failed one didn't fail."""


def rescue_start(group: Sequence[Trajectory[S]], seed: int, budget: RolloutBudget) -> RescueStart[S] | None:
    """Return where to begin a rescue; None if a rollout is right, or if none has a failed call that can be rescued."""
    usable = [each for each in group if each.usable and each.reward is not None]
    if any(each.success for each in usable):
        return None
    starts = [start for each in usable if (start := _start(without_hindsight(each), budget)) is not None]
    if not starts:
        return None
    key = usable[0].key
    return starts[derive_seed(seed, key.task, key.step, "rescue") % len(starts)]


def _start(trajectory: Trajectory[S], budget: RolloutBudget) -> RescueStart[S] | None:
    turn = first_failure(trajectory)
    if turn is None or turn + 1 >= budget.turns or trajectory.turns[turn].observation is None:
        return None
    *before, failed = trajectory.turns[: turn + 1]
    return RescueStart(replace(trajectory, turns=(*before, replace(failed, edit=None))))


def with_start(model: Model[S], start: RescueStart[S]) -> PrefilledModel[S]:
    """Return the model with the turns of the wrong rollout given. It raises `DivergedError` where they don't hold."""
    turns = start.source.turns

    def given(request: SampleRequest[S]) -> Draft[S] | None:
        known = request.context.turns[: len(turns)]
        repaired = len(known) == len(turns) and not request.attempt
        if repaired and (known[-1].edit is None or not known[-1].edit.commits):
            raise DivergedError
        if not repaired and shown(known) != shown(turns[: len(known)]):
            raise DivergedError
        if repaired or request.attempt:
            return None
        return Draft(replace(turns[len(known)], results=(), observation=None))

    return PrefilledModel(model, given)


def rescue_purifier(config: RescueConfig, purifier: Purifier | None) -> Purifier:
    """Return how the failed call is repaired: as the run repairs, with the attempts of the rescue, and re-scored."""
    base = Purifier() if purifier is None else purifier
    repair = PurifyConfig(config.attempts, base.config.repair, on_unrepaired=OnUnrepaired.DROP)
    return replace(base, mode=RepairMode.SAAR, config=repair, rescore=True, fallback=None)


def rescue_budget(
    config: RescueConfig, budget: RolloutBudget, group: Sequence[Trajectory[S]], start: RescueStart[S], unit: int
) -> RolloutBudget:
    """Return what the rescue may use; `unit` is the model's."""
    half = int(config.share / 2 * sum(each.info.sampled or 0 for each in group)) // unit
    given = sum(map(len, start.source.turns[:-1])) // unit
    tokens, lookahead = min(budget.tokens, given + half), min(budget.lookahead, half)
    return replace(budget, tokens=max(1, tokens), lookahead=lookahead)


def tried(made: Trajectory[S], start: RescueStart[S]) -> RescueTry[S]:
    """Return what became of a rescue. The rollout says where it began, and counts only what it sampled itself."""
    # A fault can end it before all given turns are there again.
    tokens = max(0, (made.info.sampled or 0) - sampled_length(start.source))
    if not made.usable or not made.success:
        return RescueTry(tokens)
    rescued = {"of": start.source.key.rollout, "turn": start.turn}
    return RescueTry(tokens, replace(made, info=replace(made.info, sampled=tokens, rescued=rescued)))
