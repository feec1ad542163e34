"""Measures what a whole run needs of this machine: memory, sandbox, cores, disk and time."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from cleaner_rl.sandbox import RunRequest
from cleaner_rl.sandbox.client import SandboxClient
from cleaner_rl.train.preflight.findings import Finding, Verdict
from cleaner_rl.train.preflight.witness import Trained
from cleaner_rl.train.recipe.enums import DeviceKind
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.verl.runner import read_token, session_request

GIGABYTE = 1 << 30
TIGHT = 0.95
"""The share of a device's memory above which a longer row may not fit."""
SPARE = 1.5
"""How many times the calls per second of a step a sandbox should be able to run."""
MOST_CALLS = 512


def check_memory(trained: Sequence[Trained]) -> Finding:
    """Say how much memory the update took, with rows as long as the recipe allows."""
    peak = max((each.peak_bytes for each in trained), default=0)
    device = max((each.device_bytes for each in trained), default=0)
    longest = max((len(each.ids) for each in trained), default=0)
    figures = {"peak_gb": peak / GIGABYTE, "device_gb": device / GIGABYTE, "longest_row": float(longest)}
    words = f"The update of a row of {longest} tokens took up to {peak / GIGABYTE:.1f} GB per process"
    if not device:
        return Finding("memory", Verdict.OK, f"{words} of the machine's memory.", figures=figures)
    if peak <= TIGHT * device:
        return Finding("memory", Verdict.OK, f"{words}, of {device / GIGABYTE:.0f} GB on the device.", figures=figures)
    return Finding(
        "memory",
        Verdict.WARNING,
        f"{words}, of {device / GIGABYTE:.0f} GB on the device: a little more does not fit.",
        "Lower batch.micro_batch, device.memory_share or budget.response_tokens, or set device.offload=true.",
        figures,
    )


def check_sandbox(rows: Sequence[Graded], addresses: Sequence[str], recipe: Recipe) -> Finding:
    """Run the programs of a step again, as many at once as the recipe has rollouts, and compare with what it needs."""
    programs = [
        call.code for row in rows for turn in row.turns for call in turn.calls if call.code and not call.problem
    ]
    seconds = max((row.info.seconds or 0.0 for row in rows), default=0.0)
    if not programs or not seconds:
        return Finding("sandbox", Verdict.SKIPPED, "No rollout of these steps called the tool.")
    at_once = recipe.batch.prompts * recipe.sampled
    needed = len(programs) / seconds
    capacity = asyncio.run(_calls_per_second(programs[:MOST_CALLS], addresses, recipe, at_once))
    figures = {"needed_per_second": needed, "possible_per_second": capacity, "at_once": float(at_once)}
    if capacity >= SPARE * needed:
        words = f"The sandbox runs {capacity:.0f} calls a second; the rollouts of a step need {needed:.1f}."
        return Finding("sandbox", Verdict.OK, words, figures=figures)
    return Finding(
        "sandbox",
        Verdict.FAILED,
        f"The sandbox runs {capacity:.1f} calls a second, and the rollouts of a step made {needed:.1f}: they wait for "
        "it.",
        "Raise sandbox.slots, or add nodes on other machines (sandbox.addresses).",
        figures,
    )


async def _calls_per_second(programs: Sequence[str], addresses: Sequence[str], recipe: Recipe, at_once: int) -> float:
    asked = session_request(recipe)
    gate = asyncio.Semaphore(at_once)
    async with SandboxClient(list(addresses), token=read_token(recipe.sandbox.token_file)) as sandbox:

        async def run(code: str) -> None:
            async with gate:
                await sandbox.run(RunRequest(code, preload=asked.preload, limits=asked.limits))

        await run(programs[0])
        began = time.monotonic()
        await asyncio.gather(*map(run, programs))
        return len(programs) / (time.monotonic() - began)


def check_cores(recipe: Recipe) -> Finding:
    """Say whether this machine has a core for each process that works all the time."""
    cores = len(os.sched_getaffinity(0))
    ranks = recipe.device.per_node
    busy = ranks + (0 if recipe.device.kind is DeviceKind.CPU else recipe.device.workers // recipe.device.nodes)
    figures = {"cores": float(cores), "busy_processes": float(busy)}
    words = f"{cores} cores for {busy} processes that work all the time"
    if cores >= busy:
        return Finding("cores", Verdict.OK, f"{words}.", figures=figures)
    return Finding(
        "cores", Verdict.WARNING, f"{words}: they will wait for each other.", "Lower device.workers.", figures
    )


def check_disk(folder: Path, recipe: Recipe) -> Finding:
    """Say whether the checkpoints of the whole run have room, by the size of the one that was saved."""
    sizes = [
        sum(file.stat().st_size for file in saved.rglob("*") if file.is_file())
        for saved in (folder / "checkpoints").glob("global_step_*")
    ]
    if not sizes or not recipe.run.save_every:
        return Finding("disk", Verdict.SKIPPED, "The recipe saves no checkpoints (run.save_every=0).")
    kept = recipe.run.keep_checkpoints or (recipe.run.steps // recipe.run.save_every)
    # A new one is written before the oldest is removed.
    needed, free = (kept + 1) * max(sizes), shutil.disk_usage(folder).free
    figures = {"checkpoint_gb": max(sizes) / GIGABYTE, "needed_gb": needed / GIGABYTE, "free_gb": free / GIGABYTE}
    words = f"{kept + 1} checkpoints need {needed / GIGABYTE:.1f} GB, and {free / GIGABYTE:.1f} GB are free"
    if needed <= free:
        return Finding("disk", Verdict.OK, f"{words}.", figures=figures)
    return Finding("disk", Verdict.FAILED, f"{words}.", "Free some, or lower run.keep_checkpoints.", figures)


def check_time(seconds: Sequence[float], recipe: Recipe) -> Finding:
    """Say how long a step takes, and the whole run."""
    if not seconds:
        return Finding("time", Verdict.SKIPPED, "No step ended.")
    steps = recipe.run.steps or sum(stage.steps for stage in recipe.stages)
    whole = f", so {steps} steps take about {_span(steps * mean(seconds))}" if steps else ""
    words = f"A step takes {_span(mean(seconds))}{whole} (without evaluations)."
    return Finding(
        "time", Verdict.OK, words, figures={"step_seconds": mean(seconds), "run_seconds": steps * mean(seconds)}
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
