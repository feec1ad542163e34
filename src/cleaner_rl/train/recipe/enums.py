"""The values that a recipe's settings choose from, by the names that recipes use."""

from __future__ import annotations

from enum import StrEnum


class Method(StrEnum):
    """How failed calls are repaired, and how groups are sampled.

    All methods train with GRPO's group advantages and the same settings of the update. `batch.dynamic_sampling` applies
    to each of them.
    """

    GRPO = "grpo"
    """GRPO with clip-higher, nothing repaired: the baseline without dynamic sampling. A recipe that has all of DAPO's
    parts is refused under this name."""
    DAPO = "dapo"
    """DAPO with all of its parts, nothing repaired: clip-higher, dynamic sampling, token mean and the penalty on
    overlong responses. A recipe that lacks one of them is refused under this name."""
    ROC = "roc"
    """GRPO-RoC: each group is oversampled, and the cleanest successes are kept. Nothing is repaired."""
    SAAR = "saar"
    """Similarity-Aware Adaptive Rollback: a failed call is repaired while the rollout runs, by a lookahead."""
    HINDSIGHT = "hindsight"
    """A failed call is repaired after the rollout, by the correction that the trajectory already holds. Wrong rollouts
    stay as they were sampled, unless the recipe sets `purify: {scope: all}`."""
    TWO_VIEWS = "two-views"
    """Hindsight with `purify: {scope: successful, views: full, max_logprob_gap: 0.3}`, unless the recipe sets these:
    a repaired rollout is trained on as repaired and as it was sampled."""
    TWO_VIEWS_RESCUE = "two-views+rescue"
    """Two views with `rescue: {}`, which tries to add a right rollout to each group that is all wrong."""
    MASK = "mask"
    """Nothing is repaired: failed turns are left out of the loss in rollouts with a positive advantage."""
    SAAR_ROC = "saar+roc"
    """SAAR, then GRPO-RoC on the repaired groups."""
    HINDSIGHT_ROC = "hindsight+roc"
    """Hindsight, then GRPO-RoC on the repaired groups."""
    NO_TOOLS = "no-tools"
    """The baseline of a model without tools: the prompt offers none, and no text is parsed as a call."""

    @property
    def saar(self) -> bool:
        """Return whether failed calls are repaired while the rollout runs."""
        return self in (Method.SAAR, Method.SAAR_ROC)

    @property
    def hindsight(self) -> bool:
        """Return whether failed calls are repaired after the rollout."""
        return self in (Method.HINDSIGHT, Method.HINDSIGHT_ROC) or self.two_views

    @property
    def two_views(self) -> bool:
        """Return whether a repaired rollout is trained on in two views."""
        return self in (Method.TWO_VIEWS, Method.TWO_VIEWS_RESCUE)

    @property
    def edits(self) -> bool:
        """Return whether trajectories are edited at all."""
        return self.saar or self.hindsight

    @property
    def masks(self) -> bool:
        """Return whether failed turns are left out of the loss where they would be reinforced."""
        return self is Method.MASK

    @property
    def resamples(self) -> bool:
        """Return whether groups are oversampled and then reduced (GRPO-RoC)."""
        return self in (Method.ROC, Method.SAAR_ROC, Method.HINDSIGHT_ROC)


class Fallback(StrEnum):
    """What happens to trajectories that `probability` excludes from SAAR."""

    RAW = "raw"
    """They stay as they were sampled, as in the paper."""
    HINDSIGHT = "hindsight"
    """They are repaired in hindsight; with a schedule, SAAR first and hindsight later."""


class Router(StrEnum):
    """Who chooses the engine replica of a request."""

    VERL = "verl"
    """verl's router: the replica that had the trajectory before, or the one with the fewest requests."""
    EVEN = "even"
    """Our router, which balances the remaining work (`cleaner_rl.rollout.balance`)."""
