"""Reports a training run: its held-out accuracy, and what its groups could teach about the first call.

Held-out accuracy is measured with repair off; the gain is that from the first to the last evaluation. The report warns
if the first-call signal is near 0.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from cleaner_rl.evaluate.bootstrap import mean
from cleaner_rl.evaluate.measures import measure
from cleaner_rl.evaluate.paired import difference
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.tools import read_json
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import read

Rates = Mapping[str, Rate]
"""For each held-out task how many of its rollouts were right, without infrastructure faults."""
WEAK_SIGNAL = 0.05
"""A first-call signal below this is near 0.

In 55 runs of 60 steps in `benchmarks/results/lab`, the share of held-out first calls that work rose by a median of 12
points in the 18 runs whose mean signal was below 0.05, and of 52 points in the others. No run was between 0.043 and
0.067.
"""
GOOD_CALLS = 0.95
"""The share of the model's own calls that work from which the report doesn't warn: there is little left to learn."""


def train_report(folder: str | Path, parts: Sequence[Path] = ()) -> str | None:
    """Write `report.md` and `report.json` into a training run's folder, and return the Markdown text.

    Args:
        folder: The run's folder, as `cleaner_rl.train.train` returns it.
        parts: The folders of the run's stages, in order; by default the run has none.

    Returns:
        The report, or None if the run has neither evaluated nor trained.

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
    signals = [found for part in parts if (found := signal(part)) is not None]
    if not lines and not signals:
        return None
    gain = asdict(difference(measured[0], measured[-1])) if measured else None
    return {"held_out": lines, "gain": gain, "signal": signals}


def signal(part: Path) -> dict[str, object] | None:
    """Return what the groups of a part could teach, as means over its steps; None if its metrics don't say."""
    metrics = part / "metrics.jsonl"
    if not metrics.exists():
        return None
    lines = metrics.read_text(encoding="utf-8").splitlines()
    steps = [found for line in lines if "zero_variance_share" in (found := read_json(line)["metrics"])]
    if not steps:
        return None
    # A step in which every group has zero variance logs no first-call signal, and teaches nothing.
    first_call = fmean([step.get("first_call_signal", 0.0) for step in steps])
    unaided = [step["first_attempt_success"] for step in steps if "first_attempt_success" in step]
    return {
        "part": part.name,
        "steps": len(steps),
        "zero_variance_share": fmean([step["zero_variance_share"] for step in steps]),
        "first_call_signal": first_call,
        "weak": first_call < WEAK_SIGNAL and bool(unaided) and fmean(unaided) < GOOD_CALLS,
    }


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
    return "\n".join([*_held_out(found), *_signal(found["signal"])]).strip() + "\n"


def _held_out(found: Mapping[str, Any]) -> Iterator[str]:
    if not found["held_out"]:
        return
    yield from (
        "Held-out tasks, repair off; 95 % intervals over tasks.",
        "",
        "| part | step | accuracy | interval | failed calls per trajectory | tasks |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    )
    for line in found["held_out"]:
        interval = f"{line['low']:.3f} to {line['high']:.3f}" if line["low"] is not None else ""
        yield (
            f"| {line['part']} | {line['step']} | {line['value']:.3f} | {interval} "
            f"| {line['errors_per_trajectory']:.2f} | {line['problems']} |"
        )
    gain = found["gain"]
    if gain["low"] is not None:
        here, large = (f"{gain[f'{of}low']:+.3f} to {gain[f'{of}high']:+.3f}" for of in ("here_", ""))
        yield ""
        yield (
            f"From the first to the last: {gain['value']:+.3f}, for these tasks {here}, for tasks at large {large}; "
            f"p = {gain['p']:.2g}."
        )


def _signal(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not parts:
        return
    yield from (
        "",
        "What the groups could teach about the first call, as means over steps.",
        "",
        "| part | steps | zero-variance groups | first-call signal |",
        "| --- | ---: | ---: | ---: |",
    )
    for each in parts:
        yield (
            f"| {each['part']} | {each['steps']} | {each['zero_variance_share']:.1%} "
            f"| {each['first_call_signal']:+.3f} |"
        )
    for each in parts:
        if each["weak"]:
            yield ""
            yield _warning(each)


def _warning(part: Mapping[str, Any]) -> str:
    alike = part["zero_variance_share"]
    return (
        f"Warning: in {part['part']} the first-call signal is {part['first_call_signal']:+.3f}, near 0 (below "
        f"{WEAK_SIGNAL}). Calls still fail, but the groups hardly reinforce a first call that works. Either right and "
        "wrong rollouts begin with a working call equally often: repair right rollouts (method: hindsight, "
        f"purify.scope: successful). Or too few groups have both: here {alike:.0%} have zero variance; choose tasks "
        "that the model solves sometimes, or sample more rollouts per task (batch.rollouts)."
    )
