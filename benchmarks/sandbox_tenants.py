"""What a hostile tenant costs its neighbour: `python -m benchmarks.sandbox_tenants --json`.

One node, two tokens. The neighbour runs small programs one after the other, and cells in two sessions. Beside it the
other tenant is idle (the control) and then hostile, in turns: programs that make the kernel hold memory, sessions that
hoard states, spinning process trees, requests with endless headers, half-sent requests, batches with large outputs,
bodies that take long to decode. Half of these need no token.

Control and attack take turns, and a figure that compares them is the median over the turns: a machine that shares its
CPUs with others (`stolen`: the part of its time that went to them) is slow in one turn and fast in the next. What is
measured from outside (the neighbour, the loop) has the node's priority, and the process that sends the hostile requests
a low one, since both would be on other machines.

- `neighbour_p99_ratio`: the neighbour's 99th percentile of elapsed time per call, beside the hostile tenant over the
  control.
- `evicted_across`, `lost`, `wrong`: the neighbour's sessions that the node ended, calls without a result, calls with a
  wrong one.
- `loop_stall_ms_excess`: the longest `GET /healthz`, over the control's longest.
- `unaccounted_mb_max`: what the kernel holds (all memory less free, cached and anonymous pages) above its least in the
  control, less what the limits allow to the programs that run.

`--save FILE` also keeps the figures with commit and machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp

from benchmarks.record import save
from benchmarks.sandbox_nodes import NodeProcess
from cleaner_sandbox import Cell, RunRequest, RunStatus, SessionLostError, SessionRequest
from cleaner_sandbox.check.attacks.resources_kernel import ATTACKS, LIMITS
from cleaner_sandbox.client import SandboxClient
from cleaner_sandbox.inside import kernel
from cleaner_sandbox.service.server import NICE

TOKENS = {"hostile": "hostile-0123456789abcdef", "neighbour": "neighbour-0123456789abcdef"}
RUNNING = 2
"""Programs that the hostile tenant may run at the same time, of the node's four slots."""
SESSION_MEMORY_MB = 768
NODE_OPTIONS = ("--sessions", "16", "--session-memory-mb", str(SESSION_MEMORY_MB))
KERNEL = ("MemFree", "Buffers", "Cached", "AnonPages", "SReclaimable")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
ALLOWED_MB = RUNNING * (LIMITS.memory_mb + LIMITS.disk_mb)
SPIN = """
import os
for _ in range(15):
    if os.fork() == 0:
        os.setsid()
        while True: pass
while True: pass
"""
HOARD = "x = None\nx = bytearray(b'x') * (100 << 20)"
DEEP = "d/" * 60


@dataclass
class Seen:
    """What the neighbour went through in one turn, beside an idle or a hostile tenant."""

    seconds: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    kernel_mb: list[float] = field(default_factory=list)
    evicted: int = 0
    lost: int = 0
    wrong: int = 0
    stolen: float = 0.0

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 calls were answered."""
        return statistics.quantiles(self.seconds, n=100)[98]


def stolen_seconds() -> float:
    """Seconds, over all CPUs, that the machine's host gave to others."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def kernel_mb() -> float:
    """Memory that is neither free, nor a file's, nor a process's.

    Free are also the pages in the lists of each CPU, which `MemFree` leaves out: hundreds of megabytes where much is
    allocated and freed (Linux 6.7 and later let these lists grow).
    """
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    sizes = {name.rstrip(":"): int(size) / 1024 for name, size, *_ in lines}
    listed = sum(int(pages) for pages in re.findall(r"^ +count: +(\d+)$", Path("/proc/zoneinfo").read_text(), re.M))
    return sizes["MemTotal"] - sum(sizes[name] for name in KERNEL) - listed * PAGE_MB


async def repeatedly(until: float, work: Callable[[], Awaitable[object]], pause: float = 0.0) -> None:
    """Do something again and again, whatever comes of it."""
    while time.monotonic() < until:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(work(), max(0.1, until + 10 - time.monotonic()))
        await asyncio.sleep(pause)


