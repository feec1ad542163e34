"""What an evaluation found, as plain data: to JSON and back without loss, so reports and comparisons need no run.

Limits: the trajectories themselves stay in the store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

from cleaner_rl.evaluate.bootstrap import Estimate
from cleaner_rl.evaluate.paired import Difference

FORMAT = 1
"""Raised by a change after which older files can't be read as they are."""


class ResultsError(ValueError):
    """A file that holds no results, or not in a form that this release knows."""


class Repair(StrEnum):
    """Whether failures were repaired while the model was judged."""

    OFF = "off"
    """The model alone: what a claim rests on."""
    ON = "on"


@dataclass(frozen=True, slots=True)
class Rate:
    """Right answers of one problem."""

    right: int
    judged: int
    """Samples that a grader judged; faults are not among them."""

    @property
    def share(self) -> Fraction:
        """Right among judged."""
        return Fraction(self.right, self.judged)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of running a set of problems, in figures."""

    problems: Mapping[str, Rate]
    figures: Mapping[str, Estimate]
    faults: Mapping[str, int] = field(default_factory=dict)
    """Samples that are in no figure, by what broke."""
    endings: Mapping[str, int] = field(default_factory=dict)
    """Why the judged samples ended."""
    mended: Mapping[str, Rate] = field(default_factory=dict)
    """Of the recovery benchmark: by problem, failures recovered from among those put in."""

    @property
    def rates(self) -> dict[str, Fraction]:
        """The share of right answers by problem."""
        return {problem: rate.share for problem, rate in self.problems.items()}


@dataclass(frozen=True, slots=True)
class SetResult:
    """A set of problems, run without repair, with it, or both."""

    name: str
    samples: int
    """Asked for, for each problem."""
    unit: str
    """Of lengths: tokens, or characters where a server gives only text."""
    arms: Mapping[Repair, Arm]
    difference: Difference | None = None
    """pass@1 with repair minus without, where both were run."""

    @property
    def judged(self) -> int:
        """Problems that every figure rests on: of the others, faults left no sample in one of the arms."""
        return min(len(arm.problems) for arm in self.arms.values())

    @property
    def run(self) -> int:
        """Problems that were run, judged or not."""
        arms = self.arms.values()
        ends = (sum(rate.judged for rate in arm.problems.values()) + sum(arm.faults.values()) for arm in arms)
        return max(ends) // self.samples


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What the model did after failures that were put into its mouth; repair is always off."""

    overall: Arm
    kinds: Mapping[str, Arm]
    """By kind of failure. `problems` counts final answers, as everywhere."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that one model was measured at."""

    model: str
    settings: Mapping[str, object]
    """What the figures depend on: sampling, budgets, prompt, seeds, versions."""
    sets: tuple[SetResult, ...]
    recovery: RecoveryResult | None = None

    @property
    def faults(self) -> Counter[str]:
        """Samples that are in no figure, by what broke, over all that was run."""
        arms = [arm for each in self.sets for arm in each.arms.values()]
        arms += [] if self.recovery is None else [self.recovery.overall]
        return sum((Counter(arm.faults) for arm in arms), Counter())

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Evaluation:
        """What `to_json` gave."""
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            found = values.get("format") if isinstance(values, Mapping) else None
            raise ResultsError(f"these are no results of format {FORMAT} (found: {found}); run `cleaner eval` again")
        recovery = values["recovery"]
        return cls(
            model=values["model"],
            settings=values["settings"],
            sets=tuple(map(_set, values["sets"])),
            recovery=recovery
            and RecoveryResult(
                _arm(recovery["overall"]), {kind: _arm(each) for kind, each in recovery["kinds"].items()}
            ),
        )


def read_results(path: Path) -> Evaluation:
    """The results in a file, or in the folder that `cleaner eval` wrote."""
    file = path / "results.json" if path.is_dir() else path
    try:
        return Evaluation.from_json(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ResultsError(
            f"there is no {file}; give the folder or the results.json that `cleaner eval` wrote"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{file} can't be read as results: {error}") from error


def _set(values: Mapping[str, Any]) -> SetResult:
    return SetResult(
        name=values["name"],
        samples=values["samples"],
        unit=values["unit"],
        arms={Repair(name): _arm(arm) for name, arm in values["arms"].items()},
        difference=values["difference"] and Difference(**values["difference"]),
    )


def _arm(values: Mapping[str, Any]) -> Arm:
    return Arm(
        problems={problem: Rate(**rate) for problem, rate in values["problems"].items()},
        figures={name: Estimate(**estimate) for name, estimate in values["figures"].items()},
        faults=values["faults"],
        endings=values["endings"],
        mended={problem: Rate(**rate) for problem, rate in values["mended"].items()},
    )
