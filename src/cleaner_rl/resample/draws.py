"""One random number for each rollout, from its number and not from its place in a list.

So the order in which rollouts come back from the workers changes nothing. The numbers are SplitMix64's, whose i-th
output can be computed without the others: no generator has to be built for each of thousands of rollouts.

Limits: good for ties and samples, useless as cryptography. A rollout has one draw per seed; a second, independent
choice about it needs a second seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


def draws(seed: int, rollouts: Sequence[int]) -> list[float]:
    """For each rollout a number above 0 and at most 1, uniform, the same for the same seed and rollout."""
    numbers = np.array(rollouts, np.int64).view(np.uint64)
    state = np.uint64(seed) + (numbers + np.uint64(1)) * GAMMA
    state = (state ^ (state >> np.uint64(30))) * FIRST
    state = (state ^ (state >> np.uint64(27))) * SECOND
    state ^= state >> np.uint64(31)
    # 53 bits are what a float holds. The half keeps 0 out, whose logarithm nobody has.
    uniform: list[float] = (((state >> np.uint64(11)) + 0.5) * 2.0**-53).tolist()
    return uniform
