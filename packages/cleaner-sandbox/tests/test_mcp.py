"""The MCP server as a real process, called over stdio and over HTTP by the client of the `mcp` package."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import TextContent

from cleaner_sandbox import BARE, SCIENCE, Node, NodeConfig, Tier, serve_mcp, start
from cleaner_sandbox.cli import sandbox as main
from cleaner_sandbox.mcp.tools import SandboxTools
from cleaner_sandbox.service.tenants import Tenant
from tests.conftest import needs
from tests.serving import asynchronous, opened, until

COMMAND = [sys.executable, "-m", "cleaner_sandbox", "mcp"]
SECONDS = 30
TOKENS = """
[tokens.ann]
token = "ann-0123456789abcdef"
sessions = 1
[tokens.bob]
token = "bob-0123456789abcdef"
"""
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _tier() -> None:
    needs(Tier.T2)


class Caller:
    """Calls tools, and keeps apart what the model reads and what programs read."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> tuple[bool, str, Any]:
        result = await self.client.call_tool(tool, arguments)
        (text,) = result.content
        assert isinstance(text, TextContent)
        return result.is_error, text.text, result.structured_content

    async def open(self, language: str = "python") -> str:
        failed, text, answer = await self("open_session", language=language)
        assert not failed, text
        return str(answer["session"])


@contextlib.asynccontextmanager
async def over_stdio(*options: str, mode: Literal["auto", "legacy"] = "auto") -> AsyncIterator[Caller]:
    environment = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    command = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *options], env=environment)
    async with Client(command, mode=mode, read_timeout_seconds=SECONDS) as client:
        yield Caller(client)