async def programs(sandbox: SandboxClient, until: float, seen: Seen) -> None:
    """Run small programs as the neighbour."""
    number = 0
    while time.monotonic() < until:
        number += 1
        begun = time.monotonic()
        result = (await sandbox.run(RunRequest(f"print({number} * 7)"))).result
        seen.seconds.append(time.monotonic() - begun)
        seen.lost += result.status is RunStatus.FAULT
        seen.wrong += result.status is not RunStatus.FAULT and result.output != f"{number * 7}\n"
        await asyncio.sleep(0.02)


async def cells(sandbox: SandboxClient, until: float, seen: Seen) -> None:
    """Run cells as the neighbour, in a session that is idle for a second between two of them."""
    session = await sandbox.open_session(SessionRequest(environment="bare"))
    number = 0
    try:
        await session.run(Cell("x = 0"))
        while time.monotonic() < until:
            number += 1
            result = (await session.run(Cell("x += 1\nprint(x)"))).result
            seen.lost += result.status is RunStatus.FAULT
            seen.wrong += result.status is not RunStatus.FAULT and result.output != f"{number}\n"
            await asyncio.sleep(1.0)
        await session.close()
    except SessionLostError:
        seen.evicted += 1


def watch(url: str, until: float, seen: Seen) -> None:
    """Look at the node and the machine from outside, in a thread of its own."""
    import urllib.request

    while time.monotonic() < until:
        begun = time.monotonic()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/healthz", timeout=60) as answer:
            answer.read()
        seen.stalls.append(time.monotonic() - begun)
        seen.kernel_mb.append(kernel_mb())
        time.sleep(0.01)


async def hostile(url: str, seconds: float) -> None:
    """Try everything at once, after a line that says so."""
    headers = {"authorization": f"Bearer {TOKENS['hostile']}", "content-type": "application/json"}
    port = int(url.rpartition(":")[2])
    limits = {**asdict(LIMITS), "cpu_seconds": 3.0, "wall_seconds": 6.0}
    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(60)) as http:

        async def post(path: str, body: Mapping[str, Any] | bytes) -> Any:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with http.post(f"{url}{path}", data=data) as answer:
                content = await answer.read()
                return json.loads(content) if answer.content_type == "application/json" else content

        def program(code: str, **options: Any) -> Callable[[], Awaitable[Any]]:
            return lambda: post("/v1/run", {"code": code, "limits": limits, **options})

        async def hoard() -> None:
            session = (await post("/v1/sessions", {}))["session"]
            for _ in range(8):
                await post(f"/v1/sessions/{session}/run", {"code": HOARD})

        async def endless_headers() -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
            try:
                for number in range(500):
                    writer.write(b"X-%d: " % number + b"a" * 60_000 + b"\r\n")
                    await writer.drain()
            finally:
                writer.close()

        async def half_sent() -> None:
            ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
            for _, writer in ends:
                writer.write(b"POST /v1/run HT")
            await asyncio.sleep(5)
            for _, writer in ends:
                writer.close()

        emoji = "import sys\nsys.stdout.write('a' * 1_000_000 + chr(0x1F600))"
        batch = {"type": "batch", "submissions": [{"type": "python", "solution": emoji}] * 40}
        # Made once: making them takes this process longer than sending them.
        calls = b'{"calls":[' + b",".join([b'{"code":""}'] * 1_000_000) + b"]}"
        names = json.dumps({"code": "", "files": {f"f{number}": "" for number in range(500_000)}}).encode()
        imports = json.dumps({"code": '"""' + "import a.b.c, d as e\n" * 400_000 + '"""', "limits": limits}).encode()
        fetch = [f"{DEEP}f{number}" for number in range(4000)]
        deep = f"import os\nos.makedirs({DEEP!r})\nfor n in range(50): open({DEEP!r} + f'f{{n}}', 'w').close()"
        work: list[Callable[[], Awaitable[object]]] = [
            *(program("win = print\nimport os, sys, time\n" + attack.program) for attack in ATTACKS),
            program(SPIN, limits={**limits, "memory_mb": 512, "processes": 32}),
            program(deep, fetch=fetch),
            hoard,
            lambda: post("/run_jupyter", {"cells": [HOARD] * 6, "total_timeout": 20}),
            lambda: post("/run/long-batch", batch),
            lambda: post("/v1/runs", calls),
            lambda: post("/v1/run", names),
            lambda: post("/v1/run", imports),
            endless_headers,
            half_sent,
        ]
        print("ready", flush=True)
        until = time.monotonic() + seconds
        await asyncio.gather(*(repeatedly(until, each, 0.2) for each in work))


