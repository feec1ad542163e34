"""Keeps one JSON file per run: seed, commit, machine, hours and all figures by step.

A file records the settings of its run. Settings that exist only since then had no effect on it, so they count as their
defaults: a new setting leaves finished runs finished.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lab.environments import kind, toy_environment
from benchmarks.lab.reading import ByStep, evaluations, training
from benchmarks.lab.recipes import RATE, Run
from benchmarks.record import save
from cleaner_rl.train import Recipe, to_recipe, to_values
from cleaner_rl.train.recipe.moved import MOVED
from cleaner_rl.train.verl.overrides import overrides

RESULTS = Path(__file__).parents[1] / "results" / "lab"
NEEDED = {"name": "", "method": "saar", "model": {"path": ""}, "tasks": {"train": []}}
"""The least that a recipe needs; all else has defaults."""
IGNORED: Mapping[str, Sequence[str]] = {
    "model": ("path",),
    "tasks": ("train", "held_out", "prompt"),
    "sandbox": ("environment", "environments"),
    "run": ("folder",),
    "verl": ("trainer.max_actor_ckpt_to_keep",),
}
"""Settings that differ between machines, or decide only which files are kept."""
GONE = ("update.learn_failed", "device.kv_tokens", "device.engine_nodes", "model.template", "model.lora")
"""Settings of recorded recipes that are gone, or that none of those runs changed and verl has none of by default."""
VALUES: Mapping[tuple[str, str], Any] = {
    ("update.correction", "none"): None,
    ("run.save_every", "0"): -1,
    ("run.loggers", "['console']"): ["console", "file"],
}
"""Values that are written otherwise now."""


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a run."""

    run: Run
    steps: int
    """How many steps it was to take."""
    hours: float
    training: ByStep
    evaluation: ByStep
    recovery: ByStep
    rate: float = 0.0
    """Its learning rate."""
    commit: str = ""
    larger_budget: ByStep = field(default_factory=dict)
    """Evaluations of its models with more turns (`larger_budget`)."""

    @property
    def finished(self) -> bool:
        """Whether its last step was evaluated, and its recovery measured."""
        return self.steps in self.evaluation and bool(self.recovery)


def collect(folder: Path, run: Run, steps: int) -> Result:
    """Collect what a run's folder holds so far."""
    starts = _read(folder / "starts.json", [])
    hours = sum(each["seconds"] for each in starts) / 3600
    recovery = {int(step): figures for step, figures in _read(folder / "recovery.json", {}).items()}
    told = evaluations(folder, kind(toy_environment(run.regime, run.seed).regime))
    return Result(run, steps, hours, training(folder), told, recovery)


def write(result: Result, recipe: Recipe, folder: Path = RESULTS) -> Path:
    """Write a result and return its file."""
    path = folder / f"{result.run.name}.json"
    figures = {
        "finished": result.finished,
        "hours": round(result.hours, 5),
        "evaluation": plain(result.evaluation),
        "recovery": plain(result.recovery),
        "training": plain(result.training),
    }
    run = {"regime": result.run.regime, "method": result.run.method, "seed": result.run.seed, "steps": result.steps}
    save(path, figures, {**run, "recipe": _comparable(to_values(recipe))})
    return path


def kept(run: Run, recipe: Recipe, folder: Path = RESULTS) -> bool:
    """Say whether there is a result of a finished run with these settings."""
    path = folder / f"{run.name}.json"
    if not path.exists():
        return False
    record = json.loads(path.read_text())
    return bool(record["figures"]["finished"]) and not differences(record["settings"]["recipe"], recipe)


