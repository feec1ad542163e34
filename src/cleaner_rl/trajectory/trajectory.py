"""A trajectory, and all that a trainer needs of it: derived from the spans, so that nothing can disagree.

Shapes: `ids_T`, `mask_T` and `logprobs_T` have one entry for each token of prompt and turns, in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cleaner_rl.trajectory.spans import Floats, Ids, S, TextSpan, TokenSpan
from cleaner_rl.trajectory.turns import Edit, Granularity, Mode, Turn


class Owner(StrEnum):
    """Whose words a span holds."""

    PROMPT = "prompt"
    REASONING = "reasoning"
    ACTION = "action"
    OBSERVATION = "observation"

    @property
    def sampled(self) -> bool:
        """Whether the model sampled it, so that it is learnt from."""
        return self is Owner.REASONING or self is Owner.ACTION


class Ending(StrEnum):
    """Why a rollout ended."""

    ANSWERED = "answered"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    DROPPED = "dropped"
    """A failure that no attempt mended, under the policy that drops such rollouts."""
    FAULT = "fault"
    """The infrastructure broke: not to be trained on, scored or purified."""


@dataclass(frozen=True, slots=True)
class Key:
    """Which rollout this is."""

    run: str = ""
    step: int = 0
    task: str = ""
    rollout: int = 0


class Placed(NamedTuple, Generic[S]):
    """A span where it stands."""

    owner: Owner
    span: S
    turn: int
    """Index of its turn; -1 for the prompt."""
    moved: bool
    """Whether the model sampled it in another context than the one it stands in now."""


@dataclass(frozen=True, slots=True)
class Trajectory(Generic[S]):
    """The prompt and the turns of one rollout, with what became of it."""

    prompt: S
    turns: tuple[Turn[S], ...] = ()
    key: Key = Key()
    reward: float | None = None
    success: bool | None = None
    """Whether the task was solved: apart from the reward, which may be shaped."""
    ending: Ending | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    """Anything else that should travel along; JSON values only."""

    @property
    def usable(self) -> bool:
        """Whether anything may be learnt from it: no fault, and not dropped."""
        unusable = self.ending is Ending.FAULT or self.ending is Ending.DROPPED
        return not unusable and not any(turn.faulty for turn in self.turns)

    @property
    def edits(self) -> tuple[tuple[int, Edit[S]], ...]:
        """The ledger: each edit with the index of the turn that it made."""
        return tuple((index, turn.edit) for index, turn in enumerate(self.turns) if turn.edit is not None)

    def __len__(self) -> int:
        """Its length in the unit of its spans: tokens, or characters."""
        return len(self.prompt) + sum(map(len, self.turns))

    def __repr__(self) -> str:
        # Short, because asyncio writes out the results of tasks; print `text` or the turns to see more.
        return f"Trajectory({self.key}, {len(self.turns)} turns, length {len(self)}, {len(self.edits)} edits)"

    @property
    def text(self) -> str:
        """All of it as text."""
        return "".join(placed.span.text for placed in self.placed())

    def placed(self) -> Iterator[Placed[S]]:
        """Every span in order.

        A span has moved if it came from after a failure that the edit took away: a graft's action, a replacement's
        reasoning and action, and, after an edit in hindsight, all that the model sampled later.
        """
        yield Placed(Owner.PROMPT, self.prompt, -1, False)
        shifted = False
        for index, turn in enumerate(self.turns):
            edit = turn.edit if turn.edit is not None and turn.edit.commits else None
            replaced = edit is not None and edit.granularity is Granularity.REPLACE
            yield Placed(Owner.REASONING, turn.reasoning, index, shifted or replaced)
            if turn.action is not None:
                yield Placed(Owner.ACTION, turn.action, index, shifted or edit is not None)
            if turn.observation is not None:
                yield Placed(Owner.OBSERVATION, turn.observation, index, False)
            shifted = shifted or (edit is not None and edit.mode is Mode.HINDSIGHT)

    def ids(self: Trajectory[TokenSpan]) -> Ids:
        """`ids_T`: the tokens of prompt and turns."""
        return np.concatenate([placed.span.ids for placed in _token_spans(self)])

    def loss_mask(self: Trajectory[TokenSpan]) -> npt.NDArray[np.bool_]:
        """`mask_T`: true where the model sampled the token."""
        return np.concatenate([np.full(len(placed.span), placed.owner.sampled) for placed in _token_spans(self)])

    def logprobs(self: Trajectory[TokenSpan]) -> Floats:
        """`logprobs_T`: of each sampled token in the context in which it stands.

        0 where nothing was sampled; NaN where it isn't known, above all where an edit moved the token and nobody has
        re-scored it yet, so that a forgotten re-scoring can't pass for a log-prob.
        """
        return np.concatenate([_clean_logprobs(placed) for placed in _token_spans(self)])

    def behaviour_logprobs(self: Trajectory[TokenSpan]) -> Floats:
        """`logprobs_T` at the time of sampling: a lookahead's tokens keep the log-prob of the lookahead."""
        return np.concatenate([_sampled_logprobs(placed) for placed in _token_spans(self)])


AnyTrajectory: TypeAlias = Trajectory[TextSpan] | Trajectory[TokenSpan]


def _token_spans(trajectory: Trajectory[TokenSpan]) -> list[Placed[TokenSpan]]:
    if not isinstance(trajectory.prompt, TokenSpan):
        raise TypeError("a text trajectory has no tokens; `encode` makes one for supervised training")
    return list(trajectory.placed())


def _clean_logprobs(placed: Placed[TokenSpan]) -> Floats:
    if placed.span.rescored is not None:
        return placed.span.rescored.logprobs
    if placed.moved:
        return np.full(len(placed.span), np.nan, np.float32)
    return _sampled_logprobs(placed)


def _sampled_logprobs(placed: Placed[TokenSpan]) -> Floats:
    if not placed.owner.sampled:
        return np.zeros(len(placed.span), np.float32)
    if placed.span.sampled is None:
        return np.full(len(placed.span), np.nan, np.float32)
    return placed.span.sampled.logprobs
