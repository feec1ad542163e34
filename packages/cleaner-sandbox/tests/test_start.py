"""Sandboxes as programs start them: one that is opened for own use, and the package that offers it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from cleaner_sandbox import (
    BARE,
    DATA,
    Limits,
    Node,
    NodeConfig,
    RunRequest,
    SandboxUnavailableError,
    open_sandbox,
    serve,
    start,
)
from cleaner_sandbox.client import SandboxClient, client
from cleaner_sandbox.node.zygotes import Zygote, ZygoteError
from tests.serving import asynchronous, opened

NOWHERE = "http://127.0.0.1:9"


@asynchronous
async def test_addresses_are_called_and_none_starts_a_node_here() -> None:
    async with opened(Node(NodeConfig(slots=1, environments=(BARE,)))) as (url, _), open_sandbox([url]) as remote:
        assert isinstance(remote, SandboxClient)
        await remote.require_answer()
        assert (await remote.run(RunRequest("print(6 * 7)"))).result.output == "42\n"
    async with open_sandbox(slots=1, sessions=100) as here:
        assert isinstance(here, Node)
        assert (here.config.slots, here.config.sessions) == (1, 100)
        assert (await here.run(RunRequest("print(6 * 7)"))).result.output == "42\n"


def test_a_machine_on_which_no_node_starts_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(_: Zygote) -> None:
        raise ZygoteError("no luck")

    async def attempt() -> None:
        async with open_sandbox(slots=1):
            pytest.fail("there is no node")

    monkeypatch.setattr(Zygote, "start", start)
    with pytest.raises(SandboxUnavailableError, match="no sandbox starts here: no luck"):
        asyncio.run(attempt())


def test_an_address_without_a_node_can_be_found_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def attempt() -> None:
        async with SandboxClient(NOWHERE) as sandbox:
            await sandbox.require_answer()

    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.1)
    with pytest.raises(SandboxUnavailableError, match=rf"no sandbox answers at {NOWHERE}: start one"):
        asyncio.run(attempt())


def test_a_set_whose_packages_are_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_is_installed", lambda name: name != "pandas")
    with pytest.raises(ImportError, match=r"'data' needs pandas, .*cleaner-sandbox\[data\]"):
        serve(NodeConfig(environments=(BARE, DATA)))


def test_limits_raise_maxima_and_never_lower_them() -> None:
    raised = Limits(cpu_seconds=60.0, memory_mb=100).raised(Limits(cpu_seconds=5.0, memory_mb=400))
    assert (raised.cpu_seconds, raised.memory_mb) == (60.0, 400)


@pytest.mark.parametrize(
    "package", ["cleaner_sandbox", "cleaner_sandbox.protocol", "cleaner_sandbox.check", "cleaner_sandbox.cli"]
)
def test_a_package_imports_without_http(package: str) -> None:
    heavy = {"aiohttp", "msgspec", "ray", "uvicorn"}
    code = f"import sys, {package}\nassert not {heavy} & sys.modules.keys()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
