"""Applies DAPO's soft penalty on overlong responses, as long as they were before repairs in hindsight."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cleaner_rl.trajectory import TokenSpan, Trajectory, without_hindsight


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """A penalty on a response that reaches into the last `buffer` of its `response_tokens`."""

    response_tokens: int
    """The longest response."""
    buffer: int
    """Length of the response's end over which the reward falls; 0: no penalty."""
    penalty: float = 1.0
    """Penalty on a response that uses all of its tokens."""

    def shape(self, trajectory: Trajectory[TokenSpan]) -> Trajectory[TokenSpan]:
        """Return the trajectory with its reward lowered by how far its response reaches into the buffer.

        Call it once per trajectory, before its group is compared; `info.overlong` says what was taken off.
        """
        response = len(without_hindsight(trajectory)) - len(trajectory.prompt)
        beyond = response - (self.response_tokens - self.buffer)
        if self.buffer == 0 or beyond <= 0 or trajectory.reward is None:
            return trajectory
        penalty = self.penalty * beyond / self.buffer
        info = replace(trajectory.info, overlong=penalty)
        return replace(trajectory, reward=trajectory.reward - penalty, info=info)
