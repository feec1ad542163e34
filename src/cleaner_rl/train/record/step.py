"""Records what a step sampled and what was trained on: in the store, and as metrics.

One line per step goes to `metrics.jsonl` beside the store, and the trainer gets the same figures under `cleaner/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from cleaner_rl.resample import REFILL_MESSAGES, PlainConfig, RefillReason, RocConfig
from cleaner_rl.rollout import RescueTry
from cleaner_rl.train.record.figures import figures_of, group_figures, quality, rescue_figures
from cleaner_rl.train.record.folder import ABANDONED, RunFolder
from cleaner_rl.train.rows import Graded, RowGroup
from cleaner_rl.train.rows.verdicts import with_verdicts
from cleaner_rl.trajectory import TokenSpan

LEFT_OUT = {
    "too_small": REFILL_MESSAGES[RefillReason.TOO_SMALL],
    "zero_variance": "the group was refilled: all of its rollouts solved the task, or none did",
    "stale": "the group was refilled: the weights that sampled it are too old",
    "surplus": "the group was not needed: enough others had ended by then",
}
"""Why groups aren't trained on. Figures of a step are over those that are; the store has them all."""
PATIENCE = 10
"""How many times a step's groups may be given up, though nothing broke, before the run ends; DAPO's own figure."""
HELD = 1_024
"""Trajectories that wait in memory to be written: a step without an end must not fill it."""


class TooManyFaultsError(RuntimeError):
    """More rollouts were infrastructure faults than `faults.max_share` allows."""


class TooFewRowsError(RuntimeError):
    """So many rollouts were excluded that too few groups are large enough to train on."""


class NothingToLearnError(RuntimeError):
    """So many groups have zero variance that no batch can be filled."""


@dataclass(frozen=True, slots=True)
class StepConfig:
    """Says how large a step is, and when it has failed."""

    run: str
    """Name of the run."""
    groups: int
    """Groups that a step trains on."""
    rollouts: int
    """Rollouts that are sampled for a group."""
    max_fault_share: float = 0.2
    """The share of a step's rollouts that may be faults (`faults.max_share` of a recipe)."""


