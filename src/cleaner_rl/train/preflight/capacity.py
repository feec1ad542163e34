"""Measures what a whole run needs of this machine: memory, sandbox, cores, disk and time."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from cleaner_rl.rollout import tool_env_of
from cleaner_rl.tasks import load_prompt
from cleaner_rl.tools import ToolCall
from cleaner_rl.train.preflight.findings import Finding, Verdict
from cleaner_rl.train.preflight.witness import Trained
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.verl.overrides import number, overrides
from cleaner_rl.train.verl.runner import read_token, session_request
from cleaner_rl.train.verl.settings import KEEP, KEYS, DeviceKind, devices_of
from cleaner_rl.trajectory import Key, sampled_turns
from cleaner_sandbox.client import SandboxClient

MEGABYTE, GIGABYTE = 1 << 20, 1 << 30
TIGHT = 0.95
"""The share of a device's memory above which a longer row may not fit."""
SPARE = 1.5
"""How many times as long as its calls alone the rollouts of a step should take."""


def check_memory(trained: Sequence[Trained]) -> Finding:
    """Say how much memory the update took, with rows as long as the recipe allows."""
    if not trained:
        return Finding("memory", Verdict.SKIPPED, "There was no update.")
    peak = max(each.peak_bytes for each in trained)
    device = max(each.device_bytes for each in trained)
    longest = max(len(each.ids) for each in trained)
    figures = {"peak_gb": peak / GIGABYTE, "device_gb": device / GIGABYTE, "longest_row": float(longest)}
    words = f"The update of a row of {longest} tokens took up to {_size(peak)} per process"
    if not device:
        return Finding("memory", Verdict.OK, f"{words} of the machine's memory.", figures=figures)
    if peak <= TIGHT * device:
        return Finding("memory", Verdict.OK, f"{words}, of {_size(device)} on the device.", figures=figures)
    return Finding(
        "memory",
        Verdict.WARNING,
        f"{words}, of {_size(device)} on the device: a little more does not fit.",
        "Lower ppo_micro_batch_size_per_gpu, gpu_memory_utilization or budget.response_tokens, or set param_offload.",
        figures,
    )


def check_sandbox(rows: Sequence[Graded], addresses: Sequence[str], recipe: Recipe) -> Finding:
    """Make the calls of a step again, all rollouts at once, and compare their time with that of the rollouts."""
    seconds = max((row.info.seconds or 0.0 for row in rows), default=0.0)
    turns = [[drawn.turn.calls for drawn in sampled_turns(row) if drawn.turn.calls] for row in rows]
    calls = sum(len(each) for rollout in turns for each in rollout)
    if not calls or not seconds:
        return Finding("sandbox", Verdict.SKIPPED, "No rollout of these steps called the tool.")
    most = seconds / SPARE
    took = asyncio.run(_replay_seconds([each for each in turns if each], addresses, recipe, most))
    figures = {"calls": float(calls), "rollouts": float(len(rows)), "rollout_seconds": seconds}
    if took is not None:
        words = f"The sandbox answers the {calls} calls of a step in {took:.1f} s; the rollouts take {seconds:.1f} s."
        return Finding("sandbox", Verdict.OK, words, figures={**figures, "sandbox_seconds": took})
    return Finding(
        "sandbox",
        Verdict.FAILED,
        f"The sandbox doesn't answer the {calls} calls of a step within {most:.1f} s, and the rollouts take "
        f"{seconds:.1f} s: they wait for it most of the time.",
        "Raise sandbox.slots, or add nodes on other machines (sandbox.addresses).",
        figures,
    )


async def _replay_seconds(
    rollouts: Sequence[Sequence[Sequence[ToolCall]]], addresses: Sequence[str], recipe: Recipe, most: float
) -> float | None:
    """Return how long the calls of these rollouts take if the model takes no time; None if longer than `most`."""
    async with SandboxClient(list(addresses), token=read_token(recipe.sandbox.token_file)) as sandbox:
        tools = tool_env_of(load_prompt(recipe.prompt), sandbox, session_request(recipe))

        async def replay(turns: Sequence[Sequence[ToolCall]]) -> None:
            async with tools.open(Key()) as session:
                for calls in turns:
                    await session.run(calls)

        await replay(rollouts[0])  # so that a new node is warm
        began = time.monotonic()
        try:
            async with asyncio.timeout(most):
                await asyncio.gather(*map(replay, rollouts))
        except TimeoutError:
            return None
        return time.monotonic() - began


def check_cores(recipe: Recipe) -> Finding:
    """Say whether this machine has a core for each process that works all the time."""
    cores = len(os.sched_getaffinity(0))
    devices = devices_of(recipe)
    busy = devices.per_node + (0 if devices.kind is DeviceKind.CPU else devices.workers // devices.nodes)
    figures = {"cores": float(cores), "busy_processes": float(busy)}
    words = f"{cores} cores for {busy} {'process that works' if busy == 1 else 'processes that work'} all the time"
    if cores >= busy:
        return Finding("cores", Verdict.OK, f"{words}.", figures=figures)
    return Finding(
        "cores", Verdict.WARNING, f"{words}: they will wait for each other.", f"Lower verl.{KEYS['workers']}.", figures
    )


def check_disk(folder: Path, recipe: Recipe) -> Finding:
    """Say whether the checkpoints of the whole run have room, by the size of the one that was saved."""
    sizes = [
        sum(file.stat().st_size for file in saved.rglob("*") if file.is_file())
        for saved in (folder / "checkpoints").glob("global_step_*")
    ]
    settings = overrides(recipe, folder)
    every = int(number(settings, "trainer.save_freq"))
    if not sizes or every < 1:
        return Finding("disk", Verdict.SKIPPED, "The recipe saves no checkpoints (verl.trainer.save_freq).")
    kept = int(number({KEEP: settings[KEEP] or recipe.run.steps // every}, KEEP))
    # A new one is written before the oldest is removed.
    needed, free = (kept + 1) * max(sizes), shutil.disk_usage(folder).free
    figures = {"checkpoint_gb": max(sizes) / GIGABYTE, "needed_gb": needed / GIGABYTE, "free_gb": free / GIGABYTE}
    words = f"{kept + 1} checkpoints need {_size(needed)}, and {_size(free)} are free"
    if needed <= free:
        return Finding("disk", Verdict.OK, f"{words}.", figures=figures)
    return Finding("disk", Verdict.FAILED, f"{words}.", f"Free some, or lower verl.{KEEP}.", figures)


def check_time(seconds: Sequence[float], recipe: Recipe) -> Finding:
    """Say how long a step takes, and the whole run. The first step is slower: everything in it happens once before."""
    if not seconds:
        return Finding("time", Verdict.SKIPPED, "No step ended.")
    first, step = seconds[0], seconds[-1]
    steps = recipe.run.steps or sum(stage.steps for stage in recipe.stages)
    run = first + (steps - 1) * step
    whole = f", so {steps} steps take about {_span(run)}" if steps else ""
    words = f"The first step took {_span(first)}, the last one {_span(step)}{whole} (without evaluations)."
    figures = {"first_step_seconds": first, "step_seconds": step, **({"run_seconds": run} if steps else {})}
    return Finding("time", Verdict.OK, words, figures=figures)


def _size(size: float) -> str:
    return f"{size / GIGABYTE:.1f} GB" if size >= GIGABYTE / 10 else f"{size / MEGABYTE:.1f} MB"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
