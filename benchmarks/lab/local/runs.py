"""One run: a method in a world, from the cold start to its last evaluation, and the line that is kept of it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.lab.environments import lab_folder
from benchmarks.lab.local.methods import METHODS
from benchmarks.lab.local.worlds import World
from benchmarks.lab.reading import evaluated, evaluations, read_lines
from benchmarks.lab.recipes import IN_PLACE, RATE, SHARED, laid
from benchmarks.lab.recovery import counted, failed_first
from benchmarks.record import commit, machine
from benchmarks.toy.model import has_matrix_units
from cleaner_rl.purify import Draft, PurifyConfig, SampleRequest
from cleaner_rl.rollout import Purifier, RolloutRunner, Sampling, TokenModel
from cleaner_rl.rollout.prefilled import PrefilledModel
from cleaner_rl.tasks import Task
from cleaner_rl.train import Recipe, to_recipe, to_values
from cleaner_rl.train.recipe.settings import run_folder
from cleaner_rl.trajectory import Key, Phase, TokenSpan, Trajectory
from cleaner_sandbox import RunOutcome

if TYPE_CHECKING:
    from benchmarks.lab.local.trainer import StepCost

LONG: Mapping[str, Any] = {"budget": {"response_tokens": 640, "lookahead_tokens": 640}}
"""For environments with more than two calls a task."""
PAPERS_SAMPLING = Sampling(top_p=0.6)
"""At which the CLEANER paper evaluates."""
PAPERS_TASKS = 256
"""Tasks of that evaluation: at so narrow a sampling, rollouts hardly differ."""


@dataclass(frozen=True, slots=True, order=True)
class WorldRun:
    """A method in a world."""

    world: World
    method: str
    rate: float
    """The learning rate."""
    other_seed: int | None = None
    """Another seed of rollouts and of the order of tasks than the world's number."""

    @property
    def seed(self) -> int:
        """The seed of rollouts and of the order of tasks."""
        return self.world.number if self.other_seed is None else self.other_seed

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from other runs of as many steps."""
        return (self.world.environment, self.world.number, self.method, self.rate, self.seed)

    @property
    def name(self) -> str:
        """Name of its folder."""
        seed = "" if self.other_seed is None else f"-seed-{self.seed}"
        return f"{self.world.name}-{self.method}-{self.rate:.1e}{seed}"

    @property
    def steps(self) -> int:
        """Number of its steps."""
        return round(self.world.size.steps * METHODS[self.method].longer.get(self.world.environment, 1.0))

    def recipe(self, steps: int = 0) -> Recipe:
        """Return its recipe; with another number of steps, for a trial."""
        world, method, size = self.world, METHODS[self.method], self.world.size
        values: dict[str, Any] = {
            "name": f"{self.name}-{steps}" if steps else self.name,
            "method": method.recipe_method,
            "seed": self.seed,
            "model": {"path": str(world.model)},
            "tasks": {
                "train": [str(world.folder / "train.parquet")],
                "held_out": [str(world.folder / "curve.parquet")],
                "prompt": str(world.folder / "prompt.toml"),
            },
            "run": {"steps": steps or self.steps, "folder": str(lab_folder() / "worlds")},
            "verl": {"trainer.save_freq": size.save_every, "trainer.test_freq": size.evaluate_every},
        }
        own: dict[str, dict[str, Any]] = {
            "budget": {"turns": world.regime.calls + 1},
            "verl": {RATE: self.rate},
            "sandbox": {"environment": str(world.folder / "kit")},
        }
        long = LONG if world.regime.calls > 2 else {}
        return to_recipe(laid(values, SHARED, IN_PLACE.get(world.environment, {}), long, own, method.settings))


def finished(run: WorldRun, say: Callable[[str], None], steps: int = 0) -> dict[str, Any]:
    """Run it, or go on with it, and return what is kept of it. Its folder is removed."""
    import torch

    from benchmarks.lab.local.trainer import LocalTrainer

    size, figures, recipe = run.world.size, {}, run.recipe(steps)
    torch.set_num_threads(1)  # so that jobs don't wait for each other's cores
    clear_of_others(recipe)
    dtype = torch.bfloat16 if size.halved and has_matrix_units() else torch.float32
    trainer = LocalTrainer(
        recipe, METHODS[run.method].beyond, size.frozen, decays=True, known=_known(run.world), dtype=dtype
    )

    async def at_end(runner: RolloutRunner[TokenSpan]) -> None:
        figures.update(await measured(run.world, runner))

    asyncio.run(trainer.train(say, at_end))
    costs = trainer.costs.values()
    spent = {
        "sampled_tokens": sum(each.sampled for each in costs),
        "scored_tokens": sum(each.scored for each in costs),
        "trained_tokens": sum(each.trained for each in costs),
        "calls": sum(each.calls for each in costs),
        "cpu_seconds": round(sum(each.cpu_seconds for each in costs), 1),
    }
    found = record(run, trainer.folder, trainer.step, figures | {"updates": _updates(trainer.costs)}, spent)
    shutil.rmtree(trainer.folder)
    return found


def _updates(costs: Mapping[int, StepCost]) -> dict[str, list[float]]:
    """What the updates of each step were made of, as lists over the steps."""
    steps = [costs[step] for step in sorted(costs)]
    found: dict[str, list[float]] = {
        "entropy": [round(each.updates.entropy / max(1, each.updates.tokens), 4) for each in steps],
        "clip_share": [round(each.updates.clipped / max(1, each.updates.tokens), 5) for each in steps],
        "positive_tokens": [round(each.updates.positive) for each in steps],
        "negative_tokens": [round(each.updates.negative) for each in steps],
    }
    if any(each.judged for each in steps):
        found["gate_open"] = [round(each.opened / max(1, each.judged), 3) for each in steps]
    return found


@lru_cache(maxsize=1)
def _known(_world: World) -> dict[str, RunOutcome]:
    """How programs of the process's last world ended: a world's runs have the same library, and share them."""
    return {}


def clear_of_others(recipe: Recipe) -> None:
    """Remove what a run with other settings left in the recipe's folder: no run goes on from another's checkpoint."""
    folder, settings = run_folder(recipe), json.dumps(to_values(recipe))
    kept = folder / "recipe.json"
    if folder.exists() and not (kept.exists() and kept.read_text() == settings):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kept.write_text(settings)


def record(
    run: WorldRun, folder: Path, steps: int, figures: Mapping[str, Any], costs: Mapping[str, float]
) -> dict[str, Any]:
    """Return what is kept of a run: what its folder tells, what was measured at its end, and what it took."""
    return {
        "environment": run.world.environment,
        "world": run.world.number,
        "method": run.method,
        "rate": run.rate,
        "seed": run.seed,
        "steps": steps,
        "curve": {str(step): _short(each) for step, each in sorted(evaluations(folder).items())},
        **figures,
        **costs,
        "signal": _signal(folder / "metrics.jsonl"),
        "commit": commit(),
        "machine": machine(),
    }


async def measured(world: World, runner: RolloutRunner[TokenSpan]) -> dict[str, dict[str, float]]:
    """Measure a trained model: on the test tasks, and after failed first calls."""
    tested = await _drawn(runner, world.tested(), "test")
    recovered = await _drawn(runner, world.failing(), "recovery", world)
    found = {"test": _short(evaluated(tested)), "recovery": _short(counted(recovered))}
    if world.regime.one_by_one:
        assert isinstance(runner.model, TokenModel)
        model = runner.model.served_by(runner.model.engine, PAPERS_SAMPLING, runner.model.window)
        narrow = replace(runner, model=model)
        repairing = replace(narrow, purifier=Purifier(config=PurifyConfig(), rescore=False))
        some = world.tested()[:PAPERS_TASKS]
        found["top_p"] = _short(evaluated(await _drawn(narrow, some, "top-p")))
        found["top_p_repaired"] = _short(evaluated(await _drawn(repairing, some, "top-p")))
    return found


async def _drawn(
    runner: RolloutRunner[TokenSpan], tasks: Sequence[Task], stream: str, failing: World | None = None
) -> list[Trajectory[TokenSpan]]:
    """One rollout of each task; in a world that is named, after a first call that fails."""

    async def one(task: Task) -> Trajectory[TokenSpan]:
        chosen = runner if failing is None else replace(runner, model=_failing(runner, task, failing))
        return await chosen.run_one(task, Key(stream, 0, task.id, 0, Phase.EVALUATION))

    return await asyncio.gather(*[one(task) for task in tasks])


def _failing(runner: RolloutRunner[TokenSpan], task: Task, world: World) -> PrefilledModel[TokenSpan]:
    first = runner.model.written(failed_first(task, world.regime))

    def given(request: SampleRequest[TokenSpan]) -> Draft[TokenSpan] | None:
        return None if request.context.turns else first

    return PrefilledModel(runner.model, given)


def _short(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


def _signal(metrics: Path) -> dict[str, float]:
    """What the groups could teach, on average over the steps."""
    lines = [line["metrics"] for line in read_lines(metrics)]
    found = {}
    for name in ("zero_variance_share", "first_call_signal", "logprob_gap", "rescue_tries", "rescues", "rescue_tokens"):
        values = [each[name] for each in lines if name in each]
        if values:
            found[name] = round(sum(values) / len(values), 4)
    return found
