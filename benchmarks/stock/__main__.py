"""`python -m benchmarks.stock FOLDER`: our loop and verl's own tool loop in turn. Are batches equal, steps as quick?"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import gcd
from pathlib import Path
from statistics import mean, median
from typing import Any

import click

from benchmarks.lab.recipes import MICRO_BATCH, ON_CPU, RATE
from benchmarks.record import save as save_record

ROOT = Path(__file__).parents[2]
WARM = 1
"""Pairs of steps that aren't timed: the first of everything."""


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--pairs", default=8, show_default=True, help="Pairs of steps, one of each loop.")
@click.option("--prompts", default=8, show_default=True)
@click.option("--rollouts", default=8, show_default=True)
@click.option("--turns", default=4, show_default=True)
@click.option("--alone", is_flag=True, help="The engine takes one request at a time, so that company changes nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@click.option("--save", type=click.Path(path_type=Path), help="Keep the figures in this file.")
def main(
    folder: Path, pairs: int, prompts: int, rollouts: int, turns: int, alone: bool, as_json: bool, save: Path | None
) -> None:
    """Compare on a FOLDER of `benchmarks.toy`. Needs the engines; takes minutes."""
    settings: dict[str, Any] = {
        "pairs": pairs,
        "prompts": prompts,
        "rollouts": rollouts,
        "turns": turns,
        "alone": alone,
    }
    with tempfile.TemporaryDirectory(prefix="stock-") as place:
        figures = compare(folder, Path(place), **settings)
    if save is not None:
        save_record(save, figures, {**settings, "world": folder.name})
    click.echo(json.dumps(figures) if as_json else "\n".join(f"{name}: {value}" for name, value in figures.items()))


def compare(
    world: Path, place: Path, *, pairs: int, prompts: int, rollouts: int, turns: int, alone: bool
) -> dict[str, Any]:
    """The figures of one run, which lives below `place`."""
    from benchmarks.stock.parts import RUN, written
    from cleaner_rl.train import run_folder, to_recipe, train

    recipe = to_recipe(_recipe(world, place, pairs, prompts, rollouts, turns, alone))
    own = run_folder(recipe)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ |= {"PYTHONPATH": path, RUN: str(own), "VERL_FILE_LOGGER_PATH": str(place / "log.jsonl")}
    with _figures_alone_on_stdout():
        train(recipe)
    logged = [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]
    return {**_batches(written(own)), **_times({line["step"]: line["data"] for line in logged})}


@contextmanager
def _figures_alone_on_stdout() -> Iterator[None]:
    """What verl prints goes to stderr."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _recipe(
    world: Path, place: Path, pairs: int, prompts: int, rollouts: int, turns: int, alone: bool
) -> dict[str, object]:
    (place / "tools.yaml").write_text(
        json.dumps({"tools": [{"class_name": "benchmarks.stock.parts.SandboxTool", "config": {"type": "native"}}]})
    )
    rollout = {
        "top_k": 1,  # greedy, with probabilities that can be computed
        "agent": {"agent_loop_manager_class": "benchmarks.stock.parts.TurnManager"},
        "multi_turn": {
            "enable": True,
            "tool_config_path": str(place / "tools.yaml"),
            "format": "cleaner-stock",
            "max_assistant_turns": turns,
            "max_parallel_calls": 16,
            "max_tool_response_length": 100_000,  # our feedback is cut by itself
        },
        **({"max_num_seqs": 1} if alone else {}),
    }
    parts = {"path": "pkg://benchmarks.stock.parts"}
    return {
        "name": "stock",
        "method": "grpo",
        "model": {"path": str(world / "model")},
        "tasks": {
            "train": [_twice(world / "train.parquet", place, pairs, prompts)],
            "prompt": str(world / "prompt.toml"),
        },
        "budget": {"prompt_tokens": 256, "response_tokens": 512, "turns": turns, "overlong_buffer": 0},
        "batch": {
            "prompts": prompts,
            "mini_batch": prompts,
            "rollouts": rollouts,
            "dynamic_sampling": False,
        },
        "sandbox": {"environment": str(world / "kit"), "cpu_seconds": 0.2, "memory_mb": 256},
        "run": {"steps": 2 * pairs, "folder": str(place)},
        "verl": {
            **ON_CPU,
            RATE: 0.0,
            MICRO_BATCH: gcd(16, prompts * rollouts),
            "trainer.save_freq": -1,
            "data": {"shuffle": False},
            "actor_rollout_ref": {"rollout": rollout},
            "trainer": {"v1": {"sampler": {"custom_sampler": {**parts, "name": "TurnSampler"}}}},
            "reward": {"custom_reward_function": {**parts, "name": "compute_score"}},
        },
    }


def _twice(file: Path, place: Path, pairs: int, prompts: int) -> str:
    """The first prompts of a file, each batch of them twice in a row."""
    import pyarrow.parquet as pq

    rows = pq.read_table(file)
    order = [batch * prompts + row for batch in range(pairs) for _ in range(2) for row in range(prompts)]
    pq.write_table(rows.take(order), place / "twice.parquet")
    return str(place / "twice.parquet")


def _batches(lines: Sequence[Any]) -> dict[str, Any]:
    """Row by row: verl's of an odd step beside ours of the next."""
    ours = {(line.step - 1, line.index, line.session): line for line in lines if line.step % 2 == 0}
    stock = {(line.step, line.index, line.session): line for line in lines if line.step % 2}
    pairs = [(stock[name], ours[name]) for name in sorted(stock.keys() & ours.keys())]
    same = [
        (one.prompt, one.response, one.mask, one.reward) == (other.prompt, other.response, other.mask, other.reward)
        for one, other in pairs
    ]
    return {
        "rows": len(stock),
        "rows_of_ours": len(ours),
        "equal_rows": sum(same),
        "with_calls": sum(0 in one.mask for one, _ in pairs),
        "rewards": sorted({one.reward for one, _ in pairs}),
        "tokens_a_row": mean(len(one.prompt) + len(one.response) for one, _ in pairs),
    }


def _times(steps: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    """Seconds of a step, and ours over verl's by pairs."""
    figures: dict[str, Any] = {}
    timed = [number for number in sorted(steps) if number % 2 and number > 2 * WARM and number + 1 in steps]
    for name in ("step", "gen"):
        stock = [steps[number][f"timing_s/{name}"] for number in timed]
        ours = [steps[number + 1][f"timing_s/{name}"] for number in timed]
        if not timed:
            continue
        figures |= {
            f"{name}_seconds_stock": median(stock),
            f"{name}_seconds_ours": median(ours),
            f"{name}_ratio": median(one / other for one, other in zip(ours, stock, strict=True)),
            f"{name}_ratio_of_sums": sum(ours) / sum(stock),
        }
    return figures


main()
