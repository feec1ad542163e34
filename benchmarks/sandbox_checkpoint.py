"""What a session's checkpoint costs: `python -m benchmarks.sandbox_checkpoint --json`.

Two sessions of the same interpreter run the same empty cells. In one, each cell gets a checkpoint. The other holds an
open pipe, so its state can't be forked and its cells run in place. The difference per cell is the checkpoint: the
supervisor's part in it, the fork, the pages that the cell then has to copy, and the end of the oldest state that is
kept. Beside it stands a bare fork of the same interpreter, made by a cell of the first session itself: the C library's
`fork`, a child that executes the same cell and ends, and `waitpid`. `empty_fork_ms`: of a child that ends at once.

Cases: an empty session folder, one with 50 MB in it, and, for comparison, one with 50 MB in which every cell writes, so
that every checkpoint also needs a layer. All in one run, in turns; each figure is the median over rounds of the CPU and
elapsed milliseconds of all of a session's processes.

Limits: at tier 2 only; the machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.record import save
from benchmarks.sandbox_bench.measure import tree_cpu
from cleaner_sandbox import Cell, Limits, Node, NodeConfig, RunStatus, Session, SessionRequest, Tier

MEGABYTES = 50
MOST_RATIO = 1.5
FORKS = """
import ctypes, os, resource, time
fork, used = ctypes.PyDLL(None).fork, resource.getrusage
def cpu(): return sum(sum(used(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
def forks(number, code):
    began, before = time.monotonic(), cpu()
    for _ in range(number):
        pid = fork()
        if pid == 0:
            if code is not None: exec(compile(code, "cell", "exec"), globals())
            os._exit(0)
        os.waitpid(pid, 0)
    print((cpu() - before) / number * 1000, (time.monotonic() - began) / number * 1000)
"""
FILL = f"""
for number in range({MEGABYTES}):
    with open(f"part{{number}}", "wb") as file: file.write(bytes([number]) * (1 << 20))
del file, number
"""
CASES = {"empty": ("", ""), f"{MEGABYTES}mb": (FILL, ""), f"{MEGABYTES}mb_written": (FILL, "open('note', 'w').close()")}
"""What fills the folder, and what each cell does."""


@dataclass
class Spent:
    """CPU and elapsed milliseconds of one thing, over rounds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def add(self, cpu: float, wall: float) -> None:
        """One round."""
        self.cpu.append(cpu)
        self.wall.append(wall)

    def over(self, other: Spent) -> Spent:
        """What this cost more, round by round."""
        return Spent(
            [mine - theirs for mine, theirs in zip(self.cpu, other.cpu, strict=True)],
            [mine - theirs for mine, theirs in zip(self.wall, other.wall, strict=True)],
        )


async def _ran(session: Session, code: str) -> str:
    outcome = await session.run(Cell(code, echo_last_expression=False))
    if outcome.result.status is not RunStatus.OK:
        raise RuntimeError(f"a cell failed: {outcome.result}")
    return outcome.result.output


async def _cells(session: Session, code: str, cells: int) -> tuple[float, float]:
    """CPU and elapsed milliseconds per cell."""
    began, before = time.monotonic(), tree_cpu(session.pid)
    for _ in range(cells):
        await _ran(session, code)
    return (tree_cpu(session.pid) - before) / cells * 1000, (time.monotonic() - began) / cells * 1000


async def _case(node: Node, environment: str, fill: str, code: str, cells: int, rounds: int) -> dict[str, float]:
    request = SessionRequest(environment, Limits(disk_mb=2 * MEGABYTES, processes=64))
    forking, in_place, forked, empty = Spent(), Spent(), Spent(), Spent()
    for _ in range(rounds):
        # New ones each time: a session has a greatest number of layers.
        checked, unchecked = [await node.open_session(request) for _ in range(2)]
        for session in (checked, unchecked):
            await _ran(session, fill + FORKS)
        await _ran(unchecked, "pipe = os.pipe()")
        for session in (checked, unchecked):
            await _cells(session, code, node.config.checkpoints + 4)
        forking.add(*await _cells(checked, code, cells))
        in_place.add(*await _cells(unchecked, code, cells))
        for spent, work in ((forked, code), (empty, None)):
            cpu, wall = map(float, (await _ran(checked, f"forks({cells}, {work!r})")).split())
            spent.add(cpu, wall)
        for session in (checked, unchecked):
            await session.close()
    checkpoint, middle = forking.over(in_place), statistics.median
    return {
        "checkpoint_ms": round(middle(checkpoint.cpu), 3),
        "fork_ms": round(middle(forked.cpu), 3),
        "ratio": round(middle(checkpoint.cpu) / middle(forked.cpu), 3),
        "checkpoint_wall_ms": round(middle(checkpoint.wall), 3),
        "fork_wall_ms": round(middle(forked.wall), 3),
        "empty_fork_ms": round(middle(empty.cpu), 3),
        "cell_ms": round(middle(forking.cpu), 3),
    }


async def measure(environment: str, cells: int, rounds: int) -> dict[str, object]:
    """All cases."""
    async with Node(NodeConfig(slots=1, min_tier=Tier.T2)) as node:
        return {
            name: await _case(node, environment, fill, code, cells, rounds) for name, (fill, code) in CASES.items()
        } | {"environment": environment}


def main() -> None:
    """Measure, and print one JSON object; exits with 1 if a checkpoint costs more than 1.5 forks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", default="science")
    parser.add_argument("--cells", type=int, default=100, help="per round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="on one line")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.environment, options.cells, options.rounds))
    if options.save:
        save(
            options.save,
            figures,
            {"environment": options.environment, "cells": options.cells, "rounds": options.rounds},
        )
    print(json.dumps(figures, indent=None if options.json else 2))
    promised = [figures[name]["ratio"] for name in ("empty", f"{MEGABYTES}mb")]  # type: ignore[index]
    sys.exit(1 if max(promised) > MOST_RATIO else 0)


if __name__ == "__main__":
    main()
