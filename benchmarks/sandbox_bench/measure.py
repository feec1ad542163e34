"""Measures the service over HTTP and the bare forks in turns.

CPU time is that of every process of the service (supervisor, server, zygotes, slots, runs), user and system; the
client's own isn't in it. Each figure is the median over rounds; the ratio is that of the two medians.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cleaner_sandbox.client import SandboxClient
from cleaner_sandbox.environments import BARE, SCIENCE, Environment
from cleaner_sandbox.inside import shell
from cleaner_sandbox.inside.zygote import COMMON
from cleaner_sandbox.isolation import layout, seccomp
from cleaner_sandbox.processes import descendants
from cleaner_sandbox.protocol.limits import Limits
from cleaner_sandbox.protocol.requests import Language, RunRequest
from cleaner_sandbox.protocol.results import RunStatus

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
BARE_UID = 1_890_000_000
"""Out of the way of people's, containers' and nodes' ids."""
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Of the bare fork: what bears on the cost of a fork, as zygotes have it."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is run, and how often in a round."""

    code: str
    environment: Environment
    runs: int
    language: Language = Language.PYTHON

    @property
    def forked(self) -> str:
        """Return what a bare fork executes, as Python: a program of bash takes its place."""
        if self.language is Language.PYTHON:
            return self.code
        return f"import os; os.execv({shell.BASH!r}, ['bash', '-c', {self.code!r}])"


