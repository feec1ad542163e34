"""What checkpoint and rollback of a bash session cost: `python -m benchmarks.sandbox_shell --json`.

Each case fills a session's folder (with nothing, with 50 MB, with 10,000 files), and then runs cells that write one
file each. `cell_ms` is such a cell with its checkpoint, the start of bash and its description of itself included;
`rollback_ms` goes back by one cell. Beside them stands `copy_ms`: `cp -a` of the same folder to another one in memory,
the least that a checkpoint, or a rollback, by copying costs. CPU milliseconds of all processes, medians over rounds.

Limits: at tier 2 only; the machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.record import save
from benchmarks.sandbox_bench.measure import tree_cpu
from cleaner_sandbox import Language, Limits, Node, NodeConfig, RunStatus, Session, SessionRequest, Tier

CASES = {
    "empty": ":",
    "50mb": "for i in {1..50}; do head -c 1M /dev/urandom > part$i; done",
    "10000_files": "mkdir {0..99}; for i in {0..9999}; do echo $i > $((i / 100))/$i; done",
}
"""What fills the folder."""
TIMES = 8
"""As often as a session keeps states to go back to."""
CELL = "echo $((++n)) > note"
LIMITS = Limits(cpu_seconds=60.0, wall_seconds=300.0, disk_mb=256, files=20_000)


async def _ran(session: Session, code: str) -> None:
    outcome = await session.run(code)
    if outcome.result.status is not RunStatus.OK:
        raise RuntimeError(f"a cell failed: {outcome.result}")


async def _cpu(session: Session, work: Callable[[], Awaitable[object]]) -> float:
    """CPU milliseconds of each of some repetitions: the kernel counts those of ended processes in ticks."""
    before = tree_cpu(session.pid)
    for _ in range(TIMES):
        await work()
    return (tree_cpu(session.pid) - before) / TIMES * 1000


def _copy(source: Path, target: Path) -> float:
    shutil.rmtree(target, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["cp", "-a", source, target], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (sum(after[:2]) - sum(before[:2])) * 1000


def _fill(folder: Path, fill: str) -> None:
    folder.mkdir()
    subprocess.run(["/bin/bash", "-c", fill], cwd=folder, check=True)


async def _case(node: Node, fill: str, rounds: int) -> dict[str, float]:
    request = SessionRequest("bare", LIMITS, language=Language.BASH)
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        _fill(source, fill)
        session = await node.open_session(request)
        await _ran(session, f"n=0; {fill}")
        for _ in range(rounds):
            found["cell_ms"].append(await _cpu(session, lambda: _ran(session, CELL)))
            found["rollback_ms"].append(await _cpu(session, session.rollback))
            found["copy_ms"].append(_copy(source, target))
        await session.close()
    return {name: round(statistics.median(each), 2) for name, each in found.items()}


async def measure(rounds: int) -> dict[str, dict[str, float]]:
    """All cases."""
    async with Node(NodeConfig(slots=1, min_tier=Tier.T2)) as node:
        return {name: await _case(node, fill, rounds) for name, fill in CASES.items()}


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="on one line")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.rounds))
    if options.save:
        save(options.save, figures, {"rounds": options.rounds})
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
