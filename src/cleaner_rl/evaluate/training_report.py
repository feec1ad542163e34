"""Reports a training run: held-out accuracy per evaluation with repair off, and the gain from the first to the last."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cleaner_rl.evaluate.bootstrap import mean
from cleaner_rl.evaluate.measures import measure
from cleaner_rl.evaluate.paired import difference
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import read

Rates = Mapping[str, Rate]
"""For each held-out task how many of its rollouts were right, without infrastructure faults."""


def train_report(folder: str | Path, parts: Sequence[Path] = ()) -> str | None:
    """Write `report.md` and `report.json` into a training run's folder, and return the Markdown text.

    Args:
        folder: The run's folder, as `cleaner_rl.train.train` returns it.
        parts: The folders of the run's stages, in order; by default the run has none.

    Returns:
        The report, or None if the run has evaluated nothing.

    Example:
        ```python
        from cleaner_rl.evaluate import train_report

        print(train_report("runs/saar-4b"))
        ```
    """
    folder = Path(folder)
    found = report(parts or [folder])
    if found is None:
        return None
    (folder / "report.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    text = _markdown(found)
    (folder / "report.md").write_text(text, encoding="utf-8")
    return text


def report(parts: Sequence[Path]) -> dict[str, object] | None:
    """Return the figures of a run's parts in order, and the gain of the last evaluation over the first."""
    lines: list[dict[str, object]] = []
    measured: list[Rates] = []
    for part in parts:
        for step, (rates, errors) in evaluations(part / "trajectories").items():
            estimate = mean([float(rate.share) for rate in rates.values()], share=True)
            lines.append({"part": part.name, "step": step, **asdict(estimate), "errors_per_trajectory": errors})
            measured.append(rates)
    if not lines:
        return None
    return {"held_out": lines, "gain": asdict(difference(measured[0], measured[-1]))}


def evaluations(store: Path) -> dict[int, tuple[Rates, float]]:
    """Return, for each step at which a run was evaluated, its tasks' rates and the failed calls per trajectory."""

    right: dict[int, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    failed: dict[int, list[int]] = defaultdict(list)
    for trajectory in read(store, Phase.EVALUATION):
        sample = measure(trajectory)
        if sample.right is not None:
            right[trajectory.key.step][sample.task].append(sample.right)
            failed[trajectory.key.step].append(sample.failed_left)
    return {
        step: (
            {task: Rate(sum(each), len(each)) for task, each in tasks.items()},
            sum(failed[step]) / len(failed[step]),
        )
        for step, tasks in sorted(right.items())
    }


def _markdown(found: Mapping[str, Any]) -> str:
    lines = ["Held-out tasks, repair off; 95 % intervals over tasks.", ""]
    lines += [
        "| part | step | accuracy | interval | failed calls per trajectory | tasks |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for line in found["held_out"]:
        interval = f"{line['low']:.3f} to {line['high']:.3f}" if line["low"] is not None else ""
        lines.append(
            f"| {line['part']} | {line['step']} | {line['value']:.3f} | {interval} "
            f"| {line['errors_per_trajectory']:.2f} | {line['problems']} |"
        )
    gain = found["gain"]
    if gain["low"] is not None:
        here, large = (f"{gain[f'{of}low']:+.3f} to {gain[f'{of}high']:+.3f}" for of in ("here_", ""))
        lines += [
            "",
            f"From the first to the last: {gain['value']:+.3f}, for these tasks {here}, for tasks at large {large}; "
            f"p = {gain['p']:.2g}.",
        ]
    return "\n".join(lines) + "\n"
