"""Checks of the sandbox: how strongly this machine can isolate, whether a node runs here, whether others answer."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException

from cleaner_rl.doctor.check import Check, State
from cleaner_sandbox import (
    BARE,
    REMEDIES,
    Cell,
    Node,
    NodeConfig,
    RunRequest,
    SessionLostError,
    SessionRequest,
    Tier,
    TierError,
    ZygoteError,
    choose_tier,
    probe,
    remedy,
)

SECONDS = 10.0
PROGRAM = "print(6 * 7)"
ANSWER = "42\n"
IN_A_CONTAINER = "build packages/cleaner-sandbox/Containerfile and give its address as --sandbox"
HIGHER = {
    "T3": "for programs of strangers use --min-tier T3, which bounds the kernel's memory too",
    "T4": "for stronger isolation run the whole node in a microVM (docs/sandbox-security.md)",
}
TIERS = {
    Tier.T1: "T1: rlimits, seccomp, landlock, scrubbed environment",
    Tier.T2: "T2: own uid, namespaces and tmpfs for each run, over T1",
}


def isolation() -> Check:
    """Check which isolation tier works here, and how to get a higher one."""
    try:
        probes = probe()
    except TierError as error:
        return Check("isolation", State.MISSING, "none: this is not Linux", str(error))
    try:
        tier = choose_tier(probes, None, Tier.T1)
    except TierError:
        return Check(
            "isolation", State.MISSING, f"none: {_problems(probes)}", f"{remedy(probes)}. Until then, {IN_A_CONTAINER}"
        )
    if tier is Tier.T1:
        return Check("isolation", State.LESS, f"{TIERS[tier]} ({_problems(probes)})", REMEDIES["namespaces"])
    return Check("isolation", State.OK, TIERS[tier], HIGHER["T3" if probes["cgroup"] == "ok" else "T4"])


def _problems(probes: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {said}" for name, said in probes.items() if said != "ok" and name != "cgroup")


def node_here() -> Check:
    """Start a node here, run a program in it, and open a session."""
    try:
        return asyncio.run(asyncio.wait_for(_node(), 3 * SECONDS))
    except (TierError, ZygoteError, OSError, TimeoutError) as error:
        said = str(error) or f"it didn't answer within {3 * SECONDS:.0f} seconds"
        return Check("sandbox", State.MISSING, f"no node starts here: {said}", IN_A_CONTAINER)


async def _node() -> Check:
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        begun = time.monotonic()
        result = (await node.run(RunRequest(PROGRAM))).result
        spent = time.monotonic() - begun
        if result.output != ANSWER:
            said = f"a node starts, but answers {result.status}: {result.explanation or result.output!r}"
            return Check("sandbox", State.WRONG, said, "run `cleaner sandbox check --no-proof` and report what it says")
        said = f"a node starts here and runs a program in {spent * 1000:.0f} ms"
        try:
            session = await node.open_session(SessionRequest(environment=BARE.name))
            await session.run(Cell("x = 1"))
            await session.close()
        except (SessionLostError, RuntimeError) as error:
            remedy = "sessions need T2 and Linux 6.6 or later (overlayfs on tmpfs); fresh interpreters need neither"
            return Check("sandbox", State.LESS, f"{said}; no sessions: {error}", remedy)
        return Check("sandbox", State.OK, f"{said}; sessions work")


def node_at(url: str, token: str | None) -> Check:
    """Check whether the node behind an address runs a program."""
    name, url = f"sandbox {url}", url.rstrip("/")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=SECONDS) as answer:
            health = json.load(answer)
        call = urllib.request.Request(f"{url}/v1/run", json.dumps({"code": PROGRAM}).encode(), headers)
        with urllib.request.urlopen(call, timeout=SECONDS) as answer:
            output = json.load(answer).get("output")
        tier, slots = health["tier"], health["slots"]
    except urllib.error.HTTPError as error:
        with error:
            remedy = "is this a node of `cleaner sandbox serve`? Give the address before /v1"
            if error.code in (401, 403):
                remedy = "give a token: --sandbox-token or CLEANER_SANDBOX_TOKEN"
            return Check(name, State.WRONG, f"it answers {error.code}", remedy)
    except (OSError, HTTPException, ValueError, LookupError, AttributeError) as error:
        remedy = "start it (`cleaner sandbox serve`), or correct the address, the port or the firewall between"
        return Check(name, State.WRONG, f"no node answers: {error}", remedy)
    if output != ANSWER:
        return Check(
            name, State.WRONG, f"a program gave {output!r}", "restart the node, and read its log if that doesn't help"
        )
    return Check(name, State.OK, f"it runs programs: T{tier}, {slots} slots")
