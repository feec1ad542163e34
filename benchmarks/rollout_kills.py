"""Kills in the middle of real runs: `python -m benchmarks.rollout_kills FOLDER --json`.

`cleaner rollout` lets a toy model (`benchmarks.toy make mistakes`) work in sessions, with two vLLM replicas and
two sandbox nodes, all on this machine. At random moments the command, a replica or a node is killed by SIGKILL. A
server is started again at once, which takes it a while; the command goes on with the same words. Afterwards

- every rollout is in the store once, none ended in a fault, no call's result is one;
- `cleaner verify` replays them all: a fault that was taken for a failure would not happen again;
- most are, id for id, those of a run that nobody disturbed (`as_undisturbed`). Not all can be: in other company a
  log-prob is rounded otherwise, and once in a while a seed then draws another token.

Moments are counted in requests that the replicas answered, so that they fall into the run on any machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks.record import save
from benchmarks.serving import Part, free_port, kill, leashed, running, vllm
from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory import AnyTrajectory, Key, StopReason, TokenSpan
from cleaner_rl.trajectory.store import read

RESULTS = Path(__file__).parent / "results" / "rollout_kills.json"
CLEANER = (sys.executable, "-c", "from cleaner_rl.cli import main; main()")
AT_ONCE = 16
WINDOW = 2_048
SECONDS = 1_200.0
"""For a run."""
_ANSWERED = re.compile(r"^vllm:request_success_total\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass
class Scene:
    """Two of each server, and the command that uses them."""

    world: Path
    folder: Path
    tasks: int
    engines: list[Part] = field(init=False)
    nodes: list[Part] = field(init=False)

    def __post_init__(self) -> None:
        self.engines = [
            vllm(self.world / "model", self.folder, "--max-model-len", WINDOW, record=False) for _ in range(2)
        ]
        self.nodes = [self._node() for _ in range(2)]

    def _node(self) -> Part:
        port = free_port()
        command = (sys.executable, "-m", "benchmarks.toy", "serve", self.world, "--port", port)
        return Part(f"http://127.0.0.1:{port}", self.folder / f"node-{port}.log", command, {}, "/healthz")

    def rollout(self, output: Path) -> subprocess.Popen[bytes]:
        """Begin a run, or go on with it."""
        command: list[object] = [*CLEANER, "rollout", "--tasks", self.world / "test.jsonl", "--limit", self.tasks]
        command += ["--model", self.world / "model", "--prompt", self.world / "prompt.toml", "--out", output]
        command += ["--turns", 12, "--tokens", WINDOW, "--lookahead", WINDOW, "--concurrency", AT_ONCE]
        for engine in self.engines:
            command += ["--url", engine.url]
        for node in self.nodes:
            command += ["--sandbox", node.url]
        return leashed(command, output.with_suffix(".log"), {})

    def verdicts(self, output: Path) -> dict[str, int]:
        """What `cleaner verify` says of a run's trajectories, sessions and all."""
        command = [*CLEANER, "verify", output / "trajectories", "--sandbox", self.nodes[0].url, "--json"]
        ran = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, timeout=SECONDS, check=False)
        counts = Counter(json.loads(ran.stdout)["verdicts"])
        return {f"replayed_{verdict}": counts[verdict] for verdict in ("same", "different", "nondeterministic")}


class Answered:
    """How many requests the engines have answered, those of killed ones included."""

    def __init__(self, engines: Sequence[Part]) -> None:
        self._engines = engines
        self._known = dict.fromkeys((each.url for each in engines), 0.0)
        self._lost = self._before = 0.0
        self._before = self.count()

    def count(self) -> float:
        """Since this was made."""
        for engine in self._engines:
            with contextlib.suppress(urllib.error.URLError, OSError):
                with urllib.request.urlopen(f"{engine.url}/metrics", timeout=5) as answer:
                    now = sum(map(float, _ANSWERED.findall(answer.read().decode())))
                if now < self._known[engine.url]:  # another process, which counts from the start
                    self._lost += self._known[engine.url]
                self._known[engine.url] = now
        return sum(self._known.values()) + self._lost - self._before


