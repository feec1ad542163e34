"""One JSON file a run: seeds, commit, machine, hours, all figures by step. Written whenever the run stands still."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lab.reading import ByStep, evaluations, training
from benchmarks.lab.recipes import Run
from benchmarks.lab.worlds import kind, world
from benchmarks.record import save
from cleaner_rl.train import Recipe, to_recipe, to_values

RESULTS = Path(__file__).parents[1] / "results" / "lab"


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of a run."""

    run: Run
    steps: int
    """How many it was to take."""
    hours: float
    training: ByStep
    evaluation: ByStep
    recovery: ByStep
    rate: float = 0.0
    """Its learning rate."""
    commit: str = ""
    room: ByStep = field(default_factory=dict)
    """Evaluations of its models with more turns (`room`)."""

    @property
    def finished(self) -> bool:
        """Whether its last step was evaluated, and its recovery measured."""
        return self.steps in self.evaluation and bool(self.recovery)


def collect(folder: Path, run: Run, steps: int) -> Result:
    """What a run's folder holds so far."""
    starts = _read(folder / "starts.json", [])
    hours = sum(each["seconds"] for each in starts) / 3600
    recovery = {int(step): figures for step, figures in _read(folder / "recovery.json", {}).items()}
    told = evaluations(folder, kind(world(run.regime, run.seed).regime))
    return Result(run, steps, hours, training(folder), told, recovery)


def write(result: Result, recipe: Recipe, folder: Path = RESULTS) -> Path:
    """Keep a result; returns its file."""
    path = folder / f"{result.run.name}.json"
    figures = {
        "finished": result.finished,
        "hours": round(result.hours, 5),
        "evaluation": plain(result.evaluation),
        "recovery": plain(result.recovery),
        "training": plain(result.training),
    }
    run = {"regime": result.run.regime, "arm": result.run.arm, "seed": result.run.seed, "steps": result.steps}
    save(path, figures, {**run, "recipe": _settings(recipe)})
    return path


def kept(run: Run, recipe: Recipe, folder: Path = RESULTS) -> bool:
    """Whether there is a result already of a finished run with these settings."""
    path = folder / f"{run.name}.json"
    if not path.exists():
        return False
    record = json.loads(path.read_text())
    same = _as_today(record["settings"]["recipe"]) == json.loads(json.dumps(_settings(recipe)))
    return same and bool(record["figures"]["finished"])


def read_all(folder: Path = RESULTS) -> list[Result]:
    """All results, in order of their names."""
    return [_result(json.loads(file.read_text()), folder) for file in sorted(folder.glob("*-[0-9].json"))]


def read_room(run: Run, folder: Path = RESULTS) -> ByStep:
    """What was measured of a run's models with more turns."""
    record = _read(room_path(run, folder), {"figures": {"room": {}}})
    return {int(step): figures for step, figures in record["figures"]["room"].items()}


def room_path(run: Run, folder: Path = RESULTS) -> Path:
    """Where that is kept: it is measured apart from the run, by another commit."""
    return folder / "room" / f"{run.name}.json"


def _result(record: Mapping[str, Any], folder: Path) -> Result:
    settings, figures = record["settings"], record["figures"]
    run = Run(settings["regime"], settings["arm"], settings["seed"])
    by_step = {
        part: {int(step): values for step, values in figures[part].items()}
        for part in ("training", "evaluation", "recovery")
    }
    rate = settings["recipe"]["update"]["lr"]
    room = read_room(run, folder)
    return Result(run, settings["steps"], figures["hours"], rate=rate, commit=record["commit"], room=room, **by_step)


def _settings(recipe: Recipe) -> dict[str, Any]:
    """The recipe without paths of this machine, and without what becomes of its files."""
    values = to_values(recipe)
    for section, *keys in (
        ("model", "path"),
        ("tasks", "train", "held_out", "prompt"),
        ("sandbox", "site"),
        ("run", "folder", "keep_checkpoints"),
    ):
        for key in keys:
            values[section].pop(key)
    return values


def _as_today(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were recorded before some key was there, with that key's default: it had no other effect."""
    needed = {"name": "", "method": "dapo", "model": {"path": ""}, "tasks": {"train": []}}
    default = json.loads(json.dumps(_settings(to_recipe(needed))))
    return {
        key: {**value, **settings[key]} if isinstance(value, dict) and key != "verl" else settings.get(key, value)
        for key, value in default.items()
    }


def plain(figures: ByStep) -> dict[str, dict[str, float]]:
    """For JSON: short, and without figures that are none."""
    return {
        str(step): {name: round(value, 5) for name, value in values.items() if math.isfinite(value)}
        for step, values in sorted(figures.items())
    }


def _read(path: Path, default: Any) -> Any:
    return json.loads(path.read_text()) if path.exists() else default
