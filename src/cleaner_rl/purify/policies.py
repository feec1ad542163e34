"""Every choice of the two ways to purify, with the paper's value as default. Nothing here is a number in the code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cleaner_rl.trajectory import Seeds


class Phase(StrEnum):
    """What the rollouts are for."""

    TRAINING = "training"
    EVALUATION = "evaluation"


class Which(StrEnum):
    """Whose trajectories are purified."""

    ALL = "all"
    SUCCESSFUL = "successful"
    """Only those that solved the task. Failures stay raw, so that no corrected code is punished for a wrong answer."""


class Unrepaired(StrEnum):
    """What becomes of a failure that no attempt mended."""

    KEEP_ATTEMPTS = "keep_attempts"
    """The true history: the failure and each attempt with its feedback, as far as the response has room for them."""
    KEEP_FIRST = "keep_first"
    """The failure alone, as if there had been no lookahead."""
    DROP = "drop"
    """The rollout ends here and is not trained on."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A probability over training steps: straight lines between points, level before the first and after the last."""

    points: tuple[tuple[int, float], ...]
    """(step, probability), steps ascending."""

    def __post_init__(self) -> None:
        steps = [step for step, _ in self.points]
        if not steps or steps != sorted(set(steps)):
            raise ValueError("a schedule needs at least one (step, probability), with steps in ascending order")
        for _, probability in self.points:
            _check_probability(probability)

    def at(self, step: int) -> float:
        """The probability at a step."""
        before, value = self.points[0]
        for after, following in self.points:
            if step < after:
                return value + (following - value) * max(0, step - before) / max(1, after - before)
            before, value = after, following
        return value


@dataclass(frozen=True, slots=True)
class SplicePolicy:
    """How a verified correction enters the history; the same for both ways."""

    threshold: float = 0.5
    """γ: at this similarity or above the action is grafted, below it the reasoning is replaced too. 0 always grafts;
    anything above 1 always replaces."""
    measure: str = "difflib"
    """How similarity is measured; see `similarity`."""
    refuse_stale: bool = False
    """Refuse a replacement whose reasoning talks of the error that it removes. Off, as in the paper: it is reported."""


@dataclass(frozen=True, slots=True)
class PurifyPolicy:
    """Who is purified, how hard it is tried, and what happens if it fails."""

    attempts: int = 3
    """K: corrections that a lookahead samples at most. Hindsight samples none."""
    splice: SplicePolicy = SplicePolicy()
    probability: float | Schedule = 1.0
    """The share of trajectories that is purified; 0.7 in the paper's 7B recipe."""
    which: Which = Which.ALL
    unrepaired: Unrepaired = Unrepaired.KEEP_ATTEMPTS
    in_evaluation: bool = False
    """Whether rollouts of an evaluation are repaired. Off: a score is the model's own unless it says otherwise."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}; a lookahead needs at least 1")
        if not isinstance(self.probability, Schedule):
            _check_probability(self.probability)
        # A recipe file gives plain words; a misspelt one must not pass for the default.
        object.__setattr__(self, "which", Which(self.which))
        object.__setattr__(self, "unrepaired", Unrepaired(self.unrepaired))

    def applies(self, seeds: Seeds, step: int, phase: Phase) -> bool:
        """Whether this rollout is purified: a seeded coin in training, never a coin in evaluation."""
        if phase is Phase.EVALUATION:
            return self.in_evaluation
        schedule = self.probability
        probability = schedule.at(step) if isinstance(schedule, Schedule) else schedule
        return seeds.choice("purify") < probability * 2**63


def _check_probability(probability: float) -> None:
    if not 0 <= probability <= 1:
        raise ValueError(f"{probability} is no probability; give a number from 0 to 1")