def disturbed(scene: Scene, output: Path, victims: Sequence[str], seed: int) -> Counter[str]:
    """A run under kills, each at a random moment of it; which kills fell into the run."""
    draw = random.Random(seed)
    moments = sorted(draw.uniform(0.1, 1.5) * scene.tasks for _ in victims)
    answered = Answered(scene.engines)
    process = scene.rollout(output)
    kills: Counter[str] = Counter()
    try:
        for victim, moment in zip(victims, moments, strict=True):
            if not _reached(moment, answered, process):
                break
            if victim == "command":
                os.kill(process.pid, signal.SIGKILL)  # it alone: what it started has to end by itself
                process.wait(30)
                before, process = process, scene.rollout(output)
                kill(before)
            else:
                pair = scene.engines if victim == "engine" else scene.nodes
                chosen = draw.randrange(2)
                pair[1 - chosen].await_health()  # one of two: the other one stands
                pair[chosen].kill()
                pair[chosen].start()
            kills[victim] += 1
            click.echo(f"{victim} killed after {answered.count():.0f} requests", err=True)
        if process.wait(SECONDS) != 0:
            raise RuntimeError(f"the run failed:\n{output.with_suffix('.log').read_text()[-3000:]}")
    finally:
        kill(process)
    return kills


def _reached(moment: float, answered: Answered, process: subprocess.Popen[bytes]) -> bool:
    """Wait for a moment of a run; false if the run is over before."""
    deadline = time.monotonic() + SECONDS
    while answered.count() < moment:
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def judged(output: Path, tasks: int) -> dict[str, int]:
    """What is wrong with a run's store, counted; all zeros if nothing is."""
    stored = list(read(output / "trajectories"))
    times = Counter(each.key for each in stored)
    return {
        "lost": tasks - len(times),
        "doubled": len(stored) - len(times),
        "ended_in_a_fault": sum(each.stop_reason is StopReason.FAULT for each in stored),
        "faults_among_results": sum(result.faulty for each in stored for result in _results(each)),
    }


def _results(trajectory: AnyTrajectory) -> list[ToolResult]:
    """Of its own calls, and of those that repairs tried."""
    tried = [each for _, edit in trajectory.edits for each in edit.original]
    return [result for turn in (*trajectory.turns, *tried) for result in turn.results]


def measure(world: Path, tasks: int, victims: Sequence[str], seed: int, folder: Path) -> dict[str, object]:
    """A run under kills, judged and replayed."""
    scene = Scene(world, folder, tasks)
    with running(*scene.engines, *scene.nodes):
        return killed(scene, folder / "wild", victims, seed)


def compare(world: Path, tasks: int, victims: Sequence[str], seed: int, folder: Path) -> dict[str, object]:
    """The same beside a run that nobody disturbs."""
    scene = Scene(world, folder, tasks)
    with running(*scene.engines, *scene.nodes):
        calm = killed(scene, folder / "calm", (), seed)
        wild = killed(scene, folder / "wild", victims, seed)
    wanted = _ids(folder / "calm")
    alike = sum(wanted.get(key) == ids for key, ids in _ids(folder / "wild").items())
    return {**wild, "as_undisturbed": round(alike / tasks, 4), "undisturbed": calm}


def killed(scene: Scene, output: Path, victims: Sequence[str], seed: int) -> dict[str, object]:
    """One run, judged and replayed."""
    begun = time.monotonic()
    kills = disturbed(scene, output, victims, seed)
    seconds = round(time.monotonic() - begun, 1)
    scene.nodes[0].await_health()
    verified = scene.verdicts(output)
    return {"rollouts": scene.tasks, "kills": kills, "seconds": seconds, **judged(output, scene.tasks), **verified}


def _ids(output: Path) -> dict[Key, list[int]]:
    return {
        each.key: each.ids().tolist() for each in read(output / "trajectories") if isinstance(each.prompt, TokenSpan)
    }


def main() -> None:
    """Kill, judge, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", type=Path, help="a folder of `python -m benchmarks.toy make mistakes`")
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3, help="of one kill of each: command, replica, node")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--save", type=Path, nargs="?", const=RESULTS, help="keep the figures, with commit and machine")
    arguments = parser.parse_args()
    victims = ["command", "engine", "node"] * arguments.rounds
    random.Random(arguments.seed).shuffle(victims)
    with tempfile.TemporaryDirectory() as folder:
        figures = compare(arguments.world, arguments.tasks, victims, arguments.seed, Path(folder))
    if arguments.save:
        save(arguments.save, figures, {name: getattr(arguments, name) for name in ("tasks", "rounds", "seed")})
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:24} {figure}")


if __name__ == "__main__":
    main()
