"""How a node bears load: `python -m benchmarks.sandbox_load --calls 45000 --outstanding 45000 --json`.

- `streamed`: all calls outstanding at once, through the client (at most 256 connections), and the same node with 64
  outstanding before and after it, for the ratio of throughputs (one call per line of the answer, no retries counted).
- `connections`: 4,000 single-request connections open at the same moment, each with one call.
- `mixed`: a third of the programs is bash, the rest Python; 10 % of them fail, 2 % loop for ever (CPU limit 1 s), with
  16, 256 and 1,000 outstanding; a verdict is wrong if it is not the one that the program alone would get.

Every program prints its own number, so a result that is missing, doubled or someone else's is seen. `--save FILE` also
keeps the figures with commit and machine. Client and node share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.record import save
from benchmarks.sandbox_nodes import NodeProcess
from cleaner_sandbox import Language, Limits, RunRequest, RunStatus
from cleaner_sandbox.client import SandboxClient

MIXED_OUTSTANDING = (16, 256, 1000)
LOOP_SECONDS = 1.0
PROGRAMS = {
    Language.PYTHON: {
        RunStatus.OK: "x = sum(i * i for i in range(2000))\nprint(NUMBER)",
        RunStatus.ERROR: "print(NUMBER)\nraise ValueError(NUMBER)",
        RunStatus.TIMEOUT: "print(NUMBER, flush=True)\nwhile True: pass",
    },
    Language.BASH: {
        RunStatus.OK: "seq 200 | sort -n | tail -n 1 > last; echo NUMBER",
        RunStatus.ERROR: "echo NUMBER; exit 3",
        RunStatus.TIMEOUT: "echo NUMBER; while :; do :; done",
    },
}
"""Of the mixed load, each by how it ends."""

Ask = Callable[[int], Awaitable[tuple[str, bool]]]
"""Makes the call of a number; its status, and whether the answer is the right one."""


@dataclass
class Tally:
    """What came of a load."""

    calls: int
    answered: int = 0
    wrong: int = 0
    faults: int = 0
    seconds: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)

    def count(self, status: str, right: bool) -> None:
        """One answer."""
        self.answered += 1
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.faults += status == "fault"
        self.wrong += not right

    def figures(self) -> dict[str, object]:
        """As JSON."""
        return {
            "calls": self.calls,
            "answered": self.answered,
            "wrong": self.wrong,
            "faults": self.faults,
            "seconds": round(self.seconds, 2),
            "calls_per_second": round(self.answered / self.seconds, 1),
            "statuses": self.statuses,
        }


async def pour(calls: int, outstanding: int, ask: Ask) -> Tally:
    """Make so many calls with so many of them outstanding."""
    tally = Tally(calls)
    numbers = iter(range(calls))

    async def worker() -> None:
        for number in numbers:
            tally.count(*await ask(number))

    begun = time.monotonic()
    await asyncio.gather(*(worker() for _ in range(min(outstanding, calls))))
    tally.seconds = time.monotonic() - begun
    return tally


def printer(client: SandboxClient) -> Ask:
    """Calls that print their own number."""

    async def ask(number: int) -> tuple[str, bool]:
        outcome = await client.run(RunRequest(f"print({number} * 7)", request_id=f"load-{number}"))
        right = outcome.result.output == f"{number * 7}\n" and outcome.request_id == f"load-{number}"
        return outcome.result.status.value, right

    return ask


def mixture(client: SandboxClient) -> Ask:
    """Calls of which some fail and some never end."""
    limits = Limits(cpu_seconds=LOOP_SECONDS)

    async def ask(number: int) -> tuple[str, bool]:
        language = Language.BASH if number % 3 == 1 else Language.PYTHON
        kind = RunStatus.TIMEOUT if number % 50 == 7 else RunStatus.ERROR if number % 10 == 3 else RunStatus.OK
        code = PROGRAMS[language][kind].replace("NUMBER", str(number))
        outcome = await client.run(RunRequest(code, limits=limits, language=language))
        result = outcome.result
        right = result.status is kind and result.output == f"{number}\n"
        if kind is RunStatus.ERROR:
            told = str(outcome.exit_code) if result.exception is None else result.exception.message
            right = right and told == ("3" if language is Language.BASH else str(number))
        return result.status.value, right

    return ask


async def streamed(node: NodeProcess, calls: int, outstanding: int) -> dict[str, object]:
    """All at once, between two runs with 64 outstanding."""
    few = max(200, calls // 10)
    memory = [node.front_mb()]

    def cpu() -> float:
        return node.cpu_seconds() + time.process_time()

    async with SandboxClient(node.url) as client:
        ask = printer(client)
        await pour(200, 64, ask)
        memory.append(node.front_mb())
        marks = [cpu()]
        before = await pour(few, 64, ask)
        marks.append(cpu())
        node_cpu = node.cpu_seconds()
        all_at_once = await pour(calls, outstanding, ask)
        node_cpu = node.cpu_seconds() - node_cpu
        marks.append(cpu())
        memory.append(node.front_mb())
        after = await pour(few, 64, ask)
        marks.append(cpu())
        memory.append(node.front_mb())
    sixty_four = (before.answered + after.answered) / (before.seconds + after.seconds)
    cpu_with_64 = (marks[1] - marks[0] + marks[3] - marks[2]) / (before.answered + after.answered)
    figures = all_at_once.figures()
    figures["outstanding"] = outstanding
    figures["node_cpu_ms_per_call"] = round(1000 * node_cpu / calls, 2)
    figures["calls_per_second_with_64"] = round(sixty_four, 1)
    figures["ratio_to_64"] = round(all_at_once.answered / all_at_once.seconds / sixty_four, 3)
    # The same by CPU time of client and node together: what others do on the machine meanwhile weighs less in it.
    figures["cpu_ratio_to_64"] = round(cpu_with_64 / ((marks[2] - marks[1]) / calls), 3)
    figures["front_mb"] = dict(zip(("start", "warm", "after_all_at_once", "after_64"), map(round, memory), strict=True))
    return figures


async def single_connections(node: NodeProcess, connections: int) -> dict[str, object]:
    """So many connections at the same moment, each with one call; the node says how many calls it held at once."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    held = 0
    async with aiohttp.ClientSession(node.url, connector=connector, timeout=aiohttp.ClientTimeout(None)) as http:

        async def ask(number: int) -> tuple[str, bool]:
            nonlocal held
            body = {"code": f"print({number} * 7)", "id": str(number)}
            async with http.post("/v1/run", json=body) as response:
                answer = await response.json()
            if number == 0:
                async with http.get("/healthz") as response:
                    health = await response.json()
                    held = health["waiting"] + health["running"]
            return answer["status"], (answer["output"], answer["id"]) == (f"{number * 7}\n", str(number))

        tally = await pour(connections, connections, ask)
    return {**tally.figures(), "connections": connections, "held_after_the_first_answer": held}


