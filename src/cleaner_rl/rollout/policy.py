"""Who serves the model, as the loop sees it: ids in, ids out. It knows nothing of chats, tools or text.

A policy answers or raises `EngineFaultError`; an answer is never a guess. Whoever cancels a request gets it ended at
the engine too, where the engine can (verl's servers can't). Implementations retry what can be retried, so an error here
means that waiting did not help.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from cleaner_rl.trajectory import Floats, Ids, Scores


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    """None: all tokens."""

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or (self.top_k is not None and self.top_k < 1):
            raise ValueError("a sampling needs temperature >= 0, 0 < top_p <= 1, and top_k >= 1 or None")

    @property
    def exact(self) -> bool:
        """Whether tokens are drawn from the model's own distribution, the one that scoring speaks of."""
        return self.temperature == 1.0 and self.top_p == 1.0 and self.top_k is None


class Finish(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """The model gave a stop token, which is the last id."""
    LENGTH = "length"
    """`max_tokens` were drawn, or the engine's own window was full."""


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What one request gave."""

    ids_T: Ids
    """With the stop token, where there is one."""
    logprobs_T: Floats | None
    """Of each id as it was drawn; None where the engine gives none."""
    finish: Finish
    version: int | None = None
    """Of the weights, where the engine knows it."""


class EngineFaultError(RuntimeError):
    """The engine broke, or refused what it was sent. The rollout is a fault: it says nothing about the model."""


class EngineRefusedError(EngineFaultError):
    """The engine won't take the request itself, and no other would."""


class Policy(Protocol):
    """Samples after a prefix, and scores a suffix after a prefix."""

    async def sample(
        self,
        prompt_T: Ids,
        *,
        max_tokens: int,
        seed: int,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        request: str,
    ) -> Completion:
        """Draw up to `max_tokens` ids. `request` names the trajectory, which is best served where its prefix is cached.

        Requests of one trajectory come one after the other, each prompt beginning with what the one before it held,
        except after a repair, which goes back to an earlier prefix.
        """
        ...

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        """The log-prob of each id of the suffix after all ids before it, at temperature 1 and top-p 1.

        The prefix holds at least one id. Scores of one trajectory may be asked for at the same time.
        """
        ...
