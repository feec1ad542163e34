"""A model of which some turns are given: they are read, run and answered like any turn; the rest is the model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from cleaner_rl.purify import Draft, Gate, SampleRequest
from cleaner_rl.rollout.model import Model
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


def first_failure(trajectory: Trajectory[Any]) -> int | None:
    """Return the number of the first turn with a failed call; None if there is none."""
    return next((number for number, turn in enumerate(trajectory.turns) if turn.failed), None)


def with_turns(model: Model[S], turns: tuple[Turn[S], ...]) -> PrefilledModel[S]:
    """Return the model, with these turns given as long as tools answer to them as they did."""

    def given(request: SampleRequest[S]) -> Draft[S] | None:
        number = len(request.context.turns)
        if request.attempt or number >= len(turns) or shown(request.context.turns) != shown(turns[:number]):
            return None
        return Draft(replace(turns[number], results=(), observation=None))

    return PrefilledModel(model, given)


def shown(turns: tuple[Turn[S], ...]) -> list[str | None]:
    """Return what the model was shown after each turn."""
    return [None if turn.observation is None else turn.observation.text for turn in turns]
