"""The suite put together: nodes of our own or a given target, and the trials without isolation or without a layer."""

from __future__ import annotations

import asyncio
import fnmatch
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from cleaner_sandbox import Layer, Node, Tier, ended_by_signals, open_sandbox
from cleaner_sandbox.check.attack import Attack
from cleaner_sandbox.check.attacks import ATTACKS
from cleaner_sandbox.check.honeypots import Honeypots
from cleaner_sandbox.check.proof import Trial, run_trial
from cleaner_sandbox.check.report import Report
from cleaner_sandbox.check.runner import AttackRunner, AttackVerdict, Target, run_attacks
from cleaner_sandbox.check.targets import node_runners
from cleaner_sandbox.protocol import Language

Done = Callable[[AttackVerdict], None]
"""Is called with each verdict as it is found."""
Watch = Callable[[str, int], AbstractContextManager[Done]]
"""Takes the name of a stage and how many attacks it tries, and returns what hears of them, such as a progress bar."""

TARGET_RUNNERS = 4
PATIENCE_SECONDS = 60.0
"""For a node behind an address that is full or away."""
REMOTE_NOTE = "Over HTTP it isn't seen whether a process or file was left on the node, nor whether its memory grew."
NO_ROOT_NOTE = "Not root: the attacks were not tried with isolation off."

STAND_INS = {
    Layer.IPC: Layer.SECCOMP,
    Layer.LANDLOCK: Layer.MOUNT,
    Layer.PID: Layer.SECCOMP,
    Layer.USER: Layer.UID,
}
"""Layers that let nothing through when they alone are missing, and the one that stops it then."""


@contextmanager
def _unwatched(_stage: str, _attacks: int) -> Iterator[Done]:
    yield lambda _: None


def check(
    *,
    tier: Tier | None = None,
    urls: Sequence[str] = (),
    token: str | None = None,
    only: str = "*",
    proof: bool = True,
    layers: bool = False,
    watch: Watch = _unwatched,
) -> Report:
    """Attack a sandbox, harmlessly, and report what got through.

    Args:
        tier: How strongly the attacked nodes isolate; None: as strongly as this machine can. Not for `urls`.
        urls: Addresses of nodes to attack; empty: nodes are started here.
        token: What the nodes behind the addresses ask for, if they do.
        only: Attacks whose name matches this pattern, such as `net_*`.
        proof: Whether to try the attacks with isolation off too, in throw-away namespaces; needs root.
        layers: Whether to try them at tier 2 with each layer left out in turn.
        watch: Called with each stage and each verdict.

    Raises:
        LookupError: No attack has such a name.
        SandboxUnavailableError: No node answers at the addresses.
        TierError: This machine can't isolate as strongly as `tier`.

    Examples:
        >>> from cleaner_sandbox.check import check
        >>> check(only="dodge_abort", proof=False).breached
        False
    """
    attacks = [attack for attack in ATTACKS if fnmatch.fnmatch(attack.name, only)]
    if not attacks:
        kinds = sorted({attack.name.split("_")[0] for attack in ATTACKS})
        raise LookupError(f"no attack is called {only}; names begin with: {', '.join(kinds)}")
    with ended_by_signals():  # what was planted is taken away
        if urls:
            with watch("remote", len(attacks)) as done:
                verdicts = asyncio.run(_check_remote(urls, token, attacks, done))
            report = Report("remote", verdicts, notes=(REMOTE_NOTE,))
        else:
            with watch("attacks", len(attacks)) as done:
                found, verdicts = asyncio.run(check_node(tier, attacks, done))
            report = Report(found.name, verdicts)
        if proof and os.geteuid() == 0:
            with watch("isolation off", len(attacks)) as done:
                report.trials = asyncio.run(try_without(attacks, done))
        elif proof:
            report.notes = (*report.notes, NO_ROOT_NOTE)
        if layers:
            # An attack that fails with all layers off isn't stopped by any of them.
            without = report.trials.get("none")
            tried = attacks if without is None else [each.attack for each in without if not each.contained]
            with watch("layers", len(tried) * len(layer_trials())) as done:
                report.trials = {**report.trials, **asyncio.run(try_layers(tried, done))}
    return report


async def _check_remote(
    urls: Sequence[str], token: str | None, attacks: Sequence[Attack], done: Done
) -> list[AttackVerdict]:
    async with open_sandbox(urls, token=token, patience=PATIENCE_SECONDS) as target:
        if not isinstance(target, Node):
            await target.require_answer()
        return await check_target(target, attacks, done)


async def check_node(tier: Tier | None, attacks: Sequence[Attack], done: Done) -> tuple[Tier, list[AttackVerdict]]:
    """Attack nodes started for this, at a tier or at the highest that works here."""
    slots = [2, *[1] * max(2, 2 * (os.cpu_count() or 1))]
    with Honeypots() as honeypots:
        async with node_runners(honeypots, tier, slots) as (found, runners):
            return found, await run_attacks(runners, attacks, done)


async def check_target(target: Target, attacks: Sequence[Attack], done: Done) -> list[AttackVerdict]:
    """Attack something that was started elsewhere, such as a node behind a client."""
    with Honeypots() as honeypots:
        runners = [AttackRunner(target, honeypots) for _ in range(TARGET_RUNNERS)]
        for runner in runners:
            await runner.start()
        return await run_attacks(runners, attacks, done)


async def try_without(attacks: Sequence[Attack], done: Done) -> dict[str, list[AttackVerdict]]:
    """Try the attacks with all isolation off; those that even then only meet the parent's verdict, on the naive runner.

    Neither has sessions, so attacks in sessions aren't tried; the naive runner has no shell either.
    """
    attacks = [attack for attack in attacks if attack.cells is None]
    none = await run_trial(Trial(Tier.NONE), attacks, done)
    stopped = [each.attack for each in none if each.contained and each.attack.language is Language.PYTHON]
    return {"none": none, "naive": await run_trial(Trial(None), stopped, done)}


async def try_layers(attacks: Sequence[Attack], done: Done) -> dict[str, list[AttackVerdict]]:
    """Try the attacks at tier 2, once per layer left out, and once per pair of layers that cover for one another."""
    found = {}
    for layers in layer_trials():
        found["+".join(layers)] = await run_trial(Trial(Tier.T2, frozenset(layers)), attacks, done)
    return found


def layer_trials() -> list[tuple[Layer, ...]]:
    """Return what is left out in each trial."""
    return [*((layer,) for layer in sorted(Tier.T2.layers)), *STAND_INS.items()]