@contextlib.asynccontextmanager
async def over_http(*options: str) -> AsyncIterator[str]:
    """The address of a server that other processes can call."""
    server = await asyncio.create_subprocess_exec(*COMMAND, "--http", "0", *options, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            yield (await server.stdout.readline()).decode().split()[0]
    finally:
        server.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await server.wait() == 0


@contextlib.asynccontextmanager
async def calling(
    address: str, token: str | None = None, mode: Literal["auto", "legacy"] = "auto"
) -> AsyncIterator[Caller]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with create_mcp_http_client(headers) as http:
        transport = streamable_http_client(address, http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=SECONDS) as client:
            yield Caller(client)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@asynchronous
async def test_over_stdio_programs_run_and_sessions_go_back(mode: Literal["auto", "legacy"]) -> None:
    async with over_stdio(mode=mode) as call:
        assert (await call("python", code="6 * 7"))[:2] == (False, "42\n[ok, exit code 0]")
        failed, text, answer = await call("python", code="print(1)\nint(input())", stdin="x")
        assert failed
        assert text.startswith("1\nTraceback")
        assert text.endswith("[error, exit code 1]")
        assert (answer["status"], answer["output"], answer["exit_code"]) == ("error", "1\n", 1)
        assert (answer["exception"]["type"], answer["exception"]["line"]) == ("ValueError", 2)
        failed, text, answer = await call("bash", code="echo out; echo err >&2; exit 3")
        assert failed
        assert (answer["output"], answer["stderr"], answer["exit_code"]) == ("out\n", "err\n", 3)

        session = await call.open()
        assert (await call("run_in_session", session=session, code="x = 1"))[2]["checkpoint"] == 1
        failed, text, answer = await call("run_in_session", session=session, code="x = 2; 1 / 0")
        assert failed
        assert (answer["committed"], answer["checkpoint"]) == (False, 1)
        assert "nothing was kept: the session is still at checkpoint 1" in text
        await call("run_in_session", session=session, code="x = 3")
        assert (await call("checkpoint", session=session))[2] == {"session": session, "checkpoint": 2}
        assert (await call("rollback", session=session))[2] == {"session": session, "checkpoint": 1}
        assert (await call("run_in_session", session=session, code="x"))[2]["output"] == "1\n"

        shell = await call.open("bash")
        await call("run_in_session", session=shell, code="mkdir a && cd a && echo kept > file")
        assert (await call("run_in_session", session=shell, code="cat file"))[2]["output"] == "kept\n"
        assert (await call("rollback", session=shell, checkpoint=0))[2]["checkpoint"] == 0
        assert (await call("run_in_session", session=shell, code="ls"))[2]["output"] == ""
        assert not (await call("close_session", session=shell))[0]


@asynchronous
async def test_the_tools_are_described_and_what_is_wrong_with_a_call_is_told_to_the_model() -> None:
    async with over_stdio() as call:
        tools = {tool.name: tool for tool in (await call.client.list_tools()).tools}
        assert list(tools) == [
            "python", "bash", "open_session", "run_in_session", "checkpoint", "rollback", "close_session",
        ]  # fmt: skip
        schemas = [(tool.input_schema, tool.output_schema or {}) for tool in tools.values()]
        assert all(takes["type"] == answers["type"] == "object" for takes, answers in schemas)
        assert tools["python"].input_schema["required"] == ["code"]

        assert (await call("python", cod="1"))[1].startswith("The arguments of `python` can't be used: Object contains")
        assert "Available: python, bash, open_session" in (await call("ruby", code="1"))[1]
        failed, text, _ = await call("run_in_session", session="0" * 32, code="1")
        assert failed
        assert text.endswith("closed, lost, or never opened. Open one with `open_session`.")
        session = await call.open()
        failed, text, _ = await call("rollback", session=session, checkpoint=5)
        assert failed
        assert "there is no checkpoint 5; the session is at 0" in text

        async def says(words: str) -> bool:
            return words in (await call("checkpoint", session=session))[1]

        running = asyncio.create_task(call("run_in_session", session=session, code="while True: pass"))
        await until(lambda: says("The session is busy with an earlier call. Wait for its result"))
        running.cancel()
        await until(lambda: says("The session and its state are gone"))
        assert await says("There is no session")


@pytest.mark.parametrize("ending", ["stdin", "signal"])
def test_the_server_ends_with_its_client(ending: str) -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        server.stdin.flush()
        assert server.stdout.readline()
        if ending == "stdin":
            server.stdin.close()
        else:
            server.send_signal(signal.SIGTERM)
        assert server.wait(SECONDS) == 0


@asynchronous
async def test_over_http_a_session_outlives_a_connection_and_no_web_page_gets_in() -> None:
    async with over_http() as address:
        async with calling(address) as call:
            session = await call.open()
            await call("run_in_session", session=session, code="x = 41")
        async with calling(address, mode="legacy") as call:
            assert (await call("run_in_session", session=session, code="x + 1"))[1].startswith("42\n[ok")
        async with aiohttp.ClientSession() as http:
            for header in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
                async with http.post(address, json={}, headers=header) as response:
                    assert response.status == 403


@asynchronous
async def test_over_http_a_token_owns_its_sessions_and_keeps_to_its_quota(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    async with over_http("--token-file", str(file)) as address:
        async with aiohttp.ClientSession() as http, http.post(address, json={}) as response:
            assert response.status == 401
            assert (await response.json())["error"] == "unauthorized"
        async with calling(address, "ann-0123456789abcdef") as ann, calling(address, "bob-0123456789abcdef") as bob:
            session = await ann.open()
            assert "There is no session" in (await bob("run_in_session", session=session, code="1"))[1]
            assert not (await ann("run_in_session", session=session, code="1"))[0]
            failed, text, _ = await ann("open_session")
            assert failed
            assert "Your token may not have more sessions open" in text
            await ann("close_session", session=session)
            await ann.open()
            await bob.open()


@asynchronous
async def test_a_node_elsewhere_is_used_and_its_sessions_are_closed_at_the_end() -> None:
    async with opened(Node(NodeConfig(slots=1, environments=(BARE, SCIENCE)))) as (url, app):
        async with over_stdio("--sandbox", url) as call:
            assert (await call("python", code="print(7)"))[2]["output"] == "7\n"
            session = await call.open()
            assert (await call("run_in_session", session=session, code="x = 1"))[2]["checkpoint"] == 1
            assert (await call("rollback", session=session))[2]["checkpoint"] == 0
            assert app.node.status.sessions == 1
            lost = await call.open()
            await app.node.session(lost).close()
            assert "Open another one with `open_session`." in (await call("run_in_session", session=lost, code="1"))[1]
        await until(lambda: app.node.status.sessions == 0)


@asynchronous
async def test_below_tier_2_only_python_runs_and_the_rest_says_why() -> None:
    tenant = Tenant("only")
    async with Node(NodeConfig(slots=1, environments=(BARE,), tier=Tier.T1)) as node, SandboxTools(node) as tools:
        assert (await tools.call("python", {"code": "6 * 7"}, tenant)).structured_content["output"] == "42\n"
        shell = await tools.call("bash", {"code": "ls"}, tenant)
        assert (shell.is_error, shell.structured_content["status"]) == (True, "refused")
        assert "This node can't run bash: its programs need tier 2" in shell.structured_content["explanation"]
        session = await tools.call("open_session", {}, tenant)
        (text,) = session.content
        assert isinstance(text, TextContent)
        assert text.text.startswith("No session can be opened here: sessions need tier 2")
        assert text.text.endswith("T1 is enough for code that isn't hostile. `python` runs without one.")


def test_what_cannot_be_served_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = CliRunner()
    refused = run.invoke(main, ["mcp", "--http", "0.0.0.0:0"])
    assert refused.exit_code == 1
    assert "give a --token-file, or bind to a loopback address" in refused.output
    assert "has no port" in run.invoke(main, ["mcp", "--http", "localhost"]).output
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    assert "give --http" in run.invoke(main, ["mcp", "--token-file", str(file)]).output
    monkeypatch.setattr("cleaner_sandbox.client.client.ANSWER_SECONDS", 0.1)
    away = run.invoke(main, ["mcp", "--http", "0", "--sandbox", NOWHERE])
    assert f"no sandbox answers at {NOWHERE}: start one" in away.output
    monkeypatch.setattr(start, "_is_installed", lambda name: name != "mcp")
    with pytest.raises(ImportError, match=r"needs mcp, which isn't here: pip install 'cleaner-sandbox\[mcp\]'"):
        serve_mcp()


@asynchronous
async def test_finding_stdin_counts_against_what_waiting_calls_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_sandbox.mcp.tools.MOST_HELD", 1_000)
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node, SandboxTools(node) as tools:
        sent = {"code": "import time; time.sleep(60)", "stdin": "x" * 900}
        first = asyncio.create_task(tools.call("python", sent, Tenant("only")))
        await until(lambda: tools.queue.running == 1)
        refused = await tools.call("python", sent, Tenant("only"))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    assert refused.is_error
    (text,) = refused.content
    assert isinstance(text, TextContent)
    assert "full" in text.text
