"""A gate for repairs: passes those that something besides the error could tell, by what other tasks say.

A *surprising* token of a repaired turn lost more than 1 nat by moving into the clean context. Its place is the token
before it and the model's most likely token there. If corrections in other tasks have the same token in the same place,
it holds for more than one task, and the prompt could tell it. Votes are kept over the steps of a run.

With a bound on gaps beside it, the gate is as strict as the bound where no other task agrees, and open where they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.lab.local.beyond import GateConfig
from benchmarks.votes import Change, Votes
from cleaner_rl.purify import Score, rescore
from cleaner_rl.train.rows import Graded
from cleaner_rl.trajectory import Ids, RepairMode, logprob_gap, undo

NATS = 1.0
"""Log-prob that a surprising token has lost at least."""


@dataclass
class Gate:
    """Judges the repairs of a run, step by step."""

    config: GateConfig
    seen: list[tuple[str, Sequence[Change]]] = field(default_factory=list)
    """Each correction's task and what is surprising of it, of all steps."""
    judged: int = 0
    """Repairs of this step."""
    opened: int = 0
    """Those of them that stay."""

    async def passed(
        self, groups: Sequence[Sequence[Graded]], score: Score, likely: Callable[[Ids], Ids]
    ) -> list[list[Graded]]:
        """Return the groups of a step without the repairs that don't pass."""
        for rollout in (each for group in groups for each in group):
            self.seen += [(rollout.key.task, changes(rollout, turn, likely)) for turn in repaired(rollout)]
        votes = Votes(self.seen)
        self.judged = self.opened = 0
        return [[await self._passed(each, votes, score, likely) for each in group] for group in groups]

    async def _passed(self, rollout: Graded, votes: Votes, score: Score, likely: Callable[[Ids], Ids]) -> Graded:
        before = len(repaired(rollout))
        while True:
            closed = (turn for turn in repaired(rollout) if not self._opens(rollout, turn, votes, likely))
            first = next(closed, None)
            if first is None:
                self.judged, self.opened = self.judged + before, self.opened + len(repaired(rollout))
                return rollout
            # It moves later ones, which are judged again, as where a bound undoes it.
            rollout = await rescore(undo(rollout, first), score)

    def _opens(self, rollout: Graded, turn: int, votes: Votes, likely: Callable[[Ids], Ids]) -> bool:
        bound, prior = self.config.bound, self.config.prior
        if bound is None:
            return votes.opens(rollout.key.task, changes(rollout, turn, likely), prior)
        gap = logprob_gap(rollout.turns[turn])
        if gap is None or gap <= bound:
            return True
        found = changes(rollout, turn, likely)
        return bool(found) and votes.opens(rollout.key.task, found, prior)


def repaired(rollout: Graded) -> list[int]:
    """Return the turns that were repaired in hindsight, of a rollout that may be trained on."""
    if not rollout.usable:
        return []
    return [turn for turn, edit in rollout.edits if edit.mode is RepairMode.HINDSIGHT and edit.commits]


def changes(rollout: Graded, turn: int, likely: Callable[[Ids], Ids]) -> list[Change]:
    """Return the surprising tokens of a repaired turn; `likely` gives the most likely token at each place of some ids.

    Entry `t` of what `likely` returns is for the token `t`, given all before it.
    """
    ids, lost, found = rollout.ids(), rollout.behaviour_logprobs() - rollout.logprobs(), []
    most, start = likely(ids), 0
    for placed in rollout.placed():
        end = start + len(placed.span)
        if placed.turn == turn and placed.moved and placed.owner.sampled:
            surprising = start + np.flatnonzero(lost[start:end] > NATS)
            found += [Change((int(ids[t - 1]), int(most[t])), int(ids[t])) for t in surprising]
        start = end
    return found