def differences(
    recorded: Mapping[str, Any], recipe: Recipe, ignored: Mapping[str, Sequence[str]] = IGNORED
) -> list[str]:
    """Name the settings in which a run's recorded recipe differs from `recipe`, but for those `ignored`.

    A setting that is missing in the record didn't exist then, and counts as its default.
    """
    default = to_recipe(NEEDED)
    named = {**in_todays_words(recorded)["verl"], **recipe.verl}
    before = {**_flat(_with_verl(default, named), ignored), **_flat(in_todays_words(recorded), ignored)}
    now = _flat(_with_verl(recipe, named), ignored)
    return [
        f"{key} was {json.dumps(before.get(key))}, is {json.dumps(now.get(key))}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]


def read_all(folder: Path = RESULTS) -> list[Result]:
    """Read all results, in order of their names."""
    return [_result(json.loads(file.read_text()), folder) for file in sorted(folder.glob("*-[0-9].json"))]


def read_larger_budget(run: Run, folder: Path = RESULTS) -> ByStep:
    """Read the evaluations of a run's models with more turns."""
    record = _read(larger_budget_path(run, folder), {"figures": {"larger_budget": {}}})
    return {int(step): figures for step, figures in record["figures"]["larger_budget"].items()}


def larger_budget_path(run: Run, folder: Path = RESULTS) -> Path:
    """Return where they are kept: they are measured apart from the run, by another commit."""
    return folder / "larger-budget" / f"{run.name}.json"


def _result(record: Mapping[str, Any], folder: Path) -> Result:
    settings, figures = record["settings"], record["figures"]
    run = Run(settings["regime"], settings["method"], settings["seed"])
    by_step = {
        part: {int(step): values for step, values in figures[part].items()}
        for part in ("training", "evaluation", "recovery")
    }
    rate = in_todays_words(settings["recipe"])["verl"][RATE]
    return Result(
        run,
        settings["steps"],
        figures["hours"],
        rate=rate,
        commit=record["commit"],
        larger_budget=read_larger_budget(run, folder),
        **by_step,
    )


def _comparable(values: Mapping[str, Any], ignored: Mapping[str, Sequence[str]] = IGNORED) -> dict[str, Any]:
    """Return a recipe's values as plain JSON, but for those `ignored`."""
    kept = json.loads(json.dumps(values))
    for section, keys in ignored.items():
        for key in keys:
            kept.get(section, {}).pop(key, None)
    return dict(kept)


def in_todays_words(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded recipe with the settings that have another name now under that name."""
    values: dict[str, Any] = json.loads(json.dumps(recorded))
    if values.get("device", {}).get("kind") == "cpu":
        values["model"].pop("attention", None)  # on CPUs it had no effect
    if values.get("run", {}).get("steps"):
        values["run"].pop("epochs", None)  # nor had they, where the steps were given
    for old in GONE:
        section, _, key = old.partition(".")
        values.get(section, {}).pop(key, None)
    for old, new in MOVED.items():
        section, _, key = old.partition(".")
        if isinstance(values.get(section), dict) and key in values[section]:
            target, _, name = new.partition(".")
            value = values[section].pop(key)
            values.setdefault(target, {})[name] = VALUES.get((old, str(value)), value)
    return {section: held for section, held in values.items() if held != {} or section in ("verl", "run")}


def _with_verl(recipe: Recipe, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's values with verl's settings of these names, whoever set them."""
    composed = {key.removeprefix("+"): value for key, value in overrides(recipe, Path()).items()}
    return {**to_values(recipe), "verl": {key: composed.get(key) for key in named}}


def _flat(values: Mapping[str, Any], ignored: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return comparable settings by "section.key"; the settings of verl keep their own dots."""
    return {
        f"{section}.{key}" if isinstance(held, dict) else section: value
        for section, held in _comparable(values, ignored).items()
        for key, value in (held.items() if isinstance(held, dict) else [("", held)])
    }


def plain(figures: ByStep) -> dict[str, dict[str, float]]:
    """For JSON: short, and without figures that are none."""
    return {
        str(step): {name: round(value, 5) for name, value in values.items() if math.isfinite(value)}
        for step, values in sorted(figures.items())
    }


def _read(path: Path, default: Any) -> Any:
    return json.loads(path.read_text()) if path.exists() else default