PROGRAMS = {
    "print": Program("print(1 + 1)", BARE, 400),
    "numpy": Program(
        "import numpy as np\nprint(np.linalg.det(np.arange(9.0).reshape(3, 3) + np.eye(3)))", SCIENCE, 300
    ),
    "bash": Program("echo $((1 + 1))", BARE, 300, Language.BASH),
    "sympy": Program("import sympy\nx = sympy.Symbol('x')\nprint(sympy.solve(x**2 - 5*x + 6, x))", SCIENCE, 100),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """Holds the CPU milliseconds per call, and the elapsed milliseconds of a lone one."""

    service_ms: float
    isolated_fork_ms: float
    fork_ms: float
    ratio: float
    """Of the isolated fork to the service: 1 would be a service that costs nothing."""
    p50_ms: float


def bench(rounds: int, done: Callable[[int, int], None]) -> dict[str, Any]:
    """Measure all programs; see `sandbox.benchmark`."""
    rounds_done = itertools.count(1)

    def one_done() -> None:
        done(next(rounds_done), rounds * len(PROGRAMS))

    with _service() as (url, pid):
        found = {name: asyncio.run(_measure(program, url, pid, rounds, one_done)) for name, program in PROGRAMS.items()}
    rows = {name: asdict(figures) for name, figures in found.items()}
    return {**rows, "p50_ms": found["print"].p50_ms, "cpu": cpu_model(), "mitigations": mitigations()}


def cpu_model() -> str:
    """Return the name of the CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def mitigations(folder: Path = Path("/sys/devices/system/cpu/vulnerabilities")) -> dict[str, str]:
    """Return what the kernel does against the CPU's flaws: some of it makes every system call cost more."""
    prefix = "Mitigation: "
    texts = {path.name: path.read_text().strip() for path in sorted(folder.glob("*"))}
    return {name: text.removeprefix(prefix) for name, text in texts.items() if text.startswith(prefix)}


async def _measure(program: Program, url: str, pid: int, rounds: int, done: Callable[[], None]) -> Figures:
    service, isolated, bare, alone = [], [], [], []
    async with SandboxClient(url) as client:
        await _calls(client, program, 40, 4)
        for _ in range(rounds):
            before = tree_cpu(pid)
            await _calls(client, program, program.runs, 4)
            service.append((tree_cpu(pid) - before) / program.runs * 1000)
            alone += await _calls(client, program, 50, 1)
            isolated.append(await asyncio.to_thread(_bare_fork, program, True))
            bare.append(await asyncio.to_thread(_bare_fork, program, False))
            done()
    middle = statistics.median
    return Figures(
        round(middle(service), 3),
        round(middle(isolated), 3),
        round(middle(bare), 3),
        round(middle(isolated) / middle(service), 3),
        round(middle(alone) * 1000, 3),
    )


async def _calls(client: SandboxClient, program: Program, count: int, at_once: int) -> list[float]:
    """Make calls, so many at the same time; the seconds that each took."""
    seconds: list[float] = []

    async def work() -> None:
        while len(seconds) < count:
            began = time.monotonic()
            seconds.append(0.0)
            place = len(seconds) - 1
            outcome = await client.run(RunRequest(program.code, language=program.language))
            if outcome.result.status is not RunStatus.OK:
                raise RuntimeError(f"the node answered {outcome.result}")
            seconds[place] = time.monotonic() - began

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return seconds


def _bare_fork(program: Program, isolated: bool) -> float:
    """CPU milliseconds per run of the bare program."""
    limits = Limits()
    large = 8 << 30
    order = {
        "code": program.forked,
        "runs": program.runs,
        "modules": [*COMMON.split(), *program.environment.modules],  # the same interpreter as a zygote's
        "warm_up": program.environment.warm_up,
        "paths": layout.search_path(layout.packages(program.environment)),
        "isolated": isolated,
        "folders": sorted({path for path in _folders(program.environment) if os.path.isdir(path)}),
        "filter": seccomp.build(processes=True).hex(),
        "uid": BARE_UID,
        "limits": [
            (resource.RLIMIT_CPU, int(limits.cpu_seconds)),
            (resource.RLIMIT_DATA, large),
            (resource.RLIMIT_AS, large),
            (resource.RLIMIT_FSIZE, limits.disk_mb << 20),
            (resource.RLIMIT_NPROC, limits.processes),
            (resource.RLIMIT_NOFILE, limits.open_files),
            (resource.RLIMIT_SIGPENDING, 4 * limits.processes),
        ],
    }
    source = Path(__file__).with_name("bare_fork.py").read_text()
    with tempfile.TemporaryDirectory() as root:
        read, write = os.pipe()
        # Descriptor 3 is the answer's; a shell-less way to say so is to let the child move it there itself.
        start = f"import os; os.dup2({write}, 3, inheritable=False)\n{source}"
        done = subprocess.run(
            [layout.interpreter(), "-sSPBuc", start],
            input=json.dumps(order | {"root": root}).encode(),
            env=ENVIRONMENT,
            pass_fds=[write],
            cwd="/",
            capture_output=True,
            check=False,
        )
        os.close(write)
        with open(read, "rb") as answer:
            text = answer.read()
    if done.returncode != 0 or not text:
        raise RuntimeError(f"the bare fork failed: {done.stderr.decode(errors='replace')[-2000:]}")
    return float(json.loads(text))


def _folders(environment: Environment) -> list[str]:
    """What the bare fork's root holds: the system, the interpreter, and where the set's packages lie."""
    prefix = os.path.realpath(sys.base_prefix)
    return [*layout.SYSTEM, prefix, *layout.search_path(layout.packages(environment))]


@contextlib.contextmanager
def _service() -> Iterator[tuple[str, int]]:
    """A node served over HTTP by processes of its own: its address, and the process above all others."""
    program = "from cleaner_sandbox import NodeConfig, serve; raise SystemExit(serve(NodeConfig(slots=4), port=0))"
    with tempfile.TemporaryFile() as log, subprocess.Popen([sys.executable, "-c", program], stdout=log) as process:
        try:
            while not (line := os.pread(log.fileno(), 65_536, 0).partition(b"\n"))[1]:
                if process.poll() is not None:
                    raise RuntimeError("the service did not start; `cleaner-sandbox serve` says why")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{json.loads(line[0])['address'][1]}", process.pid
        finally:
            process.terminate()


def tree_cpu(root: int) -> float:
    """CPU seconds of a process and of all below it, living or dead."""
    total = 0.0
    for pid in descendants([root]):
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]) / 1e9
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[13]) + int(fields[14])) * TICK
    return total
