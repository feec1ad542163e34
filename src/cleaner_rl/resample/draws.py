"""One random number for each rollout of a group, by its number and not by its place in a list.

So the order in which rollouts come back from the workers changes nothing. The numbers are one hash's output: no
generator has to be built for each of a step's groups.

Limits: a rollout has one draw per seed; a second, independent choice about it needs a second seed. Its draw also
depends on which others are in the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import shake_128
from struct import unpack


def draws(seed: int, rollouts: Sequence[int]) -> list[int]:
    """For each rollout a number of 64 bits, the same for the same seed and the same rollouts in any order."""
    count = len(rollouts)
    numbers = unpack(f">{count}Q", shake_128(str(seed).encode()).digest(8 * count))
    drawn = dict(zip(sorted(rollouts), numbers, strict=True))
    return [drawn[rollout] for rollout in rollouts]
