"""What the lab's trainer can do beyond a recipe, which says only what verl can take."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class GateConfig:
    """Which repairs are trained on, by what other tasks say of them; the others are undone, as those above a bound."""

    bound: float | None = None
    """A repair whose gap is at most this passes, whatever others say. None: none passes by its gap."""
    prior: float | None = None
    """Prior of `Votes.kappa`; None is the estimated one. At 0 the votes of two other tasks are needed."""


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
    gate: GateConfig | None = None
    """Judges repairs after all groups of a step are sampled; the recipe then has no bound on gaps."""
    most_positive: float = inf
    """Rows with a positive advantage are scaled so that they have at most this many tokens for one of the others."""
    own_cost: bool = False
    """Failed turns are in the loss at their own cost (`costs`), in right rollouts and in wrong ones."""
    drops_void: bool = False
    """Rollouts with a turn that has neither a call nor an answer are not trained on (SimpleTIR)."""
