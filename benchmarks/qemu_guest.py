"""Runs inside the virtual machine of `benchmarks.sandbox_qemu`: attacks a node there, or serves one.

The first argument names a file with a JSON object: `attacks` (patterns), `tier` and `slowness`, or `serve` (options)
and `token`. What the attacks found is written to the second serial port, on one line.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cleaner_sandbox import BARE, Tier
from cleaner_sandbox.check import ATTACKS, Attack
from cleaner_sandbox.check.honeypots import Honeypots
from cleaner_sandbox.check.report import Report
from cleaner_sandbox.check.runner import AttackVerdict, run_attacks
from cleaner_sandbox.check.targets import node_runners

CGROUPS = Path("/sys/fs/cgroup")


def main() -> None:
    """Do what the job says."""
    job: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    if "serve" in job:
        serve(job["serve"], job["token"])
        return
    with open("/dev/ttyS1", "w", encoding="utf-8") as out:
        out.write(json.dumps(attack(job["attacks"], Tier[job["tier"]], job["slowness"])) + "\n")


def serve(options: Sequence[str], token: str) -> None:
    """Serve a node until the machine is ended."""
    tokens = Path("/run/tokens.toml")
    tokens.write_text(f'[tokens.outside]\ntoken = "{token}"\n')
    command = [sys.executable, "-c", "from cleaner_sandbox.cli import sandbox; sandbox()", "serve"]
    subprocess.run([*command, "--min-tier", "T3", "--token-file", str(tokens), *options], check=True)


def attack(patterns: Sequence[str], tier: Tier, slowness: float) -> Mapping[str, object]:
    """Attack a node of this machine; what got through, and on which kernel."""
    chosen = [slowed(each, slowness) for each in ATTACKS if any(fnmatch.fnmatch(each.name, one) for one in patterns)]
    found, verdicts = asyncio.run(_attack(chosen, tier))
    report = Report(found.name, verdicts).to_json()
    names = ("tier", "attacks", "escaped", "leaked", "wrong", "details")
    return {"kernel": os.uname().release, "cgroups": version(), **{name: report[name] for name in names}}


async def _attack(chosen: Sequence[Attack], tier: Tier) -> tuple[Tier, list[AttackVerdict]]:
    with Honeypots() as honeypots:
        async with node_runners(honeypots, tier, [2, 1], environments=(BARE,)) as (found, runners):
            return found, await run_attacks(runners, chosen, tell)


def tell(verdict: AttackVerdict) -> None:
    """Say on the console what became of an attack."""
    problems = verdict.escaped + verdict.leaked + verdict.wrong
    print(f"{verdict.attack.name}: {verdict.status} {verdict.seconds:.1f} s {problems or ''}", flush=True)


def slowed(attack: Attack, slowness: float) -> Attack:
    """The same attack where everything takes so many times longer."""
    limits = attack.limits
    scaled = replace(limits, cpu_seconds=limits.cpu_seconds * slowness, wall_seconds=limits.wall_seconds * slowness)
    return replace(attack, limits=scaled, wall=attack.wall * slowness)


def version() -> str:
    """Which cgroups the kernel has."""
    controllers = CGROUPS / "cgroup.controllers"
    return f"2: {controllers.read_text().strip()}" if controllers.exists() else "1"


if __name__ == "__main__":
    main()
