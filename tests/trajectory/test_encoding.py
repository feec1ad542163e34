"""Text to tokens, for supervised training."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings

from cleaner_rl.trajectory import TextSpan, TokenSpan, Trajectory, Turn, encode
from tests.generators import bpe_with_special_tokens, text_trajectories
from tests.profile import examples


def tokenize(text: str) -> list[int]:
    return bpe_with_special_tokens()[0].encode(text).ids


@settings(max_examples=examples(30), deadline=None)
@given(text_trajectories)
def test_only_the_spans_change(trajectory: Trajectory[TextSpan]) -> None:
    encoded = encode(trajectory, tokenize)
    assert as_text(encoded) == trajectory
    assert encoded.text == trajectory.text
    assert encoded.ids().tolist() == [each for placed in trajectory.placed() for each in tokenize(placed.span.text)]
    assert np.isnan(encoded.logprobs()[encoded.loss_mask()]).all(), "no model sampled these tokens"


def as_text(trajectory: Trajectory[TokenSpan]) -> Any:
    """The same without tokens: every field by its name, so that a forgotten one shows."""

    def strip(value: Any) -> Any:
        if isinstance(value, TokenSpan):
            assert value.sampled is None
            assert value.rescored is None
            return TextSpan(value.text)
        if isinstance(value, tuple):
            return tuple(map(strip, value))
        if isinstance(value, Trajectory | Turn) or type(value).__name__ == "Edit":
            return type(value)(**{name: strip(getattr(value, name)) for name in value.__dataclass_fields__})
        return value

    return strip(trajectory)
