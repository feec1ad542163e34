"""Holds what our own processes exchange through verl's queue beside verl's columns."""

from __future__ import annotations

import pickle

from cleaner_rl.train.rows import Graded
from cleaner_rl.trajectory import Trajectory

SOLVED = "solved"
"""The column of a row's correctness. Under verl's own name, "acc", every absent rollout would count as wrong."""


def pack(trajectory: Graded) -> bytes:
    """Serialize a trajectory for our own processes."""
    return pickle.dumps(trajectory, pickle.HIGHEST_PROTOCOL)


def unpack(packed: bytes) -> Graded:
    """Read what `pack` wrote."""
    trajectory = pickle.loads(packed)
    assert isinstance(trajectory, Trajectory)
    return trajectory
