"""The two ways to learn from a right rollout whose failed calls were repaired in hindsight.

The *clean view* is the repaired trajectory: it teaches the right call at once. The *recovery view* is the rollout as it
was sampled, with its failed turns in the context and out of the loss: it teaches to recover. Neither needs sampling.

The recovery view is on-policy: every token has the log-prob at which it was sampled. The clean view is not. The
correction and all later tokens were sampled in another context, and re-scoring sets their ratio to one: it is
advantage-weighted imitation of the model's own verified correction.
"""

from __future__ import annotations

from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import Key, TokenSpan, Trajectory, without_hindsight


def recovery_view(trajectory: Trajectory[TokenSpan]) -> Trajectory[TokenSpan] | None:
    """Return the rollout as it was sampled; None if it was not repaired in hindsight.

    Examples:
        >>> from cleaner_rl.train.rows import recovery_view
        >>> from cleaner_rl.trajectory import Edit, RepairKind, RepairMode, Trajectory, Turn, token_span
        >>> failed, worked = Turn(token_span("First.", [1])), Turn(token_span("Second.", [2]))
        >>> edit = Edit(RepairMode.HINDSIGHT, RepairKind.REPLACE, (failed, worked))
        >>> repaired = Trajectory(token_span("1 + 1?", [0]), (Turn(token_span("Second.", [2]), edit=edit),))
        >>> [turn.text for turn in recovery_view(repaired).turns]
        ['First.', 'Second.']
    """
    raw = without_hindsight(trajectory)
    return None if raw is trajectory else raw


def draws_recovery(seed: int, key: Key) -> bool:
    """Return whether `Views.ONE` takes the recovery view of a rollout; `seed` is the run's."""
    return derive_seed(seed, key.task, key.step, key.rollout, "view") % 2 == 1
