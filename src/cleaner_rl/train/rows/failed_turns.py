"""Marks the tokens of failed turns, which the method `mask` leaves out of the loss where they would be reinforced."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cleaner_rl.trajectory import TokenSpan, Trajectory


def failed_tokens(trajectory: Trajectory[TokenSpan]) -> npt.NDArray[np.bool_]:
    """Return for each token, the prompt's included, whether it belongs to a turn whose call failed."""
    turns = trajectory.turns
    return np.concatenate(
        [np.full(len(placed.span), placed.turn >= 0 and turns[placed.turn].failed) for placed in trajectory.placed()]
    )
