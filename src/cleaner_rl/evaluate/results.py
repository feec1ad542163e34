"""What an evaluation found, as plain data: to JSON and back without loss, so reports and comparisons need no run.

Limits: the trajectories themselves stay in the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from cleaner_rl.evaluate.bootstrap import Estimate
from cleaner_rl.evaluate.paired import Difference
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.tools import read_json

FORMAT = 1
"""Raised by a change after which older files can't be read as they are."""


class ResultsError(ValueError):
    """A file holds no results, or not in a form that this release knows."""


class Repair(StrEnum):
    """Whether failures were repaired while the model was judged."""

    OFF = "off"
    """The model by itself: report this figure."""
    ON = "on"


@dataclass(frozen=True, slots=True)
class RunScore:
    """The scores of one run mode on a set of problems."""

    problems: Mapping[str, Rate]
    figures: Mapping[str, Estimate]
    faults: Mapping[str, int] = field(default_factory=dict)
    """Samples that are in no figure, by what broke."""
    stop_reasons: Mapping[str, int] = field(default_factory=dict)
    """Why the judged samples ended."""
    repaired: Mapping[str, Rate] = field(default_factory=dict)
    """For the recovery benchmark: by problem, how many of the injected failures the model recovered from."""
    bounds: tuple[float, float] | None = None
    """pass@1 if the samples that are in no figure were all wrong, and if they were all right; None: there are none."""


@dataclass(frozen=True, slots=True)
class SetResult:
    """The results of a set of problems: without repair, with it, or both."""

    name: str
    samples: int
    """Samples per problem that were asked for."""
    unit: str
    """Unit of lengths: tokens, or characters if a server returns only text."""
    runs: Mapping[Repair, RunScore]
    difference: Difference | None = None
    """pass@1 with repair minus without, where both were run."""

    @property
    def judged(self) -> int:
        """Return the number of problems behind every figure; the others have a run in which faults left no sample."""
        return min(len(run.problems) for run in self.runs.values())

    @property
    def run(self) -> int:
        """Return the number of problems that were run, graded or not."""
        runs = self.runs.values()
        ends = (sum(rate.judged for rate in run.problems.values()) + sum(run.faults.values()) for run in runs)
        return max(ends) // self.samples


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What the model did after injected failures; repair is always off."""

    overall: RunScore
    kinds: Mapping[str, RunScore]
    """By kind of failure. `problems` counts final answers, as everywhere."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All results of one model."""

    model: str
    settings: Mapping[str, object]
    """What the figures depend on: sampling, budgets, prompt, seeds, versions."""
    sets: tuple[SetResult, ...]
    recovery: RecoveryResult | None = None
    store: str = ""
    """Where its rollouts are, from the folder of the results; empty in results of earlier releases."""

    @property
    def faults(self) -> Counter[str]:
        """Return the samples that are in no figure, by what broke, over all that was run."""
        runs = [run for each in self.sets for run in each.runs.values()]
        runs += [] if self.recovery is None else [self.recovery.overall]
        return sum((Counter(run.faults) for run in runs), Counter())

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Evaluation:
        """Read what `to_json` returned."""
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            found = values.get("format") if isinstance(values, Mapping) else None
            raise ResultsError(
                f"the file holds no results of format {FORMAT} (found: {found}); run `cleaner eval` again"
            )
        recovery = values["recovery"]
        return cls(
            model=values["model"],
            settings=values["settings"],
            sets=tuple(map(_set, values["sets"])),
            recovery=recovery
            and RecoveryResult(
                _run(recovery["overall"]), {kind: _run(each) for kind, each in recovery["kinds"].items()}
            ),
            store=values.get("store", ""),
        )


def read_results(path: Path) -> Evaluation:
    """Read the results from a file, or from the folder that `cleaner eval` wrote."""
    file = path / "results.json" if path.is_dir() else path
    try:
        return Evaluation.from_json(read_json(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ResultsError(
            f"there is no {file}; give the folder or the results.json that `cleaner eval` wrote"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{file} can't be read as results: {error}") from error


def _set(values: Mapping[str, Any]) -> SetResult:
    return SetResult(
        name=values["name"],
        samples=values["samples"],
        unit=values["unit"],
        runs={Repair(name): _run(run) for name, run in values["runs"].items()},
        difference=values["difference"] and Difference(**values["difference"]),
    )


def _pair(values: Sequence[float] | None) -> tuple[float, float] | None:
    return None if values is None else (values[0], values[1])


def _run(values: Mapping[str, Any]) -> RunScore:
    return RunScore(
        problems={problem: Rate(**rate) for problem, rate in values["problems"].items()},
        figures={name: Estimate(**estimate) for name, estimate in values["figures"].items()},
        faults=values["faults"],
        stop_reasons=values["stop_reasons"],
        repaired={problem: Rate(**rate) for problem, rate in values["repaired"].items()},
        bounds=_pair(values.get("bounds")),
    )