class StepRecord:
    """Collects a step's groups and writes them down; `finish` returns their figures."""

    def __init__(self, folder: Path, config: StepConfig) -> None:
        self._folder, self._config = RunFolder(folder, config.run), config
        self._begin()

    def _begin(self) -> None:
        self._rows: list[Graded] = []
        self._kept: list[Graded] = []
        self._unwritten: list[Graded] = []
        self._absent = 0
        self._left_out = 0
        self._groups = 0
        self._evicted: Counter[str] = Counter()
        self._all_solved = 0
        self._alike = 0
        self._tokens = 0
        self._rescues = rescue_figures(())

    def evicted(self, why: str, rows: Sequence[Graded], absent: int) -> None:
        """A group was given up, for one of the reasons of `LEFT_OUT`; `absent` of its rollouts were faults."""
        self._evicted[why] += 1
        verdict = {"kept": False, "why": LEFT_OUT[why], "penalty": None, "advantage": None}
        self._all_solved += why == "zero_variance" and all(row.success for row in rows)
        self._unwritten += [replace(row, info=replace(row.info, verdict=verdict)) for row in rows]
        self._tokens += _sampled(rows)
        self._absent += max(0, absent)
        self._groups += 1
        if len(self._unwritten) >= HELD:
            self._write()

    def selected(self, rows: Sequence[Graded], made: RowGroup, config: RocConfig | PlainConfig, absent: int) -> None:
        """A group was selected from; `absent` of its rollouts were faults."""
        told = with_verdicts(rows, made, config)
        self._rows += [row for row in told if row.info.rescued is None]
        self._unwritten += told
        kept = [told[index] for index in made.selection.kept]
        self._kept += kept
        self._alike += len({row.reward for row in kept}) == 1
        self._tokens += _sampled(rows)
        self._absent += max(0, absent)
        self._groups += 1

    def tried(self, rescue: RescueTry[TokenSpan]) -> None:
        """A group that was all wrong had a rescue; if that found a rollout, it is among the group's."""
        self._rescues = {name: self._rescues[name] + value for name, value in rescue_figures([rescue]).items()}
        self._tokens += rescue.tokens

    def left_out(self, count: int) -> None:
        """So many rollouts gave no row, and were no faults."""
        self._left_out += count

    def evaluated(self, rows: Sequence[Graded], absent: int) -> None:
        """Rollouts on held-out tasks, of which so many were faults; raise if those are too many."""
        self._unwritten += rows
        share = absent / max(1, absent + len(rows))
        if share > self._config.max_fault_share:
            # Too few to be an evaluation, and made again by a run that goes on.
            self._write(ABANDONED)
            raise TooManyFaultsError(self._too_many(f"{share:.0%} of an evaluation's rollouts"))

    def fault_share(self) -> float:
        """Of the rollouts of this step's groups so far."""
        drawn = self._groups * self._config.rollouts
        return self._absent / drawn if drawn else 0.0

    def check(self) -> None:
        """Raise if the step can't succeed, after everything that was sampled is written."""
        error = self._too_many_faults() or self._too_few_rows() or self._nothing_to_learn()
        if error is not None:
            self._write()
            raise error

    def _too_many_faults(self) -> TooManyFaultsError | None:
        """A step's worth of groups is needed to say so."""
        share = self.fault_share()
        if self._groups < self._config.groups or share <= self._config.max_fault_share:
            return None
        return TooManyFaultsError(self._too_many(f"{share:.0%} of this step's rollouts"))

    def _too_few_rows(self) -> TooFewRowsError | None:
        if not self._left_out or not self._often("too_small"):
            return None
        return TooFewRowsError(
            f"{self._evicted['too_small']} groups of this step were too small to learn from: of {self._groups} "
            f"groups' rollouts {self._left_out} were dropped (purify.on_unrepaired) or ran out of time "
            "(budget.seconds). Keep failures (keep_first), give more time, or begin with a model that fails less"
        )

    def _nothing_to_learn(self) -> NothingToLearnError | None:
        if not self._often("zero_variance"):
            return None
        alike = self._evicted["zero_variance"]
        return NothingToLearnError(
            f"{alike} of this step's {self._groups} groups are zero-variance groups: in {self._all_solved} of them "
            f"all rollouts solved the task, in {alike - self._all_solved} none did. Train on tasks that this model "
            "solves sometimes, sample more rollouts of each (batch.rollouts), or keep such groups "
            "(batch.dynamic_sampling=false)"
        )

    def _often(self, why: str) -> bool:
        return self._evicted[why] >= PATIENCE * self._config.groups

    def _too_many(self, what: str) -> str:
        return (
            f"{what} were faults, more than the {self._config.max_fault_share:.0%} of faults.max_share; the workers' "
            "log says which. Nothing of them was trained on: fix the cause and run the same command again"
        )

    def finish(self, step: int, partition: str, *, whole: bool = True) -> dict[str, float]:
        """Write what was collected; the step's figures, once it is `whole`."""
        self.check()
        self._write()
        if partition == "val":
            self._begin()
            return {}
        if not whole:
            return {}
        figures = (
            figures_of(self._rows)
            | group_figures(self._rows)
            | {
                f"roc/{name}_{side}": value
                for side, side_rows in (("kept", self._kept), ("drawn", self._rows))
                for name, value in quality(side_rows).items()
            }
        )
        figures |= {
            "sampled_tokens": float(self._tokens),
            **self._rescues,
            "faults": float(self._absent),
            "left_out": float(self._left_out),
            "fault_share": self.fault_share(),
            "zero_variance_groups": float(self._alike + self._evicted["zero_variance"]),
            **{f"groups/{why}": float(self._evicted[why]) for why in LEFT_OUT},
        }
        figures = {name: value for name, value in figures.items() if isfinite(value)}
        self._folder.note(step, figures)
        self._begin()
        return {f"cleaner/{name}": value for name, value in figures.items()}

    def _write(self, where: str = "") -> None:
        self._folder.write(self._unwritten, where)
        self._unwritten = []


def _sampled(rows: Sequence[Graded]) -> int:
    """What rollouts sampled. Rescues are counted as they are tried, because most of them give no rollout."""
    return sum(row.info.sampled or 0 for row in rows if row.info.rescued is None)
