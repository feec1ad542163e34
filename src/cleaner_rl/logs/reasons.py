"""Says in words why a failed turn was left alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cleaner_rl.logs.formats.base import log_of
from cleaner_rl.logs.warrant import Unwarranted
from cleaner_rl.purify import LeftAlone, Reason
from cleaner_rl.trajectory import Trajectory

LEFT_ALONE = "left_alone"
"""The entry of a stored log for the failed turns that stayed."""
REASONS: Mapping[str, str] = {
    Reason.UNCORRECTED: "no working call of the same tool follows before the agent goes on or somebody speaks",
    Reason.PARTIAL: "some calls of the turn worked, and the correction does not run them again",
    Reason.STALE: "the correction's reasoning mentions the error (--refuse-stale)",
    Reason.UNSUCCESSFUL: "the task was not solved (--scope successful)",
    Reason.UNDONE: "with the repair, a replay gives other results",
    Reason.REVIEWED: "a review found the repair wrong (--reviews)",
    Reason.UNPROVEN: "no replay could prove the repair (--only-proven)",
    Reason.UNUSABLE: "the trajectory ended in a fault of the infrastructure",
    **{each: each.words for each in Unwarranted},
}


def with_reasons(trajectory: Trajectory[Any], left_alone: Iterable[LeftAlone]) -> Trajectory[Any]:
    """Return a logged trajectory that says of each failed turn why it was left alone; others have no place for it."""
    log = log_of(trajectory)
    if not log:
        return trajectory
    reasons = [
        {"turn": each.turn, "reason": each.reason.value, "why": REASONS[each.reason.value]} for each in left_alone
    ]
    kept = {name: value for name, value in log.items() if name != LEFT_ALONE}
    new = {**kept, LEFT_ALONE: reasons} if reasons else kept
    return replace(trajectory, info=replace(trajectory.info, log=new))
