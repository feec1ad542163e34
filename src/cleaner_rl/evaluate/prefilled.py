"""A model of which some turns are given: they are read, run and answered like any turn; the rest is the model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from cleaner_rl.purify import Draft, Gate, SampleRequest
from cleaner_rl.rollout import Model
from cleaner_rl.tasks import Message
from cleaner_rl.trajectory import Key, S, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class PrefilledModel(Generic[S]):
    """`model`, with given turns in place of what it would have sampled."""

    model: Model[S]
    given: Callable[[SampleRequest[S]], Draft[S] | None]
    """The turn for a request; None: the model samples it."""

    @property
    def window(self) -> int:
        """The model's own."""
        return self.model.window

    @property
    def unit(self) -> int:
        """The model's own."""
        return self.model.unit

    def begin(self, messages: Sequence[Message]) -> S:
        """The model's own."""
        return self.model.begin(messages)

    async def sample(self, request: SampleRequest[S]) -> Draft[S]:
        """The given turn, or what the model samples."""
        return self.given(request) or await self.model.sample(request)

    def written(self, text: str) -> Draft[S]:
        """The model's own."""
        return self.model.written(text)

    def observe(self, turn: Turn[S], results: Sequence[str]) -> S:
        """The model's own."""
        return self.model.observe(turn, results)

    def answer(self, turn: Turn[S]) -> str:
        """The model's own."""
        return self.model.answer(turn)

    def gate(self, key: Key, max_logprob_gap: float | None) -> Gate[S] | None:
        """The model's own."""
        return self.model.gate(key, max_logprob_gap)

    async def rescored(self, trajectory: Trajectory[S], max_logprob_gap: float | None) -> Trajectory[S]:
        """The model's own."""
        return await self.model.rescored(trajectory, max_logprob_gap)
