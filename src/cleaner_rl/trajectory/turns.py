"""Turns, and the edits that made them.

An edited turn carries its own history: `Turn.edit.original` holds what was really sampled in its place, in order, each
turn in the context of those before it. So the ledger needs no positions that a later edit could shift, and an edit of
edited turns is simply a deeper tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic

from cleaner_rl.tools import ToolCall, ToolResult
from cleaner_rl.trajectory.spans import S


class Mode(StrEnum):
    """When an edit was made."""

    LIVE = "live"
    """While the rollout ran: everything after it was sampled in the clean context."""
    HINDSIGHT = "hindsight"
    """Afterwards: everything after it was sampled in the original context."""


class Granularity(StrEnum):
    """How much of the failed turn an edit replaced."""

    GRAFT = "graft"
    """The action; the original reasoning stays."""
    REPLACE = "replace"
    """Reasoning and action."""
    NONE = "none"
    """Nothing: no attempt was verified, or none was let in. The first failure stands; its attempts are kept aside."""


@dataclass(frozen=True, slots=True)
class Turn(Generic[S]):
    """What the model thought, what it did, and what came back."""

    reasoning: S
    action: S | None = None
    """From the first call to the end of the sampled tokens; None if there is no call."""
    observation: S | None = None
    """What the next turn is sampled after: the results in words, with all that the chat template puts around them."""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    """One for each call, in order; empty until they ran."""
    attempt: int = 0
    """0 for a turn of the rollout itself, i for the i-th attempt of a lookahead."""
    edit: Edit[S] | None = None
    """How this turn came to stand here, if not by sampling alone."""

    @property
    def failed(self) -> bool:
        """Whether a call of it is the model's failure."""
        return any(result.failed for result in self.results)

    @property
    def faulty(self) -> bool:
        """Whether the infrastructure broke under a call of it."""
        return any(result.faulty for result in self.results)

    @property
    def verified(self) -> bool:
        """Whether it has calls and every one ran and is ok."""
        return bool(self.results) and not self.failed and not self.faulty

    @property
    def code(self) -> str:
        """The programs of its calls, in order: what similarity compares."""
        return "\n".join(call.code for call in self.calls)

    @property
    def text(self) -> str:
        """What the model wrote."""
        return self.reasoning.text + (self.action.text if self.action is not None else "")

    def spans(self) -> Iterator[S]:
        """Its spans in order."""
        yield self.reasoning
        if self.action is not None:
            yield self.action
        if self.observation is not None:
            yield self.observation

    def __len__(self) -> int:
        """Its length in the unit of its spans: tokens, or characters."""
        return sum(map(len, self.spans()))

    def with_spans(self, change: Callable[[S], S]) -> Turn[S]:
        """The same turn with each of its own spans changed; what its edit keeps stays as it is."""
        return replace(
            self,
            reasoning=change(self.reasoning),
            action=None if self.action is None else change(self.action),
            observation=None if self.observation is None else change(self.observation),
        )


@dataclass(frozen=True, slots=True)
class Edit(Generic[S]):
    """One line of the ledger: what a turn stands for, and why it was made so."""

    mode: Mode
    granularity: Granularity
    original: tuple[Turn[S], ...]
    """What was really sampled here, in order: the failure, further attempts with their results, the correction."""
    similarity: float | None = None
    """Of the failed code and the verified code; None where there is no verified one."""
    measure: str = ""
    """What gave the similarity: the measure asked for, or the one that stood in beyond its bound."""
    refusal: str = ""
    """Why no correction was let in, where none was."""
    stale: tuple[str, ...] = ()
    """What the turn's reasoning says of the errors that no longer stand before it."""

    @property
    def commits(self) -> bool:
        """Whether the turn is a correction, and not the failure itself."""
        return self.granularity is not Granularity.NONE
