"""Real vLLM replicas on this machine under our scheduler and under others: `python -m benchmarks.balance_real --json`.

The simulator's world in small: trajectories a fraction as long, with as many turns and as small a part of the waits, on
replicas with KV cache for 12 of full length. The tools are waits; prompts and observations are random ids, new in each
run, so that no run finds another's in the cache. The schedulers run one after the other in rotated order, and a ratio
is the median over the repeats.

Replicas on one machine share its cores: while one is idle, the others run faster, as they never would on machines of
their own. So each replica gets a fixed share of the cores (a cgroup's quota, which needs root).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
import numpy as np

from benchmarks.balance_rivals import RoundRobin, StickyLeastRequests
from benchmarks.balance_world import CAP, Script, Turn, scripts
from benchmarks.models import write_smollm2, write_tiny_qwen3
from benchmarks.record import save
from benchmarks.serving import Served, running, vllm
from cleaner_rl.rollout.balance import Dispatcher, EvenConfig, EvenScheduler, Replica, Scheduler
from cleaner_rl.rollout.engine import Engine, Sampling
from cleaner_rl.rollout.engines import Address, VllmEngine

BLOCK = 32
QUOTA = 0.8
"""Share of the machine's cores that all replicas have together; the rest is the client's."""
PERIOD_US = 10_000
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
"""Of cgroups' version 1."""
COUNTERS = {
    "preemptions": "num_preemptions_total",
    "steps": "iteration_tokens_total_count",
    "engine_queue_seconds": "request_queue_time_seconds_sum",
    "prompt_tokens": "prefix_cache_queries_total",
    "cached_tokens": "prefix_cache_hits_total",
}
"""Of vLLM's metrics, by our names."""


@dataclass(frozen=True, slots=True)
class Case:
    """Replicas and their work."""

    model: str
    replicas: int
    prompts: int
    scale: int = 40
    """Lengths and waits are this fraction of the simulator's."""

    @property
    def name(self) -> str:
        """The name of its figures."""
        return f"{self.model}, {self.replicas} replicas, {16 * self.prompts} trajectories"

    @property
    def longest(self) -> int:
        """Tokens of the longest trajectory."""
        return CAP // self.scale


CASES = {
    "two": Case("tiny-qwen3", 2, 4),
    "four": Case("tiny-qwen3", 4, 4),
    "smollm2": Case("smollm2", 2, 4, scale=80),
}

SCHEDULERS: dict[str, Callable[[Case], Scheduler]] = {
    "ours": lambda case: EvenScheduler(EvenConfig(longest=case.longest, patience=10.0)),
    "sticky_least_requests": lambda _: StickyLeastRequests(0),
}


