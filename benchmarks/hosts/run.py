"""The run across two hosts, and what it is judged by."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import click
import numpy as np

from benchmarks.drill.runs import Command, done, found, judged, saved
from benchmarks.hosts.two import ADDRESSES, TwoHosts, why_not
from benchmarks.lab.recipes import MICRO_BATCH, ON_CPU, RATE
from cleaner_rl.train.preflight.exactness import row_ids, stored_rows
from cleaner_rl.train.preflight.witness import FOLDER, rolled, seen
from cleaner_rl.train.recipe.settings import SandboxSettings
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.verl.plan import read_plan
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import read

PROMPTS, ROLLOUTS = 4, 4
END_SECONDS = 60.0
"""How long a run may take to end after it has lost a part."""
WITNESS = "cleaner_rl.train.preflight.witness"
TRAINER, TRAINING, ENGINE = "ray::TaskRunner", "ray::WorkerDict", "VLLM::EngineCore"
"""Processes of verl's, by their names."""


def measure(world: Path, steps: int, *, faults: bool, patience: float) -> dict[str, Any]:
    """Run it, and return the figures; if this machine can't have two hosts, say why."""
    reason = why_not()
    if reason:
        return {"steps": 0, "skipped": 1, "why": reason}
    # Not below /tmp, which sandboxed programs have for themselves.
    with tempfile.TemporaryDirectory(prefix="hosts-", dir="/var/tmp") as place:
        return Drill(world, Path(place), steps, patience).run(faults=faults)


