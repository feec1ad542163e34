"""The proof of the suite: that its attacks succeed where nothing stops them, and which layer stops which.

A trial runs attacks in worlds to throw away (`sandbox.throwaway_command`): against a node with all isolation off,
against a node that lacks one layer, or against a runner without the sandbox's ideas (`naive`). An attack is *effective*
there if it escapes, leaks, or gets a wrong verdict; also if the node doesn't survive it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cleaner_sandbox import Layer, Tier, throwaway_command
from cleaner_sandbox.check.attack import Attack
from cleaner_sandbox.check.runner import AttackVerdict
from cleaner_sandbox.protocol.results import RunStatus

CHUNK = 12
START_SECONDS = 60.0
START_TRIES = 3
WORLDS = 1 + (os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Trial:
    """What is attacked."""

    tier: Tier | None
    """None: the naive runner."""
    without: frozenset[Layer] = frozenset()


async def run_trial(
    trial: Trial, attacks: Sequence[Attack], done: Callable[[AttackVerdict], None]
) -> list[AttackVerdict]:
    """Try the attacks in several worlds at a time; `done` hears of each."""
    alone = [attack for attack in attacks if attack.beside is None]
    paired = [attack for attack in attacks if attack.beside is not None]
    chunks = [some[start : start + CHUNK] for some in (alone, paired) for start in range(0, len(some), CHUNK)]
    verdicts: dict[str, AttackVerdict] = {}

    def found(verdict: AttackVerdict) -> None:
        verdicts[verdict.attack.name] = verdict
        done(verdict)

    async def work() -> None:
        while chunks:
            rest = chunks.pop()
            while rest:
                rest = await _world(trial, rest, found)

    await asyncio.gather(*(work() for _ in range(WORLDS)))
    return [verdicts[attack.name] for attack in attacks]


async def _world(trial: Trial, attacks: list[Attack], found: Callable[[AttackVerdict], None]) -> list[Attack]:
    """Try attacks in a world until it ends; returns those it didn't get to. Starting one may take more than one try."""
    for left in reversed(range(START_TRIES)):
        try:
            return await _one_world(trial, attacks, found)
        except RuntimeError:
            if not left:
                raise
    return attacks


async def _one_world(trial: Trial, attacks: list[Attack], found: Callable[[AttackVerdict], None]) -> list[Attack]:
    order = {
        "tier": trial.tier.name if trial.tier is not None else None,
        "without": sorted(trial.without),
        "slots": 1 if attacks[0].beside is None else 2,
        "attacks": [attack.name for attack in attacks],
    }
    program = [sys.executable, "-m", f"{__package__}.worker", json.dumps(order)]
    process = await asyncio.create_subprocess_exec(
        *throwaway_command(program), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    rest = list(attacks)
    began = False
    problem = "the node did not survive it"
    try:
        while rest:
            patience = rest[0].wall * 30 + START_SECONDS
            try:
                message = await asyncio.wait_for(_message(process), patience)
            except TimeoutError:
                problem = "the node hangs"
                message = None
            if message is None:
                break
            began = True
            if message.get("name") == rest[0].name:
                found(_verdict(rest.pop(0), message))
                began = False
    finally:
        if process.returncode is None:
            process.kill()
        _, errors = await process.communicate()
    if rest and process.returncode != 0 and began:
        found(AttackVerdict(rest.pop(0), escaped=[problem]))
    elif len(rest) == len(attacks):
        raise RuntimeError(f"the trial {trial} could not start: {errors.decode(errors='replace')[-4000:]}")
    return rest


async def _message(process: asyncio.subprocess.Process) -> dict[str, Any] | None:
    """The worker's next line; None at its end. Lines that aren't its own are skipped."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            return message
    return None


def _verdict(attack: Attack, message: dict[str, Any]) -> AttackVerdict:
    status = RunStatus(message["status"]) if message["status"] is not None else None
    return AttackVerdict(
        attack, status, message["seconds"], list(message["escaped"]), list(message["leaked"]), list(message["wrong"])
    )
