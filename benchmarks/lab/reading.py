"""Reads the figures of a run's folder, by step.

| from | figures |
| --- | --- |
| `metrics.jsonl` | training: errors of first attempts, repairs, their log-prob gap, sampled tokens |
| the store | evaluation: held-out accuracy, first attempts, residual errors, length; repair is off |
| | training: which first calls the gradient reinforces (`reinforced`) |
| `verl-N.jsonl` | seconds of each step, and where they went; N counts the starts |

A resumed run continues from its last checkpoint; `cleaner train` sets aside what it did after that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from cleaner_rl.resample import learning_signal
from cleaner_rl.trajectory import AnyTrajectory, Phase, first_attempt_tally, residual_tally
from cleaner_rl.trajectory.store import read

ByStep: TypeAlias = dict[int, dict[str, float]]

TRAINING = {
    "accuracy": "accuracy",
    "first_attempt_errors_per_trajectory": "raw_errors",
    "errors_per_trajectory": "errors",
    "sampled_tokens": "sampled_tokens",
    "lookahead_tokens": "lookahead_tokens",
    "graft_gap": "logprob_gap",  # of earlier releases
    "logprob_gap": "logprob_gap",
    "grafts": "grafts",
    "replacements": "replacements",
    "refused": "refused",
    "roc/errors_kept": "errors_kept",
    "roc/errors_drawn": "errors_drawn",
    "faults": "faults",
    "groups/equal_rewards": "groups_refilled",  # of earlier releases
    "groups/zero_variance": "groups_refilled",
}
"""Figures of `cleaner train`, and their names here."""
OF_KINDS = ("accuracy", "first_call_works")
"""Figures that are given for each kind of task."""
BESIDE = ("testing", "save_checkpoint")
"""Parts of a step's time that aren't training."""


def training(folder: Path) -> ByStep:
    """Return the figures of each training step, with its seconds."""
    figures: ByStep = {}
    for line in read_lines(folder / "metrics.jsonl"):
        found = line["metrics"]
        figures[line["step"]] = {ours: found[theirs] for theirs, ours in TRAINING.items() if theirs in found}
    for step, seconds in _seconds(folder).items():
        if step in figures:
            figures[step] |= seconds
    for step, rows in _by_step(folder, Phase.TRAINING):
        if step in figures:
            figures[step] |= reinforced(rows)
    return figures


def reinforced(trajectories: Iterable[AnyTrajectory]) -> dict[str, float]:
    """Return which first calls the groups of a step reinforce."""
    found = learning_signal(trajectories)
    return {
        "zero_variance_groups": found.zero_variance,
        "works_if_right": found.works_if_right,
        "works_if_wrong": found.works_if_wrong,
    }


def evaluations(folder: Path, kind: Callable[[str], str] | None = None) -> ByStep:
    """Return the figures of each evaluation; with `kind`, which names a task's kind by its id, of each kind too."""
    found: ByStep = {}
    for step, rows in _by_step(folder, Phase.EVALUATION):
        found[step] = evaluated(rows)
        kinds = {each.key.task: kind(each.key.task) for each in rows} if kind else {}
        for name in sorted(set(kinds.values())):
            some = evaluated(each for each in rows if kinds[each.key.task] == name)
            found[step] |= {f"{figure}_{name}": some[figure] for figure in OF_KINDS}
    return found


def evaluated(trajectories: Iterable[AnyTrajectory]) -> dict[str, float]:
    """Average over the rollouts of an evaluation; infrastructure faults are counted and left out."""
    drawn = {(each.key.task, each.key.rollout): each for each in trajectories}
    rows = [each for each in drawn.values() if each.usable and each.success is not None]
    first = [first_attempt_tally(each) for each in rows]
    calls = [turn.results[0] for each in rows for turn in each.turns[:1] if turn.results]
    return {
        "rollouts": len(rows),
        "faults": len(drawn) - len(rows),
        "accuracy": _mean([float(bool(each.success)) for each in rows]),
        "first_call_works": _mean([float(not call.failed) for call in calls]),
        "errors": _mean([float(residual_tally(each).failed) for each in rows]),
        "calls": _mean([float(tally.calls) for tally in first]),
        "length": _mean([each.info.sampled or 0.0 for each in rows]),
    }


def models(folder: Path) -> dict[int, Path]:
    """Return the models that a run has saved, by step."""
    found = (folder / "checkpoints").glob("global_step_*/actor/huggingface")
    return dict(sorted((int(each.parts[-3].removeprefix("global_step_")), each) for each in found))


def _seconds(folder: Path) -> ByStep:
    """Of each step: all of it but evaluation and saving, and its parts."""
    starts = sorted(folder.glob("verl-*.jsonl"), key=lambda file: int(file.stem.removeprefix("verl-")))
    seconds: ByStep = {}
    for file in starts:
        for line in read_lines(file):
            found = {
                key.removeprefix("timing_s/"): float(value)
                for key, value in line["data"].items()
                if key.startswith("timing_s/")
            }
            if "step" in found:
                seconds[line["step"]] = _parts(found)
    return seconds


def _parts(found: Mapping[str, float]) -> dict[str, float]:
    """A step's seconds. An evaluation comes after verl's own "step", saving within it."""
    own = found["step"] - found.get("save_checkpoint", 0.0)
    parts = {"gen": "generation", "update_actor": "update", "update_weights": "weights", "old_log_prob": "old_logprobs"}
    return {
        "seconds": own,
        **{f"seconds_{ours}": found[theirs] for theirs, ours in parts.items() if theirs in found},
        **{f"seconds_{name}": found[name] for name in BESIDE if name in found},
    }


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of lines; a last line that was broken off isn't one."""
    if not path.exists():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _by_step(folder: Path, phase: Phase) -> Iterator[tuple[int, list[AnyTrajectory]]]:
    """What a run drew in each step of a phase, step by step."""
    store = folder / "trajectories"
    rows = (each for each in read(store, phase) if each.key.run == folder.name) if store.exists() else iter(())
    return ((step, list(some)) for step, some in groupby(rows, lambda each: each.key.step))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
