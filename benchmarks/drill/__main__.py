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
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import psutil

from benchmarks.drill.nodes import Nodes
from benchmarks.record import save as save_record
from cleaner_rl.train.recipe.settings import SandboxSettings

ROOT = Path(__file__).parents[2]
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
        self._place, self._deadline = place, time.monotonic() + patience
        self._run = place / "drill"
        site = str(world / "site")
        self._sandbox = SandboxSettings(slots=2, packages=["kit"], site=site, cpu_seconds=0.2, memory_mb=256)
        self._world = world
        self._figures: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """All of it; the figures."""
        with Nodes(self._sandbox, 2, self._place) as nodes:
            self._write(nodes.addresses)
            self._first_stage(nodes)
            self._second_stage()
        return self._figures | self._judged()

    def _first_stage(self, nodes: Nodes) -> None:
        train = self._start()
        self._amid_step(2, nodes, train)
        nodes.kill(0)
        self._until(lambda: self._done("first") >= 2, train)
        nodes.start(0)
        self._amid_step(3, nodes, train)
        for number in (0, 1):
            nodes.kill(number)
        time.sleep(DOWN_SECONDS)
        for number in (0, 1):
            nodes.start(number)
        self._until(lambda: self._done("first") >= 3, train)
        (self._place / "failing").touch()
        self._until(lambda: self._done("first") >= 4 and self._saved("first") >= 4, train)
        (self._place / "failing").unlink()
        self._worker_of(train).kill()
        begun = time.monotonic()
        self._until(lambda: train.poll() is not None, None)
        self._figures["seconds_until_a_lost_worker_ended_the_run"] = round(time.monotonic() - begun, 1)
        said = "an agent-loop worker died" in (self._place / "log-1").read_text()
        self._figures["a_lost_worker_is_named"] = said and train.returncode != 0
        train = self._start()
        self._until(lambda: (self._run / "drill-first" / "done").exists(), train)
        self._kill(train)

    def _amid_step(self, step: int, nodes: Nodes, train: subprocess.Popen[bytes]) -> None:
        """Wait until the first programs of a step have run."""
        self._until(lambda: self._done("first") >= step - 1, train)
        before = nodes.said
        self._until(lambda: nodes.said > before + 1_000, train)

    def _second_stage(self) -> None:
        train = self._start()
        self._until(lambda: self._saved("second") >= 1, train)
        self._kill(train)
        train = self._start()
        self._until(lambda: train.poll() is not None, None)
        self._figures["ended_well"] = train.returncode == 0

    # ---- what is true of the whole

    def _judged(self) -> dict[str, Any]:
        from cleaner_rl.trajectory.store import read

        figures: dict[str, Any] = {}
        for stage, steps in STEPS.items():
            lines = self._lines(stage)
            rows = list(read(self._run / f"drill-{stage}" / "trajectories"))
            kept = [row for row in rows if row.info.roc["kept"]]  # type: ignore[index]
            trained = Counter(row.key.step for row in kept)
            tasks = Counter((row.key.step, row.key.task) for row in rows)
            figures |= {
                f"{stage}_steps": [line["step"] for line in lines],
                f"{stage}_faults": [line["metrics"]["faults"] for line in lines],
                f"{stage}_groups_too_small": [line["metrics"]["groups/too_small"] for line in lines],
                f"{stage}_every_step_once": [line["step"] for line in lines] == list(range(1, steps + 1)),
                f"{stage}_whole_groups": set(trained.values()) == {PROMPTS * KEPT},
                f"{stage}_no_fault_trained_on": all(row.usable and row.reward is not None for row in kept),
                f"{stage}_no_task_twice": max(Counter(task for _, task in tasks).values()) == 1,
            }
        return figures

    def _lines(self, stage: str) -> list[dict[str, Any]]:
        file = self._run / f"drill-{stage}" / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _done(self, stage: str) -> int:
        return max((line["step"] for line in self._lines(stage)), default=0)

    def _saved(self, stage: str) -> int:
        newest = self._run / f"drill-{stage}" / "checkpoints" / "latest_checkpointed_iteration.txt"
        return int(newest.read_text()) if newest.exists() else 0

    # ---- processes

    def _start(self) -> subprocess.Popen[bytes]:
        number = len(list(self._place.glob("log-*"))) + 1
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        own = {"PYTHONPATH": path, "DRILL": str(self._place / "failing")}
        program = [
            sys.executable,
            "-c",
            "from cleaner_rl.cli import main; main()",
            "train",
            str(self._place / "recipe.yaml"),
        ]
        with (self._place / f"log-{number}").open("w") as log:
            return subprocess.Popen(program, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True)

    def _until(self, met: Callable[[], bool], train: subprocess.Popen[bytes] | None) -> None:
        while not met():
            if time.monotonic() > self._deadline or (train is not None and train.poll() is not None and not met()):
                log = sorted(self._place.glob("log-*"))[-1].read_text()[-5_000:]
                raise click.ClickException(f"the drill stands still; the last words were\n{log}")
            time.sleep(0.2)

    @staticmethod
    def _worker_of(train: subprocess.Popen[bytes]) -> psutil.Process:
        """A process of the run that runs rollouts."""
        for process in psutil.Process(train.pid).children(recursive=True):
            if any("AgentLoopWorkerTQ" in word for word in process.cmdline()):
                return process
        raise click.ClickException("no agent-loop worker was found")

    @staticmethod
    def _kill(train: subprocess.Popen[bytes]) -> None:
        """The command and all that it started, at once."""
        with suppress(psutil.NoSuchProcess):
            for process in [*psutil.Process(train.pid).children(recursive=True), psutil.Process(train.pid)]:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        train.wait()

    def _write(self, addresses: list[str]) -> None:
        world = self._world
        recipe = {
            "name": "drill",
            "method": "saar+roc",
            "model": {"path": str(world / "model"), "dtype": "float32"},
            "tasks": {"train": [str(world / "train.parquet")], "prompt": str(world / "prompt.toml")},
            "budget": {"prompt_tokens": 256, "response_tokens": 384, "turns": 4, "lookahead_tokens": 384},
            "batch": {
                "prompts": PROMPTS,
                "mini_batch": PROMPTS,
                "rollouts": KEPT,
                "micro_batch": 16,
                "dynamic_sampling": False,
            },
            "roc": {"sample": DRAWN, "min_positive": 1, "min_negative": 1},
            "update": {"lr": 1e-4, "warmup_steps": 0, "overlong_buffer": 0},
            "sandbox": {"addresses": addresses, "packages": ["kit"], "cpu_seconds": 0.2, "memory_mb": 256},
            "faults": {"max_share": 0.5, "stall_minutes": 10},
            "device": {"kind": "cpu", "per_node": 1, "workers": 1},
            "run": {"save_every": 1, "evaluate_every": 0, "folder": str(self._place)},
            "stages": [
                {"name": "first", "steps": STEPS["first"]},
                {"name": "second", "steps": STEPS["second"], "response_tokens": 448, "max_pass_rate": 0.9},
            ],
            "verl": {"actor_rollout_ref.model.external_lib": "benchmarks.drill.parts"},
        }
        (self._place / "recipe.yaml").write_text(json.dumps(recipe))


main()
