"""The shipped configuration of nginx, in front of a node: calls, sessions and streams pass, and its bounds hold."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from cleaner_sandbox import BARE, Node, NodeConfig, RunRequest, SessionRequest, Tier
from cleaner_sandbox.client import SandboxClient
from tests.conftest import needs
from tests.serving import asynchronous, opened, until

SHIPPED = (Path(__file__).parents[2] / "deploy" / "nginx" / "nginx.conf").read_text()
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
TOKEN = "0123456789abcdef"
pytestmark = [
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: nginx-light)"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes a certificate, is not installed"),
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def nginx(folder: Path, node: int, **changes: str) -> Iterator[int]:
    """The port of an nginx with the shipped configuration, its paths and ports changed."""
    crt, key, port = folder / "tls.crt", folder / "tls.key", free_port()
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*made, "-out", str(crt), "-keyout", str(key)], check=True, capture_output=True, timeout=60)
    text = SHIPPED
    for old, new in {
        "127.0.0.1:8089": f"127.0.0.1:{node}",
        "listen 8443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/cleaner/tls.crt": str(crt),
        "/etc/cleaner/tls.key": str(key),
        "/run/cleaner-sandbox-nginx.pid": str(folder / "pid"),
        **changes,
    }.items():
        assert old in text
        text = text.replace(old, new)
    config = folder / "nginx.conf"
    config.write_text(text)
    assert NGINX is not None
    process = subprocess.Popen([NGINX, "-c", str(config), "-g", "daemon off;"], stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(20)


@asynchronous
async def test_calls_sessions_and_streams_pass(tmp_path: Path) -> None:
    needs(Tier.T2)
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[tokens.me]\ntoken = "{TOKEN}"\n')
    async with opened(Node(NodeConfig(slots=2, environments=(BARE,))), tokens) as (url, _):
        # Without TLS: a client reads which certificates it trusts when its process starts.
        with nginx(tmp_path, int(url.rpartition(":")[2]), **{" ssl;": ";"}) as port:
            await until(lambda: answers(port))
            async with SandboxClient(f"http://127.0.0.1:{port}", token=TOKEN) as sandbox:
                outcomes = await asyncio.gather(*(sandbox.run(RunRequest(f"print({n} * 7)")) for n in range(40)))
                assert [outcome.result.output for outcome in outcomes] == [f"{n * 7}\n" for n in range(40)]
                session = await sandbox.open_session(SessionRequest(files={"big": bytes(4_000_000)}))
                assert (await session.run("import os; os.path.getsize('big')")).result.output == "4000000\n"
                await session.run("x = 1")
                await session.run("x = 2; 1 / 0")
                assert (await session.run("x")).result.output == "1\n"
                await session.close()


@asynchronous
async def test_what_is_too_large_or_not_for_everybody_ends_at_the_proxy(tmp_path: Path) -> None:
    async with opened(Node(NodeConfig(slots=1, environments=(BARE,)))) as (url, _):
        closed = {"allow 127.0.0.1;": ""}
        with nginx(tmp_path, int(url.rpartition(":")[2]), **closed) as port:
            await until(lambda: answers(port))
            trusted = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
            async with aiohttp.ClientSession(f"https://localhost:{port}") as caller:
                for path, headers, body, status in (
                    ("/metrics", {}, b"", 403),
                    ("/v1/run", {"x": "y" * 40_000}, b"{}", 400),
                    ("/v1/run", {"content-length": str(65 << 20)}, b"", 413),
                ):
                    request = caller.post(path, data=body, headers=headers, ssl=trusted)
                    async with request as response:
                        assert response.status == status, path
