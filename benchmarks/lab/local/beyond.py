"""What the lab's trainer can do beyond a recipe, which says only what verl can take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beyond:
    """Settings of one run."""

    sequence_mean: bool = False
    """The loss is a mean over rows of means over their tokens, instead of a mean over all tokens."""
    clean_weight: float = 1.0
    """Weight of the clean view where a rollout also gives its recovery view."""
    recovery_weight: float = 1.0
    """Weight of the recovery view."""
    spares_failed: bool = False
    """Failed turns of rollouts that are worse than their group are out of the loss, too: they aren't suppressed."""
    trains_failed: bool = False
    """The recovery view has its failed turns in the loss, as GRPO has them."""
    importance: float = 0.0
    """Exponent of the weight that `graft_logprobs: sampled` gives a moved token; 0 is `rescored`."""
