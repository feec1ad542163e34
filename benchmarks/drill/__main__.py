"""`python -m benchmarks.drill FOLDER`: what becomes of training when its parts break, one after the other.

    step 2    one of two sandbox nodes is killed, and comes back
    step 3    both are killed, and come back after a minute
    step 4    one in thirty requests to the rollout server fails
    step 5    an agent-loop worker is killed: the run stops with the reason; the same command goes on
    the end of the first stage, and the second stage's second step: everything is killed; the same command goes on

Every step must have been trained once, on whole groups, on no fault, and on no task twice.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.drill.nodes import Nodes
from benchmarks.drill.runs import Command, done, judged, saved, step_lines
from benchmarks.lab.recipes import MICRO_BATCH, ON_CPU, RATE
from benchmarks.record import save as save_record
from cleaner_rl.train.recipe.settings import SandboxSettings

DOWN_SECONDS = 60
PROMPTS, KEPT, DRAWN = 4, 4, 8
STEPS = {"first": 5, "second": 3}


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--patience", default=1800.0, show_default=True, help="Seconds after which a drill that hangs has failed."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@click.option("--save", type=click.Path(path_type=Path), help="Keep the figures in this file.")
def main(folder: Path, patience: float, as_json: bool, save: Path | None) -> None:
    """Break one thing after the other in a run on a FOLDER of `benchmarks.toy`. Needs the engines; takes minutes."""
    with tempfile.TemporaryDirectory(prefix="drill-", dir="/var/tmp") as place:
        figures = Drill(folder, Path(place), patience).run()
    if save is not None:
        save_record(save, figures, {"world": folder.name})
    click.echo(json.dumps(figures) if as_json else "\n".join(f"{name}: {value}" for name, value in figures.items()))


class Drill:
    """One drill."""

    def __init__(self, world: Path, place: Path, patience: float) -> None:
        self._place = place
        self._run = place / "drill"
        kit = str(world / "kit")
        self._sandbox = SandboxSettings(slots=2, environment=kit, cpu_seconds=0.2, memory_mb=256)
        self._world = world
        self._figures: dict[str, Any] = {}
        self._train = Command(place / "recipe.yaml", place, patience, {"DRILL": str(place / "failing")})

    def run(self) -> dict[str, Any]:
        """All of it; the figures."""
        with Nodes(self._sandbox, 2, self._place) as nodes:
            self._write(nodes.addresses)
            self._first_stage(nodes)
            self._second_stage()
        return self._figures | self._judged()

    def _first_stage(self, nodes: Nodes) -> None:
        train, first = self._train, self._stage("first")
        train.start()
        self._amid_step(2, nodes)
        nodes.kill(0)
        train.until(lambda: done(first) >= 2)
        nodes.start(0)
        self._amid_step(3, nodes)
        for number in (0, 1):
            nodes.kill(number)
        time.sleep(DOWN_SECONDS)
        for number in (0, 1):
            nodes.start(number)
        train.until(lambda: done(first) >= 3)
        (self._place / "failing").touch()
        train.until(lambda: done(first) >= 4 and saved(first) >= 4)
        (self._place / "failing").unlink()
        train.process("AgentLoopWorkerTQ").kill()
        begun = time.monotonic()
        code = train.ended()
        self._figures["seconds_until_a_lost_worker_ended_the_run"] = round(time.monotonic() - begun, 1)
        named = re.search(r"an agent-loop worker .*died", train.said) is not None
        self._figures["a_lost_worker_is_named"] = named and code != 0
        train.start()
        train.until(lambda: (first / "done").exists())
        train.kill()

    def _amid_step(self, step: int, nodes: Nodes) -> None:
        """Wait until the first programs of a step have run."""
        self._train.until(lambda: done(self._stage("first")) >= step - 1)
        before = nodes.said
        self._train.until(lambda: nodes.said > before + 1_000)

    def _second_stage(self) -> None:
        self._train.start()
        self._train.until(lambda: saved(self._stage("second")) >= 1)
        self._train.kill()
        self._train.start()
        self._figures["ended_well"] = self._train.ended() == 0

    def _stage(self, name: str) -> Path:
        return self._run / f"drill-{name}"

    def _judged(self) -> dict[str, Any]:
        """What is true of the whole."""
        figures: dict[str, Any] = {}
        for stage, steps in STEPS.items():
            lines = step_lines(self._stage(stage))
            figures |= {
                f"{stage}_steps": [line["step"] for line in lines],
                f"{stage}_faults": [line["metrics"]["faults"] for line in lines],
                f"{stage}_groups_too_small": [line["metrics"]["groups/too_small"] for line in lines],
            }
            own = judged(self._stage(stage), steps, PROMPTS * KEPT)
            figures |= {f"{stage}_{name}": value for name, value in own.items()}
        return figures

    def _write(self, addresses: list[str]) -> None:
        world = self._world
        recipe = {
            "name": "drill",
            "method": "saar+roc",
            "model": {"path": str(world / "model")},
            "tasks": {"train": [str(world / "train.parquet")], "prompt": str(world / "prompt.toml")},
            "budget": {
                "prompt_tokens": 256,
                "response_tokens": 384,
                "turns": 4,
                "lookahead_tokens": 384,
                "overlong_buffer": 0,
            },
            "batch": {
                "prompts": PROMPTS,
                "mini_batch": PROMPTS,
                "rollouts": KEPT,
                "dynamic_sampling": False,
            },
            "roc": {"sample": DRAWN, "min_positive": 1, "min_negative": 1},
            "sandbox": {"addresses": addresses, "environment": "kit", "cpu_seconds": 0.2, "memory_mb": 256},
            "faults": {"max_share": 0.5, "stall_minutes": 10},
            "run": {"folder": str(self._place)},
            "stages": [
                {"name": "first", "steps": STEPS["first"]},
                {"name": "second", "steps": STEPS["second"], "response_tokens": 448, "max_pass_rate": 0.9},
            ],
            "verl": {
                **ON_CPU,
                RATE: 1e-4,
                MICRO_BATCH: 16,
                "trainer.save_freq": 1,
                "actor_rollout_ref.model.external_lib": "benchmarks.drill.parts",
            },
        }
        (self._place / "recipe.yaml").write_text(json.dumps(recipe))


main()
