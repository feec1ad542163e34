"""The seeds of a rollout, from (run seed, task, rollout, turn, attempt)."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner_rl.tools import derive_seed


@dataclass(frozen=True, slots=True)
class Seeds:
    """The seeds of one rollout."""

    run: int
    task: str
    rollout: int

    def request(self, turn: int, attempt: int = 0) -> int:
        """Return the seed of one request to the model: a turn, or the i-th attempt of its lookahead."""
        return derive_seed(self.run, self.task, self.rollout, turn, attempt)

    def choice(self, purpose: str) -> int:
        """Return the seed of a choice made once for the rollout."""
        return derive_seed(self.run, self.task, self.rollout, purpose)
