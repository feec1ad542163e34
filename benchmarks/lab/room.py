"""With room: the held-out tasks once more, with more turns than runs are trained and evaluated with.

A rollout that has spent its turns on mending has none left to answer in, so accuracy within a tight budget says two
things at once: whether a model finds the answer, and whether it finds it in time. Here turns don't run out, so it says
the first alone. The models are those that runs have saved; nothing is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.lab.reading import evaluated, models
from benchmarks.lab.recipes import Run
from benchmarks.lab.results import plain, read_room, room_path
from benchmarks.lab.served import rolled
from benchmarks.lab.worlds import World, lab_folder, world
from benchmarks.record import save
from cleaner_rl.trajectory import Ending

TURNS = 6
"""Five calls and an answer."""
FIGURES = ("rollouts", "accuracy", "first_call_works", "errors", "calls", "cut")


def measure(
    runs: Sequence[Run], results: Path, every: int, enough: Callable[[], bool], say: Callable[[str], None]
) -> None:
    """Measure the models that some runs saved every so many steps, until it is enough; what was measured stays."""
    starts: dict[Path, dict[str, float]] = {}
    for run in runs:
        place = world(run.regime, run.seed)
        found, saved = read_room(run, results), models(lab_folder() / run.name)
        for step in sorted({0, *saved} - set(found)) if saved else ():
            if enough():
                return
            if step % every:
                continue
            model = saved.get(step, place.folder / "model")
            # Runs of one world begin with the same model.
            found[step] = starts.get(model) or with_room(model, place)
            starts[model] = found[step]
            settings = {"regime": run.regime, "arm": run.arm, "seed": run.seed, "turns": TURNS}
            save(room_path(run, results), {"room": plain(found)}, settings)
            say(f"{run.name}: accuracy {found[step]['accuracy']:.3f} with room at step {step}")


def with_room(model: Path, place: World) -> dict[str, float]:
    """How a model does on the held-out tasks of its world; `cut` is the share that ran out of turns even so."""
    made = rolled(model, place, place.held_out_tasks(), TURNS, "room")
    figures = {**evaluated(made), "cut": sum(each.ending is Ending.TURN_LIMIT for each in made) / len(made)}
    return {name: figures[name] for name in FIGURES}
