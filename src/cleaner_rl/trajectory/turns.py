"""Turns, and the edits that made them.

An edited turn carries its own history: `Turn.edit.original` holds what was really sampled in its place, in order, each
turn in the context of those before it. So an edit needs no positions that a later edit could shift, and an edit of
edited turns is simply a deeper tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic

from cleaner_rl.tools import ToolCall, ToolResult
from cleaner_rl.trajectory.spans import S


class RepairMode(StrEnum):
    """When an edit was made."""

    SAAR = "saar"
    """While the rollout ran: everything after it was sampled in the clean context."""
    HINDSIGHT = "hindsight"
    """Afterwards: everything after it was sampled in the original context."""


class RepairKind(StrEnum):
    """How much of the failed turn an edit replaced."""

    GRAFT = "graft"
    """The action; the original reasoning stays."""
    REPLACE = "replace"
    """Reasoning and action."""
    NONE = "none"
    """Nothing: no attempt was verified or accepted. The first failure stays; its attempts are kept in the edit."""


@dataclass(frozen=True, slots=True)
class Turn(Generic[S]):
    """One turn: the model's reasoning, its action, and what the tools returned."""

    reasoning: S
    action: S | None = None
    """From the first call to the end of the sampled tokens; None if there is no call."""
    observation: S | None = None
    """Text before the next turn: the results of the calls, with all that the chat template puts around them."""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    """One for each call, in order; empty until they ran."""
    attempt: int = 0
    """0 for a turn of the rollout itself, i for the i-th attempt of a lookahead."""
    edit: Edit[S] | None = None
    """The repair that made this turn; None if it was only sampled."""

    @property
    def failed(self) -> bool:
        """Return whether one of its calls is the model's failure."""
        return any(result.failed for result in self.results)

    @property
    def faulty(self) -> bool:
        """Return whether the infrastructure broke during one of its calls."""
        return any(result.faulty for result in self.results)

    @property
    def verified(self) -> bool:
        """Return whether it has calls, and each of them ran and is ok."""
        return bool(self.results) and not self.failed and not self.faulty

    @property
    def code(self) -> str:
        """Return the programs of its calls, in order: what similarity compares."""
        return "\n".join(call.code for call in self.calls)

    @property
    def text(self) -> str:
        """Return what the model wrote."""
        return self.reasoning.text + (self.action.text if self.action is not None else "")

    def spans(self) -> Iterator[S]:
        """Return its spans in order."""
        yield self.reasoning
        if self.action is not None:
            yield self.action
        if self.observation is not None:
            yield self.observation

    def __len__(self) -> int:
        """Its length in the unit of its spans: tokens, or characters."""
        return sum(map(len, self.spans()))

    def with_spans(self, change: Callable[[S], S]) -> Turn[S]:
        """Return the same turn with each of its own spans changed; what its edit keeps stays as it is."""
        return replace(
            self,
            reasoning=change(self.reasoning),
            action=None if self.action is None else change(self.action),
            observation=None if self.observation is None else change(self.observation),
        )


@dataclass(frozen=True, slots=True)
class Edit(Generic[S]):
    """The record of one repair: what it replaced, and why."""

    mode: RepairMode
    kind: RepairKind
    original: tuple[Turn[S], ...]
    """What was really sampled here, in order: the failure, further attempts with their results, the correction."""
    similarity: float | None = None
    """Similarity of the failed and the verified code; None if there is no verified code."""
    measure: str = ""
    """Measure that gave the similarity: the configured one, or the one that replaced it beyond its bound."""
    refusal: str = ""
    """Why no correction was committed; empty if one was."""
    stale: tuple[str, ...] = ()
    """Words in the turn's reasoning that mention the removed errors."""
    accepted_by: str = ""
    """Who or what showed that the correction may stand for the failure: on logs "nothing happened", "replay", or the
    name of the person or model that said so; empty in training, where every verified correction is taken."""

    @property
    def commits(self) -> bool:
        """Return whether the turn is a correction, and not the failure itself."""
        return self.kind is not RepairKind.NONE
