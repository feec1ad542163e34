"""What a rollout may use, and how it is purified."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleaner_rl.purify import Phase, PurifyPolicy
from cleaner_rl.trajectory import Mode, Seeds


@dataclass(frozen=True, slots=True)
class RolloutBudget:
    """The most that one rollout may use. A history is charged for what stands in it, repaired or not.

    A repaired turn counts once, like any turn; so does its length. What its lookahead sampled is the lookahead's.
    """

    turns: int = 16
    tokens: int = 16_384
    """Of all turns together, observations included."""
    seconds: float | None = None
    """Wall time. Off by default: it makes what comes of a rollout depend on what else the machine does."""
    lookahead: int = 16_384
    """Tokens that all lookaheads of the rollout may sample."""

    def __post_init__(self) -> None:
        if self.turns < 1 or self.tokens < 1 or self.lookahead < 0 or (self.seconds is not None and self.seconds <= 0):
            raise ValueError("a rollout needs room for at least one turn of one token, and time for it")


@dataclass(frozen=True, slots=True)
class Purifier:
    """Whether, when and how rollouts are purified."""

    mode: Mode = Mode.LIVE
    policy: PurifyPolicy = field(default_factory=PurifyPolicy)
    phase: Phase = Phase.TRAINING
    rescore: bool = True
    """Ask for the log-probs of moved tokens in their new context. Without, they are NaN and can't be trained on."""
    max_gap: float | None = None
    """Refuse an edit whose tokens lose more log-prob than this, on average, by moving; None: no edit."""

    def live(self, seeds: Seeds, step: int) -> PurifyPolicy | None:
        """The policy by which this rollout is repaired while it runs; None if it isn't."""
        return self.policy if self.mode is Mode.LIVE and self.applies(seeds, step) else None

    def applies(self, seeds: Seeds, step: int) -> bool:
        """Whether this rollout is purified at all."""
        return self.policy.applies(seeds, step, self.phase)
