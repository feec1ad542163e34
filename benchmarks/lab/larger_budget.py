"""Evaluates saved models on the held-out tasks with a larger turn budget than they were trained with.

A rollout that has spent its turns on corrections has none left to answer in. So accuracy within a tight budget mixes
whether a model finds the answer with whether it finds it in time. With a larger budget only the first counts. Nothing
is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.lab.environments import ToyEnvironment, lab_folder, toy_environment
from benchmarks.lab.reading import evaluated, models
from benchmarks.lab.recipes import Run
from benchmarks.lab.results import larger_budget_path, plain, read_larger_budget
from benchmarks.lab.served import rolled
from benchmarks.record import save
from cleaner_rl.trajectory import StopReason

TURNS = 6
"""Five calls and an answer."""
STREAM = "room"
"""The random stream of these rollouts; another word would give other rollouts than those of the kept results."""
FIGURES = ("rollouts", "accuracy", "first_call_works", "errors", "calls", "cut")


def measure(
    runs: Sequence[Run], results: Path, every: int, enough: Callable[[], bool], say: Callable[[str], None]
) -> None:
    """Evaluate the models that runs saved, one every so many steps, until it is `enough`; keep what is measured."""
    starts: dict[Path, dict[str, float]] = {}
    for run in runs:
        environment = toy_environment(run.regime, run.seed)
        found, saved = read_larger_budget(run, results), models(lab_folder() / run.name)
        for step in sorted({0, *saved} - set(found)) if saved else ():
            if enough():
                return
            if step % every:
                continue
            model = saved.get(step, environment.folder / "model")
            # Runs of one environment begin with the same model.
            found[step] = starts.get(model) or with_larger_budget(model, environment)
            starts[model] = found[step]
            settings = {"regime": run.regime, "method": run.method, "seed": run.seed, "turns": TURNS}
            save(larger_budget_path(run, results), {"larger_budget": plain(found)}, settings)
            say(f"{run.name}: accuracy {found[step]['accuracy']:.3f} with {TURNS} turns at step {step}")


def with_larger_budget(model: Path, environment: ToyEnvironment) -> dict[str, float]:
    """Evaluate a model on the held-out tasks; `cut` is the share that ran out of turns even so."""
    made = rolled(model, environment, environment.held_out_tasks(), TURNS, STREAM)
    figures = {**evaluated(made), "cut": sum(each.stop_reason is StopReason.TURN_LIMIT for each in made) / len(made)}
    return {name: figures[name] for name in FIGURES}
