"""What the rollout without repair already shows of the one with repair: all of it up to the first failed call.

Both have the same seeds, so they are the same until repair has something to do, and nothing of that is sampled twice.
Where no call failed, the whole rollout is the same. Otherwise the turns up to the first failed call are given, their
calls run again, and the model goes on from there. Only so is the difference between the two what repair does, also with
engines that don't repeat themselves: a rollout sampled anew where the first one failed would often not fail at all.

The store names the source in `info.other` ("reused", "reused_turns").

Limits: how long the model took for single turns isn't known; for given turns, the time is taken in proportion to their
length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleaner_rl.trajectory import AnyTrajectory, Key, Trajectory

REUSED, REUSED_TURNS = "reused", "reused_turns"


def reused(alone: Trajectory[Any], key: Key) -> Trajectory[Any]:
    """The rollout under the name that it has with repair."""
    other = {**alone.info.other, REUSED: str(alone.key)}
    return replace(alone, key=key, info=replace(alone.info, other=other))


def is_reused(trajectory: AnyTrajectory) -> bool:
    """Whether nothing of it was sampled for itself."""
    return REUSED in trajectory.info.other and REUSED_TURNS not in trajectory.info.other


def with_time(made: Trajectory[Any], alone: Trajectory[Any], turns: int) -> Trajectory[Any]:
    """The rollout with the time that its given turns took, and with a mark that they were given."""
    lengths = [len(turn.text) for turn in alone.turns]
    tools = sum(result.seconds or 0.0 for turn in alone.turns for result in turn.results)
    thinking = max(0.0, (alone.info.seconds or 0.0) - tools) * sum(lengths[:turns]) / max(1, sum(lengths))
    seconds = None if made.info.seconds is None else round(made.info.seconds + thinking, 3)
    other = {**made.info.other, REUSED: str(alone.key), REUSED_TURNS: turns}
    return replace(made, info=replace(made.info, seconds=seconds, other=other))
