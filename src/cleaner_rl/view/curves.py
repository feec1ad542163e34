"""Runs, and curves over their training steps: from the index, and from the metrics that a trainer logged.

A metrics file has one object a line, `{"run": "saar", "step": 12, "metrics": {"reward": 0.41, …}}`. Of one step given
twice the last counts. verl's own file logger writes `data` for `metrics` and no run: read too. Where both a log and the
store know a curve, the log's is shown, because a trainer sees what the store may not hold.

A log is that of the run of its name in its own folder; if there is none there, of the only one of that name that has no
log; else it is a run by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner_rl.tools import read_json
from cleaner_rl.view.sources import Sources, store_of

if TYPE_CHECKING:
    from cleaner_rl.view.index import Index

CURVES: Mapping[str, str] = {
    "reward": "avg(reward)",
    "accuracy": "avg(CASE WHEN success THEN 1.0 WHEN NOT success THEN 0.0 END)",
    "errors_per_trajectory": "avg(failed)",
    "first_attempt_success": "1 - sum(first_failed) / nullif(sum(first_calls), 0)",
    "repaired": "sum(repaired_turns) / nullif(sum(failed_turns), 0)",
    "grafts": "avg(grafts)",
    "replacements": "avg(replacements)",
    "logprob_gap": "avg(logprob_gap)",
    "tokens": "avg(CASE WHEN tokens THEN length END)",
}
"""What the store itself knows of a step; under each name the same as a trainer logs."""
RENAMED = {
    "mended": "repaired",
    "graft_gap": "logprob_gap",
    "graft_gap_max": "logprob_gap_max",
    "groups/equal_rewards": "groups/zero_variance",
}
"""Names in logs of earlier releases, and what they are called now."""
Series = dict[int, float]


@dataclass(slots=True)
class Run:
    """One run, with its curves."""

    id: str
    trajectories: int = 0
    steps: int = 0
    tasks: int = 0
    curves: dict[str, Series] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    """Names of those that come from a log."""
    log: Path | None = None
    """Which one: a run has no two."""

    def add(self, log: Path, curves: Mapping[str, Series]) -> None:
        """Take what a log says."""
        self.log = log
        self.curves |= curves
        self.logged |= curves.keys()
        self.steps = max(self.steps, *(len(series) for series in curves.values()), 0)

    def to_json(self) -> dict[str, object]:
        """With each curve as steps and values."""
        curves = {
            name: {"steps": sorted(series), "values": [series[step] for step in sorted(series)]}
            for name, series in self.curves.items()
            if series
        }
        about = {"id": self.id, "trajectories": self.trajectories, "steps": self.steps, "tasks": self.tasks}
        return {**about, "curves": curves, "logged": sorted(self.logged)}


def runs(index: Index, sources: Sources) -> list[Run]:
    """All runs, by name."""
    found: dict[str, Run] = {}
    counted = index.rows(
        "SELECT run_id AS id, count(*) AS trajectories, count(DISTINCT step) AS steps, "
        "count(DISTINCT task) AS tasks FROM trajectories GROUP BY id"
    )
    for row in counted:
        found[row["id"]] = Run(**row)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in CURVES.items())
    for row in index.rows(f"SELECT run_id AS id, step, {columns} FROM trajectories GROUP BY id, step"):
        for name in CURVES:
            if row[name] is not None and isfinite(row[name]):
                found[row["id"]].curves.setdefault(name, {})[row["step"]] = row[name]
    _add_logs(index, sources, found)
    return sorted(found.values(), key=lambda run: run.id)


def _add_logs(index: Index, sources: Sources, found: dict[str, Run]) -> None:
    others = []
    for path in sources.metrics:
        inside = path.is_relative_to(sources.root)
        store = store_of(path.relative_to(sources.root).as_posix()) if inside else ""
        for name, curves in _logged(path).items():
            own = index.run_id(store, name)
            if own in found and found[own].log in (None, path):
                found[own].add(path, curves)
            else:
                others.append((path, name, own, curves))
    for path, name, own, curves in others:
        # A run's id has its store's folder in front, wherever that lies; the log names the run alone.
        same = [run for run in found.values() if run.log is None and (run.id == name or run.id.endswith(f"/{name}"))]
        if len(same) == 1:
            same[0].add(path, curves)
        else:
            free = own if own not in found else f"{own} (in {path.parent.name})"
            found[free] = Run(free)
            found[free].add(path, curves)


def _logged(path: Path) -> dict[str, dict[str, Series]]:
    """The curves of a log's runs, by their names."""
    logged: dict[str, dict[str, Series]] = {}
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                record = read_json(line)
            except ValueError:
                continue  # a line that is being written, or none of a log
            if not isinstance(record, dict) or not isinstance(step := record.get("step"), int):
                continue
            values = record.get("metrics", record.get("data"))
            curves = logged.setdefault(str(record.get("run", path.parent.name)), {})
            for name, value in values.items() if isinstance(values, dict) else ():
                # A larger whole number than a float holds can't be drawn either.
                with suppress(OverflowError):
                    if isinstance(value, int | float) and isfinite(value):
                        curves.setdefault(RENAMED.get(name, str(name)), {})[step] = float(value)
    return logged
