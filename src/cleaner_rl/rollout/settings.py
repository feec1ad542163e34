"""Settings of rollouts: what one may use, and how it is purified."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cleaner_rl.purify import PurifyConfig
from cleaner_rl.trajectory import Phase, RepairMode, Seeds


@dataclass(frozen=True, slots=True)
class RolloutBudget:
    """Limits what one rollout may use. A history is charged for what it holds, repaired or not.

    A repaired turn and its length count once. What its lookahead sampled counts for `lookahead` only.
    """

    turns: int = 16
    tokens: int = 16_384
    """Tokens of all turns together, including observations."""
    seconds: float | None = None
    """Wall time. Off by default, because it makes results depend on the machine's load."""
    lookahead: int = 16_384
    """Tokens that all lookaheads of the rollout may sample."""

    def __post_init__(self) -> None:
        if self.turns < 1 or self.tokens < 1 or self.lookahead < 0 or (self.seconds is not None and self.seconds <= 0):
            raise ValueError(
                "a rollout needs at least one turn, one token and some time: turns, tokens and seconds must be positive"
            )


@dataclass(frozen=True, slots=True)
class Purifier:
    """Says whether, when and how rollouts are purified.

    Example:
        ```python
        Purifier(RepairMode.HINDSIGHT)  # repairs right rollouts only
        ```
    """

    mode: RepairMode = RepairMode.SAAR
    config: PurifyConfig = field(default_factory=PurifyConfig)
    phase: Phase = Phase.TRAINING
    rescore: bool = True
    """Ask for the log-probs of moved tokens in their new context. Without, they are NaN and can't be trained on."""
    fallback: PurifyConfig | None = None
    """Hindsight for the rollouts that `config.probability` leaves out; None: they stay as they were sampled."""

    def for_rollout(self, seeds: Seeds, step: int) -> Purifier | None:
        """Return how one rollout is purified, or None if it is not."""
        if self.applies(seeds, step):
            return self
        if self.fallback is None:
            return None
        chosen = replace(self, mode=RepairMode.HINDSIGHT, config=self.fallback, fallback=None)
        return chosen if chosen.applies(seeds, step) else None

    def saar(self, seeds: Seeds, step: int) -> PurifyConfig | None:
        """Return the settings by which a rollout is repaired while it runs, or None if it is not."""
        return self.config if self.mode is RepairMode.SAAR and self.applies(seeds, step) else None

    def applies(self, seeds: Seeds, step: int) -> bool:
        """Return whether `config` applies to this rollout, by its phase and its probability."""
        return self.config.applies(seeds, step, self.phase)
