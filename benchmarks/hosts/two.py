"""Two hosts as network namespaces of this machine, joined by a private link; nothing leaves them. Needs root.

Each host runs a Ray node, started as `deploy/ray` has it, and a sandbox node; both ask for a token. A host can be
lost, as by a power cut, and come back at the same address. Leaving the block ends all processes of both hosts and
removes their networks.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType

import msgspec
import psutil

from cleaner_rl.train.recipe.settings import SandboxSettings
from cleaner_rl.train.verl.overrides import CPU_ENVIRONMENT

ADDRESSES = ("10.77.0.1", "10.77.0.2")
LINK = "cleaner0"
"""The name of the interface on both hosts."""
RAY_PORT, SANDBOX_PORT = 6379, 8089
RAY_START = Path(__file__).parents[2] / "deploy" / "ray" / "start.sh"
START_SECONDS = 180.0
"""How long a host may take to start, beside other work."""
CORES = 24
"""Logical cores that Ray counts on each host."""
FAIR = {"RAY_worker_niceness": "0"}
"""Ray would give its workers so low a priority that they hardly run beside other work."""
SERVE = """
import sys, msgspec
from pathlib import Path
from cleaner_sandbox import serve
from cleaner_rl.train.launch.node import node_config
from cleaner_rl.train.recipe.settings import SandboxSettings
settings, host, port, tokens = sys.argv[1:]
config = node_config(msgspec.json.decode(settings, type=SandboxSettings))
raise SystemExit(serve(config, host=host, port=int(port), token_file=Path(tokens)))
"""


def why_not() -> str:
    """Say why there can be no two hosts on this machine; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (package iproute2)"
    name = f"cleaner-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this machine makes no network namespaces: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


class TwoHosts:
    """Two hosts with a folder for their logs and tokens; the first is the head of the Ray cluster."""

    def __init__(
        self, sandbox: SandboxSettings, folder: Path, variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Take what the sandbox nodes allow, and environment variables for all processes of both hosts."""
        self._settings = msgspec.json.encode(sandbox).decode()
        self._folder, self._given = folder, variables
        self._namespaces = [f"cleaner-{os.getpid()}-{number}" for number in range(len(ADDRESSES))]
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._cleanup = ExitStack()
        self._ray_folder = Path()
        token = secrets.token_hex(32)
        self.token_file = _secret(folder / "sandbox-token", token)
        self._tokens = _secret(folder / "sandbox-tokens.toml", f'[tokens.training]\ntoken = "{token}"\n')
        self._ray_token = _secret(folder / "ray-token", f"{secrets.token_hex(32)}\n")

    @property
    def sandboxes(self) -> list[str]:
        """The addresses of the sandbox nodes."""
        return [f"http://{address}:{SANDBOX_PORT}" for address in ADDRESSES]

    @property
    def environment(self) -> dict[str, str]:
        """What a program on a host needs to use the cluster."""
        return {
            "RAY_ADDRESS": f"{ADDRESSES[0]}:{RAY_PORT}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._ray_token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "HF_HUB_OFFLINE": "1",
        }

    def programs(self, number: int) -> int:
        """Return how many lines a host's sandbox node has logged: one when it was ready, then one per program."""
        logs = self._folder.glob(f"sandbox-{number}-*.log")
        return sum(log.read_text().count("\n") - 1 for log in logs)

    def __enter__(self) -> TwoHosts:
        with ExitStack() as stack:
            # Ray's sockets need a short path.
            self._ray_folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts", dir="/tmp")))
            for name in self._namespaces:
                _ip("netns", "add", name)
                stack.callback(_ip, "netns", "del", name)
            one, other = self._namespaces
            _ip("link", "add", LINK, "netns", one, "type", "veth", "peer", "name", LINK, "netns", other)
            for name, address, peer in zip(self._namespaces, ADDRESSES, reversed(ADDRESSES), strict=True):
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "addr", "add", f"{address}/30", "dev", LINK)
                _ip("-n", name, "link", "set", LINK, "up")
                # Programs find their own address by the route to any other.
                _ip("-n", name, "route", "add", "default", "via", peer)
            stack.callback(self._end)
            for number in range(len(ADDRESSES)):
                self._boot(number)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._cleanup.close()

    def command(self, number: int, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs a program on a host."""
        return ["ip", "netns", "exec", self._namespaces[number], *arguments]

    def processes(self, number: int) -> list[psutil.Process]:
        """Return the processes of a host."""
        found = []
        for pid in subprocess.run(
            ["ip", "netns", "pids", self._namespaces[number]], capture_output=True, text=True, check=True
        ).stdout.split():
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return found

    def lose(self, number: int) -> None:
        """Cut a host's link, then kill all its processes: nobody on the other host is told."""
        _ip("-n", self._namespaces[number], "link", "set", LINK, "down")
        self._kill(number)

    def bring_back(self, number: int) -> None:
        """Start a lost host again."""
        name, peer = self._namespaces[number], ADDRESSES[1 - number]
        _ip("-n", name, "link", "set", LINK, "up")
        _ip("-n", name, "route", "add", "default", "via", peer)  # it went with the link
        self._boot(number)

    # ---- processes

    def _boot(self, number: int) -> None:
        """Start a host's sandbox node and Ray node, and wait until both are there."""
        address = ADDRESSES[number]
        serve = [sys.executable, "-c", SERVE, self._settings, address, str(SANDBOX_PORT), str(self._tokens)]
        log = self._folder / f"sandbox-{number}-{time.time():.0f}.log"
        with log.open("w") as output:
            self._nodes[number] = node = subprocess.Popen(
                self.command(number, serve),
                env=self._variables(),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        head = ADDRESSES[0] if number else "head"
        ray = [
            *("bash", str(RAY_START), head, address, f"--num-cpus={CORES}", "--num-gpus=1"),
            *("--object-store-memory=200000000", f"--temp-dir={self._ray_folder / str(number)}"),
            *(() if number else ("--include-dashboard=false",)),
        ]
        self._checked(ray, number)
        _until(lambda: log.read_text().startswith('{"event":"ready"'), lambda: node.poll() is None, log)

    def _checked(self, command: Sequence[str], number: int) -> None:
        log = self._folder / f"ray-{number}-{time.time():.0f}.log"
        with log.open("w") as output:
            done = subprocess.run(
                self.command(number, command),
                env=self._variables(),
                stdout=output,
                stderr=output,
                timeout=START_SECONDS,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(f"Ray didn't start on host {number}: {log.read_text()[-3_000:]}")

    def _variables(self) -> Mapping[str, str]:
        given = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        own = {key: value for key, value in self.environment.items() if key != "RAY_ADDRESS"}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**given, "PATH": path, **CPU_ENVIRONMENT, **FAIR, **own, **self._given}

    def _end(self) -> None:
        for number in range(len(ADDRESSES)):
            self._kill(number)

    def _kill(self, number: int) -> None:
        """Kill the processes of a host; what its sandbox runs has other networks, and ends with the node."""
        node = self._nodes.pop(number, None)
        if node is not None:
            with suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        deadline = time.monotonic() + START_SECONDS
        while (left := self.processes(number)) and time.monotonic() < deadline:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1)


def _until(met: Callable[[], bool], alive: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not met():
        if time.monotonic() > deadline or not alive():
            raise RuntimeError(f"a node didn't start: {log.read_text()[-3_000:]}")
        time.sleep(0.1)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _secret(file: Path, text: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(text)
    return file
