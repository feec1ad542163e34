"""What callers notice when nodes break: `python -m benchmarks.sandbox_faults --json`.

Two nodes take 20,000 calls; meanwhile random slots, zygotes, fronts and whole nodes are killed (SIGKILL). Slots,
zygotes and fronts come back by themselves; a whole node is started again, as a service manager would. Counted: calls
that were lost (answered as a fault), answered more than once, or answered with someone else's result. Then a soak
(`--soak-seconds 600`), and what is left when both nodes have been stopped: processes, files, shared memory, and memory
that the fronts gained. `--save FILE` also keeps the figures with commit and machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import random
import signal
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import save
from benchmarks.sandbox_load import mixture, pour, printer
from benchmarks.sandbox_nodes import NodeProcess, children
from cleaner_sandbox import RunRequest, RunStatus
from cleaner_sandbox.client import SandboxClient
from cleaner_sandbox.isolation.ids import USUAL

KINDS = ("slot", "zygote", "front", "node")
PR_SET_CHILD_SUBREAPER = 36


class Injector:
    """Kills something whenever so many more calls have been answered."""

    def __init__(self, nodes: Sequence[NodeProcess], calls: int, kills: int, seed: int) -> None:
        self._nodes, self._luck = nodes, random.Random(seed)
        self.kills = dict.fromkeys(KINDS, 0)
        plan = [KINDS[number % len(KINDS)] for number in range(kills)]
        self._luck.shuffle(plan)
        self._plan = deque((calls * (number + 1) // (kills + 1), kind) for number, kind in enumerate(plan))
        self._restarts: set[asyncio.Task[None]] = set()

    def answered(self, count: int) -> None:
        """So many calls have been answered."""
        if self._plan and count >= self._plan[0][0]:
            _, kind = self._plan[0]
            # A node that is only just coming back has nothing to kill: then the other one, or a little later.
            if any(self._kill(kind, node) for node in self._luck.sample(self._nodes, len(self._nodes))):
                self.kills[kind] += 1
                self._plan.popleft()

    def _kill(self, kind: str, node: NodeProcess) -> bool:
        if kind == "node":
            if node.starting:
                return False
            node.kill()
            node.starting = True
            self._restarts.add(asyncio.create_task(asyncio.to_thread(node.start)))
            return True
        front = [] if node.front is None else [node.front]
        choices = {"slot": node.supervisors, "zygote": node.zygotes, "front": front}[kind]
        if not choices:
            return False
        try:
            os.kill(self._luck.choice(choices), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    async def settle(self) -> None:
        """Wait until all nodes are back."""
        await asyncio.gather(*self._restarts)


async def inject(
    nodes: Sequence[NodeProcess], calls: int, outstanding: int, kills: int, seed: int
) -> dict[str, object]:
    """Make the calls, break the nodes, and see what the callers got."""
    injector = Injector(nodes, calls, kills, seed)
    times_answered = [0] * calls
    explanations: list[str] = []
    done = 0
    async with SandboxClient([node.url for node in nodes], attempts=10) as client:

        async def ask(number: int) -> tuple[str, bool]:
            nonlocal done
            outcome = await client.run(RunRequest(f"print({number} * 7)", request_id=f"call-{number}"))
            times_answered[number] += 1
            done += 1
            injector.answered(done)
            if outcome.result.status is RunStatus.FAULT:
                explanations.append(outcome.result.explanation)
                return "fault", True
            right = (outcome.result.output, outcome.request_id) == (f"{number * 7}\n", f"call-{number}")
            return outcome.result.status.value, right

        tally = await pour(calls, outstanding, ask)
        await injector.settle()
        again = await pour(200, 16, printer(client))
    return {
        "calls": calls,
        "kills": injector.kills,
        "lost": tally.faults,
        "not_answered": times_answered.count(0),
        "answered_twice": sum(times > 1 for times in times_answered),
        "wrong": tally.wrong,
        "seconds": round(tally.seconds, 1),
        "explanations": sorted(set(explanations)),
        "right_afterwards": again.answered - again.wrong - again.faults,
        "nodes_back": sum(node.health()["status"] == "ok" for node in nodes),
    }


async def soak(nodes: Sequence[NodeProcess], seconds: float) -> dict[str, object]:
    """Mixed load for so long; the fronts' memory after a tenth of it and at its end."""
    begun = time.monotonic()
    calls = wrong = 0
    early: list[float] = []
    async with SandboxClient([node.url for node in nodes]) as client:
        while time.monotonic() - begun < seconds:
            tally = await pour(400, 64, mixture(client))
            calls, wrong = calls + tally.answered, wrong + tally.wrong
            if not early and time.monotonic() - begun > seconds / 10:
                early = [node.front_mb() for node in nodes]
    late = [node.front_mb() for node in nodes]
    return {
        "seconds": round(time.monotonic() - begun),
        "calls": calls,
        "wrong": wrong,
        "front_mb_early": [round(each, 1) for each in early],
        "front_mb_late": [round(each, 1) for each in late],
    }


def traces(folder: str) -> set[str]:
    """Files that nodes left in their folder, and shared memory of the users that runs have."""
    shared = (path for path in Path("/dev/shm").iterdir() if path.stat().st_uid >= USUAL)
    return {str(path) for path in (*Path(folder).iterdir(), *shared)}


def measure(calls: int, outstanding: int, kills: int, seed: int, soak_seconds: float) -> dict[str, object]:
    """All of it."""
    # Orphans of killed processes become children of this one, so that none can hide.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        os.environ["TMPDIR"] = folder
        nodes = [NodeProcess(), NodeProcess()]
        with nodes[0], nodes[1]:
            figures["faults"] = asyncio.run(inject(nodes, calls, outstanding, kills, seed))
            if soak_seconds:
                figures["soak"] = asyncio.run(soak(nodes, soak_seconds))
            for node in nodes:
                node.stop()
        figures["left_behind"] = {"processes": orphans(), "files": sorted(traces(folder))}
    return figures


def orphans() -> list[str]:
    """Processes that outlive the nodes. Zombies are reaped; what is being killed may take a moment."""
    names: list[str] = []
    for _ in range(100):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in children(os.getpid())]
        if not names:
            break
        time.sleep(0.1)
    return names


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--outstanding", type=int, default=256)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--soak-seconds", type=float, default=0.0)
    parser.add_argument("--json", action="store_true", help="on one line")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    settings = {name: value for name, value in vars(arguments).items() if name not in ("json", "save")}
    figures = measure(**settings)
    if arguments.save:
        save(arguments.save, figures, settings)
    print(json.dumps(figures, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()
