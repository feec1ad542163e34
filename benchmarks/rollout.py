"""What rollouts on a real engine cost, and whether they are exact: `python -m benchmarks.rollout --json`.

Starts vLLM on this machine, several times; needs the engines' environment (CONTRIBUTING.md).

| figure | what it is | goal |
| --- | --- | --- |
| `loop_over_engine` | wall time of rollouts without tools, over the bare engine on the same prompts and seeds | 1.05 |
| `loop_over_engine_cpu` | the same in CPU time of client and server: wall time without the neighbours | |
| `suffix_over_full` | seconds to score a suffix, over those for the whole prompt of 2,048 tokens | 0.25 |
| `logprob_max_diff` | of repaired, re-scored trajectories from a full forward in transformers (float32) | 1e-5 |
| `errors_off`, `errors_on` | failed calls left per trajectory, repair off and on, of the toy model | a fifth |
| `replayed` | share of the repaired trajectories with a deterministic replay that replay exactly | 1 |
| `repair_overhead` | how much longer a rollout takes with repair on; the paper has 0.088 | |
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from statistics import median

import click

from benchmarks import rollout_repair
from benchmarks.models import write_smollm2, write_tiny_qwen3
from benchmarks.record import save
from benchmarks.rollout_cost import loop_over_engine, suffix_over_full
from benchmarks.rollout_exactness import farthest, rolled
from benchmarks.serving import serve
from benchmarks.toy.folder import made
from benchmarks.toy.model import Lessons
from benchmarks.toy.regimes import REGIMES
from cleaner_rl.trajectory import RepairMode

RESULTS = Path(__file__).parent / "results" / "rollout.json"


async def logprob_max_diff(url: str, model: Path, rollouts: int) -> float:
    """Over live repairs and hindsight."""
    trajectories = await asyncio.gather(
        *(rolled(url, model, mode, number) for mode in RepairMode for number in range(rollouts))
    )
    if not any(edit.commits for each in trajectories for _, edit in each.edits):
        raise RuntimeError("no trajectory was repaired, so there is nothing to compare")
    return max(farthest(model, each) for each in trajectories)


def exactness_and_cost(folder: Path, rollouts: int, tokens: int) -> dict[str, object]:
    """Measure all that needs no toy model."""
    with serve(write_tiny_qwen3(folder / "tiny"), folder, record=False) as tiny:
        click.echo("tiny Qwen3: log-probs", err=True)
        worst = {"tiny_qwen3": asyncio.run(logprob_max_diff(tiny.url, tiny.model, 4))}
    with serve(write_smollm2(folder / "smollm2"), folder, record=False) as smollm2:
        click.echo("SmolLM2: log-probs, suffixes, the loop beside the bare engine", err=True)
        worst["smollm2"] = asyncio.run(logprob_max_diff(smollm2.url, smollm2.model, 2))
        suffix = asyncio.run(suffix_over_full(smollm2.url, vocabulary=40_000))
        loop = asyncio.run(loop_over_engine(smollm2, rollouts, tokens))
    return {
        "loop_over_engine": median(loop.wall),
        "loop_over_engine_of_rounds": loop.wall,
        "loop_over_engine_cpu": median(loop.cpu),
        "loop_over_engine_cpu_of_rounds": loop.cpu,
        "suffix_over_full": suffix,
        "logprob_max_diff": max(worst.values()),
        "logprob_max_diff_of": worst,
    }


def repair(folder: Path, world: Path, tasks: int) -> dict[str, object]:
    """Measure repair on the toy model."""
    with serve(world / "model", folder, record=False) as served:
        return asyncio.run(rollout_repair.at(served.url, world, tasks))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=Path, help="from `benchmarks.toy make mistakes`; default: made or found")
    parser.add_argument("--tasks", type=int, default=500, help="tasks of the toy model; 0: without it (default: 500)")
    parser.add_argument("--rollouts", type=int, default=64, help="beside the bare engine (default: 64)")
    parser.add_argument("--tokens", type=int, default=128, help="of each of them (default: 128)")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--save", type=Path, nargs="?", const=RESULTS, help="keep the figures, with commit and machine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = exactness_and_cost(Path(folder), arguments.rollouts, arguments.tokens)
        if arguments.tasks:
            world = arguments.world or made(REGIMES["mistakes"], Lessons())
            figures |= repair(Path(folder), world, arguments.tasks)
    if arguments.save:
        settings = {name: getattr(arguments, name) for name in ("tasks", "rollouts", "tokens")}
        save(arguments.save, figures, settings)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        if not isinstance(figure, dict):
            print(f"{name:24} {figure}")


if __name__ == "__main__":
    main()
