"""Nodes on a Ray cluster of one machine.

Ray listens on all interfaces, so the cluster is started only where there is none but loopback. Elsewhere root runs this
file once more in a network namespace of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_sandbox import on_ray
from cleaner_sandbox.client import SandboxClient

ray = pytest.importorskip("ray", reason="Ray is not installed")
ALONE = [name for _, name in socket.if_nameindex()] == ["lo"]
LEAVE_THE_NETWORK = """
import fcntl, os, socket, struct, sys
from cleaner_sandbox.inside import kernel
kernel.unshare(kernel.CLONE_NEWNET)
with socket.socket() as any_:
    fcntl.ioctl(any_, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # loopback: up and running
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
TOKEN = "0123456789abcdef"
CLEANER = [sys.executable, "-c", "from cleaner_rl.cli import main; main()"]


@pytest.fixture
def cluster() -> Iterator[str]:
    context = ray.init(_node_ip_address="127.0.0.1", num_cpus=2, include_dashboard=False, logging_level="ERROR")
    yield context.address_info["address"]
    ray.shutdown()


def supervisors(tokens: Path) -> list[int]:
    """Processes that serve a node with this token file."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and str(tokens).encode() in words:
            found.append(int(path.parent.name))
    return found


async def answers(patience: float) -> str:
    async with SandboxClient("ray:", token=TOKEN, patience=patience) as sandbox:
        return (await sandbox.run("print(6 * 7)")).result.output


@pytest.mark.skipif(ALONE, reason="already in a network of its own")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a network namespace")
@pytest.mark.timeout(300)
def test_this_file_in_a_network_of_its_own() -> None:
    again = ["-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        [sys.executable, "-c", LEAVE_THE_NETWORK, *again], capture_output=True, text=True, timeout=280
    )
    assert "1 passed" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.skipif(not ALONE, reason="Ray would listen on a network that others reach")
@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore")
def test_a_node_per_machine_is_found_and_comes_back_when_it_is_killed(cluster: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[tokens.me]\ntoken = "{TOKEN}"\n')
    command = [
        *CLEANER,
        "sandbox",
        "up",
        "--ray",
        "--ray-address",
        cluster,
        "--token-file",
        str(tokens),
        "--slots",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.count("http://127.0.0.1:") == len(on_ray.urls()) == 1
    assert asyncio.run(answers(60)) == "42\n"
    (supervisor,) = supervisors(tokens)
    os.kill(supervisor, signal.SIGKILL)
    assert asyncio.run(answers(120)) == "42\n"
    assert supervisors(tokens) != [supervisor]
    down = subprocess.run(
        [*CLEANER, "sandbox", "down", "--ray", "--ray-address", cluster], capture_output=True, text=True
    )
    assert down.stdout == "1 nodes ended\n"
