"""Two weighted rewards in three trainers: `train FOLDER`, then `compare FOLDER --json`.

- `python -m benchmarks.rewards train FOLDER`, where verl is installed: five steps of `cleaner train` on CPU, in the
  smallest toy environment, with hindsight and `WEIGHTS`. It leaves the rollouts, and what each update was given. FOLDER
  must not lie in /tmp.
- `python -m benchmarks.rewards compare FOLDER --json`, where TRL is installed: the same rollouts become rows by the
  selection that `examples/train_loop.py` calls, and by a `GRPOTrainer` that is given them in the place of new ones. Are
  ids, loss masks and advantages those that verl trained on? Then the example's own loop trains with the same rewards.

The advantages are compared by their distance; TRL adds 1e-4 to a deviation where verl and the example add 1e-6, and
`trl_advantages_apart` is the distance to advantages with TRL's number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.record import save
from cleaner_rl.resample import PlainConfig, advantages, group_of, select
from cleaner_rl.train.preflight.witness import FOLDER, seen
from cleaner_rl.train.rows import Graded
from cleaner_rl.trajectory import AnyTrajectory, Phase, first_attempt_tally
from cleaner_rl.trajectory.store import read

WEIGHTS = {"answer": 1.0, "failed_calls": 0.25}
STEPS, SECONDS = 5, 3_000
TRL_DELTA = 1e-4
"""What TRL adds to the deviation of a group's rewards."""
EXAMPLES = Path(__file__).parents[1] / "examples"
RESULTS = Path(__file__).parent / "results" / "rewards.json"
SETTINGS = (
    *("method=hindsight", f"run.steps={STEPS}", "tasks.held_out=[]", "run.router=verl"),
    *(f"tasks.graders={json.dumps(WEIGHTS)}", "verl.trainer.n_gpus_per_node=1"),
    *("budget.prompt_tokens=256", "batch.prompts=4", "batch.mini_batch=4", "batch.rollouts=4"),
    "verl.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "verl.actor_rollout_ref.model.external_lib=cleaner_rl.train.preflight.witness",
)

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a row, and the loss mask of its response."""
Batch = list[tuple[Row, float]]
"""The rows of a step, each with its advantage, in an order of no meaning."""
Groups = Mapping[int, list[list[Graded]]]
"""By step."""


def train(folder: Path, world: Path) -> Path:
    """Train on verl; return the run's folder."""
    from benchmarks.training import train as cleaner_train

    folder.mkdir(parents=True, exist_ok=True)
    return cleaner_train(world, folder, SETTINGS, SECONDS, {FOLDER: str(folder)})


def groups_of(run: Path) -> Groups:
    """Return the groups of each step of a run."""
    steps: dict[int, dict[str, list[Graded]]] = defaultdict(lambda: defaultdict(list))
    for each in cast("Iterator[Graded]", read(run / "trajectories", Phase.TRAINING)):
        steps[each.key.step][each.key.task].append(each)
    for tasks in steps.values():
        for group in tasks.values():
            group.sort(key=lambda each: each.key.rollout)
    return {step: list(tasks.values()) for step, tasks in sorted(steps.items())}


def of_verl(folder: Path) -> dict[int, Batch]:
    """Return what verl trained on."""
    batches: dict[int, Batch] = defaultdict(list)
    for each in seen(folder):
        known = each.advantages[np.array(each.mask, bool)]
        assert np.ptp(known) == 0.0, "the tokens of a row have one advantage"
        batches[each.step].append(((tuple(each.ids), tuple(each.mask)), float(known[0])))
    return batches


def of_loop(groups: Sequence[Sequence[Graded]], delta: float | None = None) -> Batch:
    """Return what `examples/train_loop.py` trains on; with another number under the deviation's fraction if given."""
    batch: Batch = []
    for group in groups:
        chosen = select(group_of(group), PlainConfig(), 0, dynamic_sampling=False)
        kept = [group[place] for place in chosen.kept]
        rewards = [cast("float", each.reward) for each in kept]
        found = chosen.advantages if delta is None else advantages(rewards, delta)
        batch += zip(map(row_of, kept), found, strict=True)
    return batch


def row_of(trajectory: Graded) -> Row:
    """Return a trajectory's ids and the mask of its response."""
    mask = trajectory.loss_mask()[len(trajectory.prompt) :].astype(int)
    return tuple(trajectory.ids().tolist()), tuple(mask.tolist())


def reward_of(trajectory: AnyTrajectory) -> float:
    """Return what `WEIGHTS` say of a rollout before its repair, by hand."""
    return (1.0 if trajectory.success else -1.0) - 0.25 * first_attempt_tally(trajectory).failed


def difference(batch: Batch, expected: Batch) -> tuple[int, float]:
    """Return how many rows the batches share, and how far the advantages are apart at most in these.

    Rollouts that failed in different ways can be the same row once they are repaired, and keep their rewards.
    """
    columns: list[dict[Row, list[float]]] = []
    for each in (batch, expected):
        columns.append(defaultdict(list))
        for row, advantage in each:
            columns[-1][row].append(advantage)
    shared = [row for row in columns[0] if len(columns[0][row]) == len(columns[1].get(row, ()))]
    pairs = [zip(sorted(columns[0][row]), sorted(columns[1][row]), strict=True) for row in shared]
    return sum(len(columns[0][row]) for row in shared), max(abs(a - b) for pair in pairs for a, b in pair)