def main() -> None:
    """Run the cases, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES), help="default: all")
    parser.add_argument("--repeats", type=int, default=3, help="default: 3")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in (CASES[name] for name in arguments.case):
            figures[case.name] = measure(case, arguments.repeats, Path(folder))
            if arguments.save:
                save(arguments.save, figures, {"repeats": arguments.repeats, "quota": QUOTA})
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, found in figures.items():
        print(f"{name}\n{'':24}" + "".join(f"{each:>22}" for each in found))
        for scheduler in SCHEDULERS:
            print(f"{scheduler:24}" + "".join(f"{each.get(scheduler, '')!s:>22}" for each in found.values()))


def measure(case: Case, repeats: int, folder: Path) -> dict[str, dict[str, float]]:
    """Medians over the repeats: seconds, and what they were spent on; `over_sticky` is of the paired runs."""
    model = folder / case.model
    if not model.exists():
        (write_smollm2 if case.model == "smollm2" else write_tiny_qwen3)(model)
    options = ("--max-model-len", case.longest + BLOCK, "--num-gpu-blocks-override", 12 * case.longest // BLOCK)
    servers = [vllm(model, folder, *options, record=False) for _ in range(case.replicas)]
    with running(*servers), _own_share(servers):
        return asyncio.run(_compare(case, servers, repeats))


@contextlib.contextmanager
def _own_share(servers: Sequence[Served]) -> Iterator[None]:
    """Give each server, with all its processes, as much of the cores as the others."""
    quota = round(QUOTA * (os.cpu_count() or 1) / len(servers) * PERIOD_US)
    groups = [CPU_GROUPS / f"balance-{server.process.pid}" for server in servers]
    try:
        for server, group in zip(servers, groups, strict=True):
            group.mkdir()
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
            for pid in server.pids:
                (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for server, group in zip(servers, groups, strict=True):
            for pid in server.pids:
                (CPU_GROUPS / "cgroup.procs").write_text(str(pid))
            group.rmdir()


async def _compare(case: Case, servers: Sequence[Served], repeats: int) -> dict[str, dict[str, float]]:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SCHEDULERS}
    work = [_small(script, case.scale) for script in scripts(0, prompts=case.prompts)]
    await _run(servers, RoundRobin(), work[:8], seed=-1)  # warms them up
    for repeat in range(repeats):
        names = list(SCHEDULERS)
        for place, name in enumerate(names[repeat % len(names) :] + names[: repeat % len(names)]):
            ran = await _run(servers, SCHEDULERS[name](case), work, seed=repeat * len(names) + place)
            runs[name].append(ran)
            click.echo(f"{case.name}, {repeat + 1} of {repeats}: {name} {ran}", err=True)
    over = {
        name: round(
            median(a["seconds"] / b["seconds"] for a, b in zip(ran, runs["sticky_least_requests"], strict=True)), 3
        )
        for name, ran in runs.items()
    }
    keys = runs["ours"][0]
    medians = {key: {name: median(each[key] for each in ran) for name, ran in runs.items()} for key in keys}
    return {"over_sticky": over, **medians}


async def _run(servers: Sequence[Served], scheduler: Scheduler, work: Sequence[Script], seed: int) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(Address(server.url, patience=30)) for server in servers]
        replicas = {address.url: Replica(VllmEngine(address), address) for address in addresses}
        engine = await stack.enter_async_context(_Timed(replicas, scheduler))
        before = await _counters(addresses, servers)
        start, client = time.perf_counter(), time.process_time()
        await asyncio.gather(*(_play(engine, script, f"{seed}/{index}") for index, script in enumerate(work)))
        seconds, client = time.perf_counter() - start, time.process_time() - client
        after = await _counters(addresses, servers)
    ran = {key: after[key] - before[key] for key in after}
    hits = ran.pop("cached_tokens") / ran["prompt_tokens"]
    figures = {"seconds": seconds, **ran, "cache_hits": hits, "held_seconds": engine.held, "client_cpu": client}
    return {key: round(value, 3) for key, value in figures.items()} | {"moves": getattr(scheduler, "moves", 0)}


class _Timed(Dispatcher):
    """Counts for how long turns were held back."""

    held = 0.0

    async def _placed(self, request: str, tokens: int) -> str:
        start = time.perf_counter()
        try:
            return await super()._placed(request, tokens)
        finally:
            self.held += time.perf_counter() - start


async def _play(engine: Engine, script: Script, request: str) -> None:
    random_of = random.Random(request)
    ids: list[int] = []
    for turn in script.turns:
        ids += [random_of.randrange(10, 500) for _ in range(turn.read)]
        left = turn.sampled
        while left:  # the model may stop early; the work is the same for all
            completion = await engine.sample(
                np.array(ids, np.int32),
                max_tokens=left,
                seed=random_of.randrange(1 << 30),
                sampling=Sampling(),
                stop_ids=(),
                request=request,
            )
            ids += completion.ids_T.tolist()
            left -= len(completion.ids_T)
        await asyncio.sleep(turn.wait)


async def _counters(addresses: Sequence[Address], servers: Sequence[Served]) -> dict[str, float]:
    texts = [(await address.get("/metrics")).decode() for address in addresses]
    found = {
        name: sum(
            float(value) for text in texts for value in re.findall(rf"^vllm:{line}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        )
        for name, line in COUNTERS.items()
    }
    return found | {"engine_cpu": sum(server.cpu_seconds for server in servers)}


def _small(script: Script, scale: int) -> Script:
    turns = [
        Turn(max(1, turn.read // scale), max(1, turn.sampled // scale), turn.wait / scale) for turn in script.turns
    ]
    return Script(tuple(turns))


if __name__ == "__main__":
    main()