async def mixed(node: NodeProcess, calls: int, outstanding: Sequence[int]) -> dict[str, object]:
    """The mixed load, for each number of outstanding calls."""
    figures: dict[str, object] = {}
    async with SandboxClient(node.url) as client:
        for number in outstanding:
            figures[str(number)] = (await pour(calls, number, mixture(client))).figures()
    return figures


async def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """All three, each on a fresh node."""
    figures: dict[str, object] = {}
    with NodeProcess(arguments.slots) as node:
        figures["tier"] = node.health()["tier"]
        figures["streamed"] = await streamed(node, arguments.calls, arguments.outstanding)
        figures["connections"] = await single_connections(node, min(arguments.connections, arguments.calls))
    with NodeProcess(arguments.slots) as node:
        figures["mixed"] = await mixed(node, min(arguments.mixed_calls, arguments.calls), MIXED_OUTSTANDING)
    return figures


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--outstanding", type=int, default=2_000)
    parser.add_argument("--connections", type=int, default=4_000)
    parser.add_argument("--mixed-calls", type=int, default=3_000)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="on one line")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments))
    if arguments.save:
        settings = {name: value for name, value in vars(arguments).items() if name not in ("json", "save")}
        save(arguments.save, figures, settings)
    print(json.dumps(figures, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()