def verl_and_loop(folder: Path) -> dict[str, Any]:
    """Compare what verl trained on with the rows of a loop of one's own."""
    groups, trained = groups_of(folder / "tiny-cpu"), of_verl(folder)
    rollouts = [each for step in groups.values() for group in step for each in group]
    found = [difference(trained[step], of_loop(groups[step])) for step in groups]
    repaired = [each for each in rollouts if any(edit.commits for _, edit in each.edits)]
    return {
        "steps": len(trained),
        "rollouts": len(rollouts),
        "rewards_as_by_hand": sum(abs(cast("float", each.reward) - reward_of(each)) < 1e-9 for each in rollouts),
        "repaired_and_penalised": sum(
            bool(each.info.terms and each.info.terms["failed_calls"] < 0) for each in repaired
        ),
        "verl_rows": sum(map(len, trained.values())),
        "verl_rows_equal": sum(count for count, _ in found),
        "verl_advantages_apart": max(apart for _, apart in found),
    }


def of_trl(groups: Sequence[Sequence[Graded]], folder: Path) -> Batch:
    """Return the batch that TRL's `GRPOTrainer` makes of these rollouts."""
    from tests.train.parity import tiny_model
    from tests.trl.tiny import scored

    _, batch = scored(tiny_model(vocabulary=1024), groups, folder, method="hindsight", weights=WEIGHTS)
    made: Batch = []
    for place, advantage in enumerate(batch["advantages"].tolist()):
        present = batch["completion_mask"][place].bool()
        prompt = batch["prompt_ids"][place][batch["prompt_mask"][place].bool()]
        ids = (*prompt.tolist(), *batch["completion_ids"][place][present].tolist())
        made.append(((ids, tuple(batch["tool_mask"][place][present].int().tolist())), advantage))
    return made


def trl(folder: Path, made: Path) -> dict[str, Any]:
    """Compare what TRL would train on, given verl's rollouts, with the rows of a loop of one's own."""
    groups = groups_of(folder / "tiny-cpu")
    batches = {step: of_trl(each, made) for step, each in groups.items()}
    found = [difference(batches[step], of_loop(groups[step], TRL_DELTA)) for step in groups]
    return {
        "trl_rows": sum(map(len, batches.values())),
        "trl_rows_equal": sum(count for count, _ in found),
        "trl_advantages_apart": max(apart for _, apart in found),
        "trl_advantages_apart_from_verls": max(
            difference(batches[step], trained)[1] for step, trained in of_verl(folder).items()
        ),
    }


def loop_trained() -> dict[str, Any]:
    """Train the loop of `examples/train_loop.py` with the same rewards; compare the rewards that it was given."""
    sys.path.insert(0, str(EXAMPLES))
    import trl_grpo as example
    from train_loop import TorchEngine, train

    from cleaner_rl.rollout import Purifier, RolloutBudget, TokenModel, open_runner
    from cleaner_rl.trajectory import RepairMode

    given: list[tuple[Graded, float]] = []

    class Watched(TorchEngine):  # type: ignore[misc]
        def update(self, rows: Any) -> None:
            given.extend(rows)
            super().update(rows)

    async def trained() -> list[float]:
        tasks, tokenizer, model = await example.prepared()
        engine = Watched(len(tokenizer))
        engine.model.load_state_dict(model.state_dict())
        served = TokenModel.for_prompt(engine, tokenizer, example.PROMPT, window=256)
        options: dict[str, Any] = {"budget": RolloutBudget(turns=3), "purifier": Purifier(RepairMode.HINDSIGHT)}
        async with (
            example.sandbox() as node,
            open_runner(served, example.PROMPT, node, weights=WEIGHTS, **options) as runner,
        ):
            return cast("list[float]", await train(engine, runner, tasks))

    curve = asyncio.run(trained())
    rollouts = [each for each, _ in given if each.reward is not None]
    return {
        "loop_rows": len(rollouts),
        "loop_rewards_as_by_hand": sum(abs(cast("float", each.reward) - reward_of(each)) < 1e-9 for each in rollouts),
        "loop_failed_calls": [round(each, 3) for each in curve],
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["train", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print the figures as one line")
    parser.add_argument("--save", action="store_true", help=f"keep the figures in {RESULTS.name}")
    chosen = parser.parse_args()
    if chosen.command == "train":
        from benchmarks.toy.smallest import make

        world = chosen.folder / "world"
        sys.stdout.write(f"{train(chosen.folder, world if (world / 'model').is_dir() else make(world))}\n")
        return
    with tempfile.TemporaryDirectory() as made:
        figures = {**verl_and_loop(chosen.folder), **trl(chosen.folder, Path(made)), **loop_trained()}
    if chosen.save:
        save(RESULTS, figures, {"weights": WEIGHTS, "steps": STEPS})
    sys.stdout.write(f"{json.dumps(figures) if chosen.json else figures}\n")


if __name__ == "__main__":
    main()
