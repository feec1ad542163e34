"""Rescues a group in which every rollout is wrong: one failed call is repaired, and the rollout goes on from there.

GRPO learns nothing from a group whose rewards are all the same. Where a call failed in such a group, a rescue may give
it a right rollout:

1. The turns of one wrong rollout, drawn by seed, are given up to its first failed call. Their calls run again, which
   restores the state of the tools.
2. The failed call is repaired as by SAAR: the model samples corrections in the context of the error, and the first that
   runs takes its place in a history without the error. Later failures stay.
3. The model goes on from there, with the turns that are left.
4. The rollout joins its group if its answer is right. Otherwise it is left out.

Only repaired turns are off-policy: this one, and those that SAAR repaired before it. They are re-scored.

Limits: one try per group. If a given call is answered in other words when it runs again, the rescue ends: also if it is
an address in memory or a time that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

from cleaner_rl.purify import Draft, OnUnrepaired, PurifyConfig, SampleRequest
from cleaner_rl.rollout.loop import sampled_length
from cleaner_rl.rollout.model import Model
from cleaner_rl.rollout.prefilled import PrefilledModel, first_failure, shown
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import RepairMode, S, Trajectory, without_hindsight


@dataclass(frozen=True, slots=True)
class RescueConfig:
    """How much a rescue may try."""

    attempts: int = 3
    """Corrections of the failed call that are sampled at most."""
    share: float = 0.2
    """Tokens that a rescue may sample, as a share of those that its group sampled."""

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


class RescueEndedError(Exception):
    """A given call was answered in other words than before, the failed one didn't fail, or the tokens are used up."""


@dataclass(slots=True)
class Allowance:
    """What a rescue may sample, and has sampled."""

    most: int
    spent: int = 0


@dataclass(frozen=True, slots=True)
class RescueModel(PrefilledModel[S]):
    """A model with given turns that samples no more than its allowance."""

    allowance: Allowance

    async def sample(self, request: SampleRequest[S]) -> Draft[S]:
        """The given turn, or what the model samples."""
        given = self.given(request)
        if given is not None:
            return given
        left = self.allowance.most - self.allowance.spent
        if left <= 0:
            raise RescueEndedError
        draft = await self.model.sample(replace(request, max_length=min(request.max_length, left)))
        self.allowance.spent += sampled_length(replace(request.context, turns=(draft.turn,)))
        if not draft.complete and left < request.max_length:
            raise RescueEndedError  # what only the allowance has cut off is not the model's own turn
        return draft


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


def rescue_model(
    config: RescueConfig, model: Model[S], group: Sequence[Trajectory[S]], start: RescueStart[S]
) -> RescueModel[S]:
    """Return the model with the turns of the wrong rollout given, and its allowance.

    It raises `RescueEndedError` where these turns don't hold.
    """
    turns = start.source.turns

    def given(request: SampleRequest[S]) -> Draft[S] | None:
        known = request.context.turns[: len(turns)]
        repaired = len(known) == len(turns) and not request.attempt
        if repaired and (known[-1].edit is None or not known[-1].edit.commits):
            raise RescueEndedError
        if not repaired and shown(known) != shown(turns[: len(known)]):
            raise RescueEndedError
        if repaired or request.attempt:
            return None
        return Draft(replace(turns[len(known)], results=(), observation=None))

    return RescueModel(model, given, Allowance(int(config.share * sum(each.info.sampled or 0 for each in group))))


def rescue_purifier(config: RescueConfig, purifier: Purifier | None) -> Purifier:
    """Return SAAR with the run's rules of repair, the attempts of the rescue, and re-scoring."""
    base = Purifier() if purifier is None else purifier
    repair = PurifyConfig(
        config.attempts,
        base.config.repair,
        on_unrepaired=OnUnrepaired.DROP,
        max_logprob_gap=base.config.max_logprob_gap,
    )
    return replace(base, mode=RepairMode.SAAR, config=repair, rescore=True, fallback=None)


def marked(made: Trajectory[S], start: RescueStart[S], allowance: Allowance) -> Trajectory[S]:
    """Return a rescue that says where it began, and counts only what it sampled itself."""
    rescued = {"of": start.source.key.rollout, "turn": start.turn}
    return replace(made, info=replace(made.info, sampled=allowance.spent, rescued=rescued))
