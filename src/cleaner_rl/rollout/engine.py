"""The interface of an inference engine: ids in, ids out. It knows nothing of chats, tools or text.

An engine answers or raises `EngineFaultError`; an answer is never a guess. Cancelling a request ends it at the engine
too, where the engine can do that (verl's servers can't). Implementations retry what can be retried, so an error here
means that waiting did not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        """Return whether tokens are drawn from the model's own distribution, the one that scores are of."""
        return self.temperature == 1.0 and self.top_p == 1.0 and self.top_k is None


class EngineKind(StrEnum):
    """The kind of engine behind an address."""

    VLLM = "vllm"
    SGLANG = "sglang"
    CHAT = "chat"
    """Any OpenAI-compatible chat API: text only, for evaluation."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Names a model and where it is served, as on a command line."""

    urls: tuple[str, ...]
    """One for each replica; of a chat API the address before `/chat/completions`, with `/v1` where it has no path."""
    model: str
    """The folder or hub name of its tokenizer; for a chat API the name that the service knows."""
    engine: EngineKind = EngineKind.VLLM
    window: int | None = None
    """Context window in tokens; None: what the server reports."""
    sampling: Sampling = field(default_factory=Sampling)
    token: str | None = None
    patience: float = 300.0
    """Seconds that a request waits for an engine that is down or busy, before its rollout ends in a fault."""
    template: Mapping[str, object] = field(default_factory=dict)
    """Options of the chat template, such as `{"enable_thinking": False}`."""


class Finish(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """The model gave a stop token, which is the last id."""
    LENGTH = "length"
    """`max_tokens` were drawn, or the engine's own window was full."""


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """The result of one request."""

    ids_T: Ids
    """Sampled ids, including the stop token if there is one."""
    logprobs_T: Floats | None
    """Log-prob of each id when it was drawn; None if the engine gives none."""
    finish: Finish
    version: int | None = None
    """Version of the weights, if the engine knows it."""


class EngineFaultError(RuntimeError):
    """The engine broke, or refused a request. The rollout ends in a fault: it says nothing about the model."""


class EngineRefusedError(EngineFaultError):
    """The engine refuses the request itself, and so would any other engine."""


class Engine(Protocol):
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
        """Return the log-prob of each id of the suffix after all ids before it, at temperature 1 and top-p 1.

        The prefix holds at least one id. Scores of one trajectory may be asked for at the same time.
        """
        ...
