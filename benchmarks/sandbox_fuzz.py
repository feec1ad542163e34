"""Random programs against a node: `python -m benchmarks.sandbox_fuzz --runs 10000 --json`.

Hypothesis writes the programs (`sandbox_programs`). Of each run it asks: was there exactly one outcome, ours; is its
status one that is right for the program, and never a fault; does the status agree with the exit code and signal; was
one attempt enough. In the end no slot or zygote may have died, and a plain program must run as before.

It runs in a throw-away world, so that a program that did get out would harm nothing; `--here` runs it without.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.record import save
from benchmarks.sandbox_programs import Drawn, requests
from cleaner_sandbox import BARE, Node, NodeConfig, RunOutcome, RunRequest, RunStatus, Tier, throwaway_command

TOGETHER = 8
KEPT = 20
"""Wrong verdicts that are shown in full."""


class Fuzzer:
    """Runs what is drawn, several at a time, and counts."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.statuses: Counter[str] = Counter()
        self.wrong: list[dict[str, str]] = []
        self.runs = 0

    async def run(self, drawn: list[Drawn]) -> None:
        """Run some at the same time."""
        await asyncio.gather(*(self._one(each) for each in drawn))

    async def _one(self, drawn: Drawn) -> None:
        self.runs += 1
        request = replace(drawn.request, request_id=f"fuzz-{self.runs}")
        try:
            outcome = await asyncio.wait_for(self._node.run(request), 60)
        except Exception as error:
            self._complain(request, f"raised {type(error).__name__}: {error}")
            return
        self.statuses[outcome.result.status] += 1
        problem = _problem(outcome, drawn, request)
        if problem is not None:
            self._complain(request, problem)

    def _complain(self, request: RunRequest, problem: str) -> None:
        self.wrong.append({"problem": problem, "request": repr(request)[:4000]})


def _problem(outcome: RunOutcome, drawn: Drawn, request: RunRequest) -> str | None:
    """What is wrong with an outcome; None if nothing is."""
    status = outcome.result.status
    if outcome.request_id != request.request_id:
        return f"the outcome of {outcome.request_id}"
    if status not in drawn.right:
        return (
            f"{status}, not {', '.join(sorted(drawn.right))}: {outcome.result.explanation} {outcome.result.exception}"
        )
    if outcome.attempts != 1:
        return "needed a second attempt"
    agrees = {
        RunStatus.OK: outcome.exit_code == 0,
        RunStatus.ERROR: outcome.exit_code not in (0, None),
        RunStatus.CRASHED: outcome.signal is not None,
    }
    return None if agrees.get(status, True) else f"{status} with {outcome.exit_code} and signal {outcome.signal}"


async def fuzz(runs: int, start: int) -> dict[str, object]:
    """Draw and run that many programs."""
    began = time.monotonic()
    async with Node(NodeConfig(slots=TOGETHER, environments=(BARE,), min_tier=Tier.T2)) as node:
        fuzzer = Fuzzer(node)
        loop = asyncio.get_running_loop()

        # Hypothesis is not asynchronous: it draws in a thread, and waits there for what the loop found.
        @seed(start)
        @settings(
            max_examples=-(-runs // TOGETHER),
            phases=[Phase.generate],
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(requests(), min_size=TOGETHER, max_size=TOGETHER))
        def draw(drawn: list[Drawn]) -> None:
            asyncio.run_coroutine_threadsafe(fuzzer.run(drawn[: runs - fuzzer.runs]), loop).result()

        while fuzzer.runs < runs:  # it stops early when it thinks that it has seen everything
            await asyncio.to_thread(draw)
        last = await node.run(RunRequest("print(6 * 7)"))
        status = node.status
    return {
        "runs": fuzzer.runs,
        "wrong": len(fuzzer.wrong),
        "faults": fuzzer.statuses[RunStatus.FAULT],
        "dead": int(last.result.output != "42\n"),
        "slot_deaths": status.slot_deaths,
        "zygote_deaths": status.zygote_deaths,
        "tier": status.tier.name,
        "statuses": dict(fuzzer.statuses),
        "seconds": round(time.monotonic() - began, 1),
        "seed": start,
        "examples": fuzzer.wrong[:KEPT],
    }


def main() -> None:
    """Parse, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="not in a throw-away world")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    if not options.here:
        # What is saved has to outlive that world, so it is handed back.
        program = [sys.executable, "-m", "benchmarks.sandbox_fuzz", "--here", "--json"]
        program += ["--runs", str(options.runs), "--seed", str(options.seed)]
        os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
        output = asyncio.run(_output(throwaway_command(program)))
        figures = json.loads(output)
    else:
        figures = asyncio.run(fuzz(options.runs, options.seed))
    if options.save is not None:
        save(options.save, figures, {"runs": options.runs, "seed": options.seed, "together": TOGETHER})
    print(json.dumps(figures, indent=None if options.json else 2))
    sys.exit(1 if figures["wrong"] or figures["dead"] or figures["slot_deaths"] or figures["zygote_deaths"] else 0)


async def _output(command: list[str]) -> bytes:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output


if __name__ == "__main__":
    main()
