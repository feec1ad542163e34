"""A trajectory, and all that a trainer needs of it: derived from the spans, so that nothing can disagree.

Shapes: `ids_T`, `mask_T` and `logprobs_T` have one entry for each token of prompt and turns, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cleaner_rl.trajectory.info import RolloutInfo
from cleaner_rl.trajectory.spans import Floats, Ids, S, TextSpan, TokenSpan
from cleaner_rl.trajectory.turns import Edit, RepairKind, RepairMode, Turn


class Owner(StrEnum):
    """Says who wrote a span."""

    PROMPT = "prompt"
    REASONING = "reasoning"
    ACTION = "action"
    OBSERVATION = "observation"

    @property
    def sampled(self) -> bool:
        """Return whether the model sampled it, so that it is trained on."""
        return self is Owner.REASONING or self is Owner.ACTION


class StopReason(StrEnum):
    """Why a rollout ended."""

    ANSWERED = "answered"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    DROPPED = "dropped"
    """A failure that no attempt corrected, under a configuration that drops such rollouts."""
    FAULT = "fault"
    """The infrastructure broke: not to be trained on, scored or purified."""


class Phase(StrEnum):
    """What a rollout is for."""

    TRAINING = "training"
    EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True)
class Key:
    """The name of one rollout. `str` gives it in one line."""

    run: str = ""
    step: int = 0
    task: str = ""
    rollout: int = 0
    phase: Phase = Phase.TRAINING

    def __str__(self) -> str:
        return f"{self.run}/{self.phase}/{self.step}/{self.task}/{self.rollout}"


class Placed(NamedTuple, Generic[S]):
    """A span at its position in the trajectory."""

    owner: Owner
    span: S
    turn: int
    """Index of its turn; -1 for the prompt."""
    moved: bool
    """Whether the model sampled it in another context than the one it is in now."""


@dataclass(frozen=True, slots=True)
class Trajectory(Generic[S]):
    """The prompt and the turns of one rollout, with its reward and how it ended."""

    prompt: S
    turns: tuple[Turn[S], ...] = ()
    key: Key = Key()
    reward: float | None = None
    success: bool | None = None
    """Whether the task was solved: apart from the reward, which may be shaped."""
    stop_reason: StopReason | None = None
    info: RolloutInfo = field(default_factory=RolloutInfo)
    """How it was made, graded, checked and selected."""

    @property
    def usable(self) -> bool:
        """Return whether it may be trained on: it has no fault and was not dropped."""
        return self.stop_reason is not StopReason.DROPPED and not self.info.fault and not self.broken

    @property
    def broken(self) -> bool:
        """Return whether the engine or a tool had a fault while it was sampled, so that it is not complete."""
        return self.stop_reason is StopReason.FAULT or any(turn.faulty for turn in self.turns)

    @property
    def ungraded(self) -> bool:
        """Return whether it is complete, and its grader had a fault: it can be graded again, and needs no sampling."""
        return bool(self.info.fault) and not self.broken

    @property
    def edits(self) -> tuple[tuple[int, Edit[S]], ...]:
        """Return each edit with the index of the turn that it made."""
        return tuple((index, turn.edit) for index, turn in enumerate(self.turns) if turn.edit is not None)

    def __len__(self) -> int:
        """Its length in the unit of its spans: tokens, or characters."""
        return len(self.prompt) + sum(map(len, self.turns))

    def __repr__(self) -> str:
        # Short, because asyncio writes out the results of tasks; print `text` or the turns to see more.
        return f"Trajectory({self.key}, {len(self.turns)} turns, length {len(self)}, {len(self.edits)} edits)"

    @property
    def text(self) -> str:
        """Return the whole trajectory as text."""
        return "".join(placed.span.text for placed in self.placed())

    def placed(self) -> Iterator[Placed[S]]:
        """Return every span in order.

        A span has moved if it was sampled after a failure that an edit removed: a graft's action, a replacement's
        reasoning and action, and, after an edit in hindsight, all that the model sampled later.
        """
        yield Placed(Owner.PROMPT, self.prompt, -1, False)
        shifted = False
        for index, turn in enumerate(self.turns):
            edit = turn.edit if turn.edit is not None and turn.edit.commits else None
            replaced = edit is not None and edit.kind is RepairKind.REPLACE
            yield Placed(Owner.REASONING, turn.reasoning, index, shifted or replaced)
            if turn.action is not None:
                yield Placed(Owner.ACTION, turn.action, index, shifted or edit is not None)
            if turn.observation is not None:
                yield Placed(Owner.OBSERVATION, turn.observation, index, False)
            shifted = shifted or (edit is not None and edit.mode is RepairMode.HINDSIGHT)

    def ids(self: Trajectory[TokenSpan]) -> Ids:
        """Return `ids_T`: the tokens of prompt and turns."""
        return np.concatenate([placed.span.ids for placed in _token_spans(self)])

    def loss_mask(self: Trajectory[TokenSpan]) -> npt.NDArray[np.bool_]:
        """Return `mask_T`: true where the model sampled the token."""
        return np.concatenate([np.full(len(placed.span), placed.owner.sampled) for placed in _token_spans(self)])

    def logprobs(self: Trajectory[TokenSpan]) -> Floats:
        """Return `logprobs_T`: the log-prob of each sampled token in its present context.

        It is 0 where nothing was sampled, and NaN where it isn't known, for example where an edit moved the token and
        it wasn't re-scored yet.
        """
        return np.concatenate([_clean_logprobs(placed) for placed in _token_spans(self)])

    def behaviour_logprobs(self: Trajectory[TokenSpan]) -> Floats:
        """Return `logprobs_T` at the time of sampling: a lookahead's tokens keep the log-prob of the lookahead."""
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
