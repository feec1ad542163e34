"""Holds every setting of SAAR and hindsight. Defaults are the paper's, but for hindsight's scope."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cleaner_rl.trajectory import Phase, RepairMode, Seeds


class PurifyScope(StrEnum):
    """Whose trajectories are purified."""

    ALL = "all"
    SUCCESSFUL = "successful"
    """Only those that solved the task, so that no corrected code is suppressed because of a wrong answer."""


class OnUnrepaired(StrEnum):
    """What happens to a failure that no attempt corrected."""

    KEEP_ATTEMPTS = "keep_attempts"
    """The true history: the failure and each attempt with its feedback, as far as they fit the response."""
    KEEP_FIRST = "keep_first"
    """The failure alone, as if there had been no lookahead."""
    DROP = "drop"
    """The rollout ends here and is not trained on."""


class Views(StrEnum):
    """Which views of a rollout that was repaired in hindsight are trained on, if its advantage is positive."""

    CLEAN = "clean"
    """The clean view alone."""
    FULL = "full"
    """Both views, each with the weight of a rollout."""
    ONE = "one"
    """One of the two, drawn by seed. Every rollout then gives one row, which some trainers need."""

    @property
    def two_rows(self) -> bool:
        """Return whether a rollout may give two rows."""
        return self is Views.FULL


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
        """Return the probability at a training step."""
        before, value = self.points[0]
        for after, following in self.points:
            if step < after:
                return value + (following - value) * max(0, step - before) / max(1, after - before)
            before, value = after, following
        return value


@dataclass(frozen=True, slots=True)
class RepairConfig:
    """How a verified correction enters the history, by SAAR and in hindsight."""

    threshold: float = 0.5
    """γ: at this similarity or above the action is grafted, below it the reasoning is replaced too. 0 always grafts;
    anything above 1 always replaces."""
    measure: str = "difflib"
    """How similarity is measured; see `similarity`."""
    refuse_stale: bool = False
    """Refuse a replacement whose reasoning mentions the error that it removes. Off, as in the paper: it is reported."""
    min_similarity: float = 0.3
    """On logs, a later call that is less similar than this is taken for another one, and the failure is left alone. In
    training every verified correction is taken, as in the paper."""


@dataclass(frozen=True, slots=True)
class PurifyConfig:
    """Which rollouts are purified, with how many attempts, and what happens if no attempt works."""

    attempts: int = 3
    """K: corrections that a lookahead samples at most. Hindsight samples none."""
    repair: RepairConfig = RepairConfig()
    probability: float | Schedule = 1.0
    """The share of trajectories that is purified; 0.7 in the paper's 7B recipe."""
    scope: PurifyScope | None = None
    """Whose trajectories are purified. None: for SAAR all, as in the paper; for hindsight those that solved the task,
    because hindsight on all rollouts diverged with one of three seeds."""
    on_unrepaired: OnUnrepaired = OnUnrepaired.KEEP_ATTEMPTS
    in_evaluation: bool = False
    """Whether rollouts of an evaluation are repaired. Off: a score is the model's own."""
    skip_last_turn: bool = False
    """SAAR leaves a failure in the last turn of the budget alone, because no answer can follow its correction. It stays
    as it was sampled, whatever `on_unrepaired` says. Off, as in the paper."""
    max_logprob_gap: float | None = None
    """Refuse a repair whose moved tokens lose more log-prob than this on average; None refuses no repair."""
    views: Views = Views.CLEAN
    """Which views of a repaired rollout are trained on; trainers ask for it."""
    mass: float | None = None
    """How much a right rollout counts whose failed calls were repaired in hindsight, where any other counts 1. Its rows
    share it evenly, by their advantages. None: each of its rows counts 1, so both views count 2 together."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}; a lookahead needs at least 1")
        if not isinstance(self.probability, Schedule):
            _check_probability(self.probability)
        check_mass(self.mass)
        # A recipe file gives plain words; a misspelt one must not pass for the default.
        if self.scope is not None:
            object.__setattr__(self, "scope", PurifyScope(self.scope))
        object.__setattr__(self, "on_unrepaired", OnUnrepaired(self.on_unrepaired))
        object.__setattr__(self, "views", Views(self.views))

    def scope_of(self, mode: RepairMode) -> PurifyScope:
        """Return whose trajectories a mode purifies: `scope`, or the mode's own default."""
        if self.scope is not None:
            return self.scope
        return PurifyScope.ALL if mode is RepairMode.SAAR else PurifyScope.SUCCESSFUL

    def applies(self, seeds: Seeds, step: int, phase: Phase) -> bool:
        """Return whether this rollout is purified. Sampling by `probability` is seeded, and disabled in evaluation."""
        if phase is Phase.EVALUATION:
            return self.in_evaluation
        schedule = self.probability
        probability = schedule.at(step) if isinstance(schedule, Schedule) else schedule
        return seeds.choice("purify") < probability * 2**63


def check_mass(mass: float | None) -> None:
    """Raise `ValueError` for a mass that would leave out right rollouts, or suppress them."""
    if mass is not None and not 0 < mass < float("inf"):
        raise ValueError(f"mass is {mass}; give a number above 0, or none for a mass of 1 per row")


def _check_probability(probability: float) -> None:
    if not 0 <= probability <= 1:
        raise ValueError(f"{probability} isn't a probability; give a number from 0 to 1")
