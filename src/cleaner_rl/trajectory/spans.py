"""Spans: runs of text or of tokens with one owner. Which owner, the place that holds them says.

Arrays are read-only int32 and float32, so a span can be shared by many trajectories and read from a file without a
copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Log-probs of a span's tokens in one context, and the version of the weights that gave them, where it is known."""

    logprobs: Floats
    version: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scores):
            return NotImplemented
        # Bytes, not values: a NaN that was stored equals itself, and undo is judged bit for bit.
        return self.version == other.version and self.logprobs.tobytes() == other.logprobs.tobytes()

    def __hash__(self) -> int:
        return hash((self.version, self.logprobs.tobytes()))

    def __repr__(self) -> str:
        return f"Scores({len(self.logprobs)} log-probs, version={self.version})"


class Span(Protocol):
    """What edits need to know of a span: the same for text and for tokens."""

    @property
    def text(self) -> str:
        """What it says."""
        ...

    def __len__(self) -> int: ...

    @property
    def is_rescored(self) -> bool:
        """Whether it has log-probs for the context in which it stands now."""
        ...

    def without_rescoring(self) -> Self:
        """The span as it was sampled."""
        ...


S = TypeVar("S", bound=Span)
"""The kind of span that a trajectory is made of: all `TextSpan`, or all `TokenSpan`."""


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Text whose tokens are not known, as in most logs."""

    text: str

    def __len__(self) -> int:
        """Characters: the only unit that a text has."""
        return len(self.text)

    @property
    def is_rescored(self) -> bool:
        """Return False: a text has no log-probs."""
        return False

    def without_rescoring(self) -> TextSpan:
        """Return the same span: a text has no log-probs."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class TokenSpan:
    """Tokens as they were sampled or fed, with their text."""

    text: str
    ids: Ids
    sampled: Scores | None = None
    """Log-probs at the time and in the context of sampling; None where nothing was sampled or they aren't known."""
    rescored: Scores | None = None
    """Log-probs in the span's present context, if an edit changed the context."""

    def __post_init__(self) -> None:
        for scores in (self.sampled, self.rescored):
            if scores is not None and len(scores.logprobs) != len(self.ids):
                raise ValueError(f"{len(self.ids)} tokens can't have {len(scores.logprobs)} log-probs")

    def __len__(self) -> int:
        """Tokens."""
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenSpan):
            return NotImplemented
        return (
            self.text == other.text
            and self.ids.tobytes() == other.ids.tobytes()
            and self.sampled == other.sampled
            and self.rescored == other.rescored
        )

    def __hash__(self) -> int:
        return hash((self.text, self.ids.tobytes(), self.sampled, self.rescored))

    def __repr__(self) -> str:
        # NumPy takes seconds to write out the arrays of a long trajectory.
        return f"TokenSpan({self.text!r}, {len(self.ids)} tokens, {self.sampled}, {self.rescored})"

    @property
    def is_rescored(self) -> bool:
        """Return whether it has log-probs for its present context."""
        return self.rescored is not None

    def without_rescoring(self) -> TokenSpan:
        """Return the span as it was sampled."""
        return self if self.rescored is None else replace(self, rescored=None)


def token_span(
    text: str, ids: Iterable[int], logprobs: Iterable[float] | None = None, version: int | None = None
) -> TokenSpan:
    """Make a token span from any numbers; give log-probs for sampled tokens only."""
    scores = None if logprobs is None else Scores(_frozen(np.fromiter(logprobs, np.float32)), version)
    return TokenSpan(text, _frozen(np.fromiter(ids, np.int32)), scores)


Array = TypeVar("Array", Ids, Floats)


def _frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array
