"""Trains five steps of two views and rescue on the real stack: `python -m benchmarks.rescue --json`.

Is what reaches verl's update what the store holds? For every row of the update: ids, loss mask, advantage, and the
log-probs of the rollout, compared with the row that the store gives; and the rollout's log-probs with the actor's. The
recipe is `recipes/tiny-cpu.yaml` without its cold start, with `method: hindsight`, `purify: {scope: all, views:
full}` and `rescue`, in the smallest toy environment, whose model answers at random: some groups are all wrong.

Needs the engines; a run takes some minutes on two cores. A run that is finished in `--folder` isn't repeated.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.lab.recipes import MICRO_BATCH
from benchmarks.preflight import SETTINGS
from benchmarks.record import save
from benchmarks.training import train
from cleaner_rl.train import Recipe
from cleaner_rl.train.preflight.exactness import row_ids, stored_rows
from cleaner_rl.train.preflight.witness import FOLDER, Trained, seen
from cleaner_rl.train.rows import Graded, TrainRow, View
from cleaner_rl.train.verl.plan import read_plan
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import read

STEPS = 5
OURS = (
    *("method=hindsight", "purify.scope=all", "purify.views=full"),
    *(f"run.steps={STEPS}", f"verl.trainer.save_freq={STEPS}", f"verl.{MICRO_BATCH}=4"),
    *("batch.prompts=8", "batch.mini_batch=4", "batch.rollouts=4"),
    "verl.actor_rollout_ref.model.external_lib=cleaner_rl.train.preflight.witness",
)
"""Beside the settings of the preflight's benchmark."""
RESCUE = {"rescue.share": "1.0", "rescue.rows": "join", "rescue.advantage": "group"}
"""A fifth of what such short groups sample is less than a turn."""
LIMIT_SECONDS = 2_400


def trained(world: Path, folder: Path, rescue: dict[str, str]) -> Path:
    """Run `cleaner train` in a folder, if that hasn't been done, and return the run's folder."""
    run = folder / "tiny-cpu"
    if (run / "checkpoints" / f"global_step_{STEPS}").exists():
        return run
    settings = (*SETTINGS, *OURS, *(f"{key}={value}" for key, value in rescue.items()))
    return train(world, folder, settings, LIMIT_SECONDS, {FOLDER: str(folder)})


def compared(kept: Sequence[Graded], update: Sequence[Trained], recipe: Recipe) -> dict[str, Any]:
    """Compare the rows of all updates with those of the store."""
    stored: dict[tuple[int, ...], list[TrainRow]] = defaultdict(list)
    rows = [row for each in kept for row in stored_rows(each, recipe)]
    for row in rows:
        stored[row_ids(row)].append(row)
    unknown = masks = 0
    logprobs: list[float] = []
    advantages: list[float] = []
    actor: list[float] = []
    for each in update:
        # Several rollouts of so small a world can have the same ids; the nearest of them is the row's own.
        same = stored.get(tuple(each.ids), [])
        alike = [row for row in same if row.loss_mask.astype(int).tolist() == each.mask]
        unknown += not same
        masks += bool(same) and not alike
        if alike:
            learnt = np.array(each.mask, np.float64)
            logprobs.append(min(_largest(row.logprobs - each.rollout) for row in alike))
            advantages.append(min(_largest((row.advantage or 0.0) * learnt - each.advantages) for row in alike))
            actor.append(_largest((each.rollout - each.old) * learnt))
    there = Counter((each.step, tuple(each.ids)) for each in update)
    wanted = Counter((row.key.step, row_ids(row)) for row in rows)
    return {
        "rows_in_update": len(update),
        "rows_in_store": len(rows),
        "rows_missing": (wanted - there).total(),
        "rows_unknown": unknown,
        "masks_that_differ": masks,
        "stored_logprobs_apart": max(logprobs, default=None),
        "advantages_apart": max(advantages, default=None),
        "actor_logprobs_apart": max(actor, default=None),
    }


def _largest(values: Any) -> float:
    return float(np.abs(values).max(initial=0.0))


def measure(folder: Path, rescue: dict[str, str]) -> dict[str, Any]:
    """Train, and return what was compared and counted."""
    from benchmarks.toy.smallest import make

    world = folder / "world"
    if not (world / "model").exists():
        make(world)
    run = trained(world, folder / "run", rescue)
    recipe = read_plan(str(run)).recipe
    rows = [cast("Graded", each) for each in read(run / "trajectories", Phase.TRAINING)]
    kept = [each for each in rows if each.info.verdict is not None and each.info.verdict["kept"]]
    steps = [json.loads(line)["metrics"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    rescued = [each for each in rows if each.info.rescued is not None]
    update = seen(run.parent)
    return {
        "steps": len(steps),
        **compared(kept, update, recipe),
        "rows_in_recovery_view": sum(row.view is View.RECOVERY for each in kept for row in stored_rows(each, recipe)),
        "rows_of_rescues": sum(each.info.rescued is not None for each in kept),
        "rescue_tries": int(sum(step["rescue_tries"] for step in steps)),
        "rescues": int(sum(step["rescues"] for step in steps)),
        "rescue_tokens": int(sum(step["rescue_tokens"] for step in steps)),
        "sampled_tokens": int(sum(step["sampled_tokens"] for step in steps)),
        "largest_share": max((_share(each, rows) for each in rescued), default=None),
    }


def _share(rescue: Graded, rows: Sequence[Graded]) -> float:
    """What a rescue sampled, as a share of what its group sampled."""
    group = (each for each in rows if (each.key.step, each.key.task) == (rescue.key.step, rescue.key.task))
    return (rescue.info.sampled or 0) / sum(each.info.sampled or 0 for each in group if each.info.rescued is None)


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cleaner-rl-rescue"), help="not below /tmp")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of rescue")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    rescue = RESCUE | dict(each.split("=", 1) for each in given.set)
    figures = measure(given.folder.resolve(), rescue)
    if given.save is not None:
        save(given.save, figures, {"settings": [*SETTINGS, *OURS], **rescue})
    print(json.dumps(figures) if given.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
