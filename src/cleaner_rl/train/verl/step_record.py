"""Records what a step sampled and what was trained on: in the store, and as metrics.

One line per step goes to `metrics.jsonl` beside the store, and the same figures go to verl under `cleaner/`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path

from cleaner_rl.purify import logprob_gap
from cleaner_rl.resample import REFILL_MESSAGES, PlainConfig, RefillReason, RocConfig, learning_signal
from cleaner_rl.rollout import RescueTry
from cleaner_rl.train.launch.rewind import ABANDONED, METRICS
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.train.rows import Graded, RowGroup
from cleaner_rl.train.rows.verdicts import with_verdicts
from cleaner_rl.trajectory import RepairKind, TokenSpan, failures_repaired, first_attempt_tally, residual_tally
from cleaner_rl.trajectory.store import ParquetWriter

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


class StepRecord:
    """Collects a step's groups and writes them down; `finish` returns their figures."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self._recipe, self._folder = recipe, folder
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
        self._unwritten += [replace(row, info=replace(row.info, roc=verdict)) for row in rows]
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
        if share > self._recipe.faults.max_share:
            # Too few to be an evaluation, and made again by a run that goes on.
            self._write(ABANDONED)
            raise TooManyFaultsError(self._too_many(f"{share:.0%} of an evaluation's rollouts"))

    def fault_share(self) -> float:
        """Of the rollouts of this step's groups so far."""
        drawn = self._groups * self._recipe.sampled
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
        if self._groups < self._recipe.batch.prompts or share <= self._recipe.faults.max_share:
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
        return self._evicted[why] >= PATIENCE * self._recipe.batch.prompts

    def _too_many(self, what: str) -> str:
        return (
            f"{what} were faults, more than the {self._recipe.faults.max_share:.0%} of faults.max_share; the workers' "
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
                for name, value in _quality(side_rows).items()
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
        self._append(step, figures)
        self._begin()
        return {f"cleaner/{name}": value for name, value in figures.items()}

    def _write(self, where: str = "") -> None:
        with ParquetWriter(self._folder / where / "trajectories") as writer:
            for row in self._unwritten:
                writer.write(row)
        self._unwritten = []

    def _append(self, step: int, figures: dict[str, float]) -> None:
        line = json.dumps({"run": self._recipe.name, "step": step, "metrics": figures})
        with (self._folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def figures_of(rows: Sequence[Graded]) -> dict[str, float]:
    """Means over some trajectories; NaN where there is nothing to take a mean of."""
    edits = [edit for row in rows for _, edit in row.edits]
    first = [first_attempt_tally(row) for row in rows]
    gaps = [found for row in rows if (found := _gaps(row))]
    alike = [edit.similarity for edit in edits if edit.similarity is not None]
    failed = sum(tally.failed for tally in first)
    calls = sum(tally.calls for tally in first)
    return {
        "reward": _mean([row.reward or 0.0 for row in rows]),
        "accuracy": _mean([float(bool(row.success)) for row in rows]),
        "tokens": _mean([float(len(row)) for row in rows]),
        "turns": _mean([float(len(row.turns)) for row in rows]),
        "errors_per_trajectory": _mean([float(residual_tally(row).failed) for row in rows]),
        "first_attempt_errors_per_trajectory": _mean([float(tally.failed) for tally in first]),
        "first_attempt_success": 1 - failed / calls if calls else float("nan"),
        "repaired": _mean([float(repaired) for row in rows for repaired in failures_repaired(row)]),
        "repairs_tried": _mean([float(sum(1 for _, edit in row.edits)) for row in rows]),
        "grafts": _count(rows, RepairKind.GRAFT),
        "replacements": _count(rows, RepairKind.REPLACE),
        "refused": _count(rows, RepairKind.NONE),
        "similarity": _mean(alike),
        "logprob_gap": _mean([_mean(found) for found in gaps]),
        "logprob_gap_max": max((value for found in gaps for value in found), default=float("nan")),
        "lookahead_tokens": _mean([row.info.lookahead or 0.0 for row in rows]),
        "seconds": _mean([row.info.seconds or 0.0 for row in rows]),
    }


def group_figures(rows: Sequence[Graded]) -> dict[str, float]:
    """What the groups of a step can teach; NaN where there is nothing to compare."""
    signal = learning_signal(rows)
    return {"zero_variance_share": signal.zero_variance, "first_call_signal": signal.first_call}


def rescue_figures(rescues: Iterable[RescueTry[TokenSpan]]) -> dict[str, float]:
    """How many groups had a rescue, how many of them got a right rollout by it, and what all rescues sampled."""
    tries = list(rescues)
    return {
        "rescue_tries": float(len(tries)),
        "rescues": float(sum(each.rescued is not None for each in tries)),
        "rescue_tokens": float(sum(each.tokens for each in tries)),
    }


def _sampled(rows: Sequence[Graded]) -> int:
    """What rollouts sampled. Rescues are counted as they are tried, because most of them give no rollout."""
    return sum(row.info.sampled or 0 for row in rows if row.info.rescued is None)


def _quality(rows: Sequence[Graded]) -> dict[str, float]:
    return {
        "errors": _mean([float(residual_tally(row).failed) for row in rows]),
        "accuracy": _mean([float(bool(row.success)) for row in rows]),
    }


def _gaps(row: Graded) -> list[float]:
    return [lost for turn in row.turns if (lost := logprob_gap(turn)) is not None]


def _count(rows: Sequence[Graded], kind: RepairKind) -> float:
    return _mean([float(sum(edit.kind is kind for _, edit in row.edits)) for row in rows])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
