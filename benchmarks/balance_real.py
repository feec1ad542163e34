"""Two real vLLM replicas on this machine under our scheduler and under rivals, turn about in one run.

The simulator's world in small: 64 trajectories a twentieth as long (mean 350 tokens, at most 1,024), with as many
turns and a twentieth of the waits, on replicas with KV cache for 12 of full length. The tools are waits; prompts and
observations are random ids, new in each run, so that no run finds another's in the cache.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import click
import numpy as np

from benchmarks.balance_rivals import RoundRobin, StickyLeastRequests
from benchmarks.balance_world import CAP, Script, Turn, scripts
from benchmarks.serving import running, vllm
from cleaner_rl.rollout.balance import Dispatcher, EvenConfig, EvenScheduler, Replica, Scheduler
from cleaner_rl.rollout.engine import Engine, Sampling
from cleaner_rl.rollout.engines import Address, VllmEngine

SCALE = 20
LONGEST = CAP // SCALE
BLOCK = 32
_PREEMPTIONS = re.compile(r"^vllm:num_preemptions_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
SCHEDULERS: dict[str, Callable[[], Scheduler]] = {
    "ours": lambda: EvenScheduler(EvenConfig(longest=LONGEST, patience=10.0)),
    "round_robin": RoundRobin,
    "sticky_least_requests": lambda: StickyLeastRequests(0),
}


def real(model: Path, repeats: int) -> dict[str, object]:
    """Seconds of each, the median over the repeats of ours over each rival's, and preemptions."""
    options = ("--max-model-len", LONGEST + BLOCK, "--num-gpu-blocks-override", 12 * LONGEST // BLOCK)
    with tempfile.TemporaryDirectory() as folder:
        servers = [vllm(model, Path(folder), *options, record=False) for _ in range(2)]
        with running(*servers):
            return asyncio.run(_compare([server.url for server in servers], repeats))


async def _compare(urls: Sequence[str], repeats: int) -> dict[str, object]:
    seconds: dict[str, list[float]] = {name: [] for name in SCHEDULERS}
    preempted: dict[str, list[int]] = {name: [] for name in SCHEDULERS}
    work = [_small(script) for script in scripts(0, prompts=4)]
    await _run(urls, RoundRobin(), work[:8], seed=-1)  # warms both up
    for repeat in range(repeats):
        names = list(SCHEDULERS)
        for place, name in enumerate(names[repeat % len(names) :] + names[: repeat % len(names)]):
            before = await _preemptions(urls)
            seconds[name].append(await _run(urls, SCHEDULERS[name](), work, seed=repeat * len(names) + place))
            preempted[name].append(await _preemptions(urls) - before)
            click.echo(f"{repeat + 1} of {repeats}: {name} took {seconds[name][-1]:.1f} s", err=True)
    over = {
        name: round(median(ours / theirs for ours, theirs in zip(seconds["ours"], times, strict=True)), 3)
        for name, times in seconds.items()
        if name != "ours"
    }
    rounded = {name: [round(each, 2) for each in times] for name, times in seconds.items()}
    return {"ours_over": over, "seconds": rounded, "preemptions": preempted}


async def _run(urls: Sequence[str], scheduler: Scheduler, work: Sequence[Script], seed: int) -> float:
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(Address(url, patience=30)) for url in urls]
        replicas = {address.url: Replica(VllmEngine(address), address) for address in addresses}
        engine = await stack.enter_async_context(Dispatcher(replicas, scheduler))
        start = time.perf_counter()
        await asyncio.gather(*(_play(engine, script, f"{seed}/{index}") for index, script in enumerate(work)))
        return time.perf_counter() - start


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


async def _preemptions(urls: Sequence[str]) -> int:
    total = 0.0
    for url in urls:
        async with Address(url, patience=30) as address:
            total += sum(map(float, _PREEMPTIONS.findall((await address.get("/metrics")).decode())))
    return round(total)


def _small(script: Script) -> Script:
    turns = [
        Turn(max(1, turn.read // SCALE), max(1, turn.sampled // SCALE), turn.wait / SCALE) for turn in script.turns
    ]
    return Script(tuple(turns))