async def turn(url: str, seconds: float, attacked: bool) -> Seen:
    """Let both tenants do theirs for a while, the hostile one in a process of its own."""
    seen = Seen()
    attacker = None
    if attacked:
        command = ["-m", __spec__.name, "--attack", url, str(seconds)]
        # In a session of its own: it has its own share of the CPUs.
        attacker = await asyncio.create_subprocess_exec(
            sys.executable, *command, start_new_session=True, stdout=asyncio.subprocess.PIPE
        )
        await cast(asyncio.StreamReader, attacker.stdout).readline()
    begun, stolen = time.monotonic(), stolen_seconds()
    until = begun + seconds
    watching = asyncio.create_task(asyncio.to_thread(watch, url, until, seen))
    async with SandboxClient(url, token=TOKENS["neighbour"]) as sandbox:
        await asyncio.gather(programs(sandbox, until, seen), *(cells(sandbox, until, seen) for _ in range(2)))
    await watching
    seen.stolen = (stolen_seconds() - stolen) / (time.monotonic() - begun) / (os.cpu_count() or 1)
    if attacker is not None:
        await attacker.wait()
    return seen


async def measure(seconds: float, rounds: int) -> dict[str, Any]:
    """Control and attack in turns, on one node."""
    control: list[Seen] = []
    attacked: list[Seen] = []
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.toml"
        quota = f"running = {RUNNING}\nsessions = 8\n"
        tokens.write_text(
            "".join(
                f'[tokens.{name}]\ntoken = "{token}"\n{quota if name == "hostile" else ""}'
                for name, token in TOKENS.items()
            )
        )
        with NodeProcess(options=("--token-file", str(tokens), *NODE_OPTIONS)) as node:
            await turn(node.url, 3.0, attacked=False)
            for _ in range(rounds):
                control.append(await turn(node.url, seconds, attacked=False))
                attacked.append(await turn(node.url, seconds, attacked=True))
            health = node.health()
    pairs = list(zip(control, attacked, strict=True))
    least = min(min(seen.kernel_mb) for seen in control)
    most = max(max(seen.kernel_mb) for seen in attacked)
    both = {"control": control, "attacked": attacked}
    return {
        "neighbour_p99_ratio": round(statistics.median(there.p99 / here.p99 for here, there in pairs), 2),
        "evicted_across": sum(seen.evicted for seen in attacked),
        "loop_stall_ms_excess": round(
            1000 * statistics.median(max(there.stalls) - max(here.stalls) for here, there in pairs), 1
        ),
        "unaccounted_mb_max": round(max(0.0, most - least - ALLOWED_MB), 1),
        "lost": sum(seen.lost for seen in attacked),
        "wrong": sum(seen.wrong for seen in attacked),
        "control_lost": sum(seen.evicted + seen.lost + seen.wrong for seen in control),
        "calls": {name: sum(len(seen.seconds) for seen in turns) for name, turns in both.items()},
        "p99_ms": {name: [round(1000 * seen.p99, 1) for seen in turns] for name, turns in both.items()},
        "longest_stall_ms": {
            name: [round(1000 * max(seen.stalls), 1) for seen in turns] for name, turns in both.items()
        },
        "stolen": {name: [round(seen.stolen, 3) for seen in turns] for name, turns in both.items()},
        "faults": health["faults"],
        "slot_deaths": health["slot_deaths"],
    }


def main() -> None:
    """Measure, or be the hostile tenant of a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=7, help="of control and attack")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--attack", nargs=2, metavar=("URL", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack is not None:
        url, seconds = options.attack
        kernel.go_first(-NICE)  # last, that is
        asyncio.run(hostile(url, float(seconds)))
        return
    kernel.go_first(NICE)
    figures = asyncio.run(measure(options.seconds, options.rounds))
    if options.save is not None:
        save(options.save, figures, {"seconds": options.seconds, "rounds": options.rounds})
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
