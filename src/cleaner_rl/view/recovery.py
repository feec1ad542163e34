"""The recovery view: a right rollout that was repaired in hindsight, as it was sampled.

A trainer can learn from such a rollout in two ways (docs/methods/two-views.md). In the clean view, which is the stored
trajectory, all that the model sampled is in the loss. In the recovery view, failed turns are in the context only.

Limits: the method `mask` also leaves failed turns out of the clean view's loss. A store doesn't say this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from cleaner_rl.trajectory import AnyTrajectory, Placed, Trajectory, without_hindsight


def recovery_view(trajectory: AnyTrajectory) -> AnyTrajectory | None:
    """Return the rollout as it was sampled; None for a wrong one, a log, or one that hindsight didn't repair."""
    if not trajectory.success or trajectory.info.log is not None:
        return None
    found: AnyTrajectory = without_hindsight(cast("Trajectory[Any]", trajectory))
    return None if found is trajectory else found


def with_loss(trajectory: AnyTrajectory, *, recovery: bool = False) -> Iterator[tuple[Placed[Any], bool]]:
    """Yield each span in order with whether it is in the loss; `recovery`: the trajectory is a recovery view."""
    for placed in trajectory.placed():
        failed = recovery and placed.turn >= 0 and trajectory.turns[placed.turn].failed
        yield placed, placed.owner.sampled and not failed