class Drill:
    """One run."""

    def __init__(self, world: Path, place: Path, steps: int, patience: float) -> None:
        self._world, self._place, self._steps, self._patience = world, place, steps, patience
        self._run = place / "hosts"
        self._figures: dict[str, Any] = {}

    def run(self, *, faults: bool) -> dict[str, Any]:
        """All of it; the figures."""
        kit = str(self._world / "kit")
        sandbox = SandboxSettings(slots=2, environment=kit, cpu_seconds=0.2, memory_mb=256)
        begun = time.monotonic()
        witness = {FOLDER: str(self._place)}
        with TwoHosts(sandbox, self._place, witness) as hosts:
            recipe = self._write(hosts)
            before = hosts.command(0, [])
            train = Command(recipe, self._place, self._patience, {**hosts.environment, **witness}, before)
            ended = [self._loses_engine(hosts, train), self._loses_host(hosts, train)] if faults else []
            train.start()
            train.until(lambda: saved(self._run) >= self._steps - 1)
            self._figures["hosts"] = sum(_takes_part(hosts, number) for number in range(len(ADDRESSES)))
            code = train.ended()
            self._figures["recovered"] = all(ended) and code == 0
            if code:
                raise click.ClickException(f"the run failed; its last words were\n{train.said[-5_000:]}")
        self._figures["minutes"] = round((time.monotonic() - begun) / 60, 1)
        return {"steps": done(self._run), **self._judged(), **self._figures, "skipped": 0}

    def _loses_engine(self, hosts: TwoHosts, train: Command) -> bool:
        train.start()
        self._amid_step(2, hosts, train)
        found(hosts.processes(1), ENGINE).kill()
        return self._ends(train, "engine", f"an inference engine on {ADDRESSES[1]} died")

    def _loses_host(self, hosts: TwoHosts, train: Command) -> bool:
        train.start()
        self._amid_step(3, hosts, train)
        # Ray decides where verl's trainer runs; both cases are to end alike.
        self._figures["host_lost_had_trainer"] = _runs(hosts, 1, TRAINER)
        hosts.lose(1)
        named = self._ends(train, "host", "was lost, and with it")
        hosts.bring_back(1)
        return named

    def _ends(self, train: Command, part: str, words: str) -> bool:
        """Wait for the end of a run that has lost a part; say whether it came in time and with the reason."""
        begun = time.monotonic()
        code = train.ended()
        seconds = time.monotonic() - begun
        named = code != 0 and words in train.said
        self._figures |= {f"{part}_lost_seconds": round(seconds, 1), f"{part}_lost_named": named}
        return named and seconds <= END_SECONDS

    def _amid_step(self, step: int, hosts: TwoHosts, train: Command) -> None:
        """Wait until the first programs of a step have run."""
        train.until(lambda: saved(self._run) >= step - 1)
        begun = sum(map(hosts.programs, range(len(ADDRESSES))))
        train.until(lambda: sum(map(hosts.programs, range(len(ADDRESSES)))) > begun + 4)

    def _judged(self) -> dict[str, Any]:
        """Compare what the updates were given with what the store holds."""
        recipe = read_plan(str(self._run)).recipe
        rows = [cast("Graded", each) for each in read(self._run / "trajectories", Phase.TRAINING)]
        kept = [each for each in rows if each.info.verdict is not None and each.info.verdict["kept"]]
        wanted = Counter((each.key.step, row_ids(row)) for each in kept for row in stored_rows(each, recipe))
        updates = seen(self._place)
        there = Counter((each.step, tuple(each.ids)) for each in updates)
        known = judged(self._run, self._steps, PROMPTS * ROLLOUTS)
        rollouts = rolled(self._place)
        broken = Counter(tuple(each.ids) for each in updates) - rollouts.whole
        gaps = [_distance(each.rollout, each.old, each.mask) for each in updates]
        return {
            "lost": (wanted - there).total() + (not known["whole_groups"]),
            "doubled": (there - wanted).total() + (not known["every_step_once"]) + (not known["no_task_twice"]),
            "faults_trained": broken.total() + (not known["no_fault_trained_on"]),
            "rows": len(updates),
            "logprob_max_diff": max(gaps),
        }

    def _write(self, hosts: TwoHosts) -> Path:
        world = self._world
        recipe = {
            "name": "hosts",
            "method": "hindsight",
            "purify": {"scope": "all"},
            "model": {"path": str(world / "model")},
            "tasks": {"train": [str(world / "train.parquet")], "prompt": str(world / "prompt.toml")},
            "budget": {"prompt_tokens": 256, "response_tokens": 384, "turns": 4, "overlong_buffer": 0},
            "batch": {
                "prompts": PROMPTS,
                "mini_batch": PROMPTS,
                "rollouts": ROLLOUTS,
                "dynamic_sampling": False,
            },
            "sandbox": {
                "addresses": hosts.sandboxes,
                "token_file": str(hosts.token_file),
                "environment": "kit",
                "cpu_seconds": 0.2,
                "memory_mb": 256,
            },
            "run": {"steps": self._steps, "folder": str(self._place), "router": "even"},
            "verl": {
                **ON_CPU,
                RATE: 1e-4,
                MICRO_BATCH: 8,
                "trainer.nnodes": 2,
                "actor_rollout_ref.rollout.agent.num_workers": 2,
                "trainer.save_freq": 1,
                "actor_rollout_ref.model.external_lib": WITNESS,
            },
        }
        file = self._place / "recipe.yaml"
        file.write_text(json.dumps(recipe))
        return file


def _takes_part(hosts: TwoHosts, number: int) -> bool:
    """Say whether a host has a training process, an engine, and a sandbox node that has run programs."""
    return _runs(hosts, number, TRAINING) and _runs(hosts, number, ENGINE) and hosts.programs(number) > 0


def _runs(hosts: TwoHosts, number: int, name: str) -> bool:
    with suppress(click.ClickException):
        return bool(found(hosts.processes(number), name).is_running())
    return False


def _distance(one: Any, other: Any, mask: list[int]) -> float:
    """How far log-probs are apart: as they are down to -1, and in proportion below, where float32 has fewer digits."""
    return float((np.abs(one - other) / np.maximum(1, np.abs(other)))[np.array(mask, bool)].max(initial=0.0))
