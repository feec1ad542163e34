"""Our own endpoints on a real node: what they take, what they refuse, and what they say of themselves."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cleaner_sandbox import Node, NodeConfig
from cleaner_sandbox.service import about
from cleaner_sandbox.service.about import document
from cleaner_sandbox.service.tenants import Tenants
from tests.conftest import DOCS
from tests.serving import Caller, asynchronous, opened, served
from tests.watched import WatchedNode

CONFIG = NodeConfig(slots=2)


@asynchronous
async def test_run_takes_files_limits_binary_input_and_a_seed() -> None:
    async with Node(CONFIG) as node, served(node) as (url, _), Caller(url) as caller:

        async def run(code: str, **more: object) -> Any:
            status, body = await caller.post("/v1/run", {"code": code, **more})
            assert status == 200, body
            return body

        body = await run(
            "import sys\nopen('b', 'wb').write(sys.stdin.buffer.read() + open('a', 'rb').read())",
            stdin_base64=base64.b64encode(b"\xff").decode(),
            files={"a": base64.b64encode(b"\x00").decode()},
            fetch=["b", "absent"],
            id="mine",
        )
        assert (body["id"], body["status"]) == ("mine", "ok")
        assert body["files"] == {"b": base64.b64encode(b"\xff\x00").decode()}
        assert (await run("while True: pass", limits={"cpu_seconds": 0.3}))["status"] == "timeout"
        assert (await run("40 + 2", echo_last_expression=True))["output"] == "42\n"
        same = "import random; print(random.random())"
        assert (await run(same, seed=1))["output"] == (await run(same, seed=1))["output"]
        error = await run("\nraise ValueError('no')")
        assert (error["exception"]["type"], error["exception"]["line"]) == ("ValueError", 2)
        assert (await run("print(1)", environment="absent"))["status"] == "refused"
        long = await run("print('x' * 99_999)")
        assert (len(long["output"]), long["output_length"]) == (65_536, 100_000)
        whole = await run("print('x' * 99_999)", keep_chars=100_000)
        assert (len(whole["output"]), whole.get("output_length")) == (100_000, None)
        assert (await run("print(1)", files={"../x": ""}))["status"] == "refused"
        shell = await run("read x; echo $x; exit 3", language="bash", stdin="a b")
        assert (shell["status"], shell["output"], shell["exit_code"]) == ("error", "a b\n", 3)
        assert (await caller.post("/v1/run", {"code": "1", "language": "go"}))[0] == 400
        assert (await run("print(1)", fetch=["a"] * 4_097))["status"] == "refused"
        assert (await run("print(1)", fetch=["a/" * 64 + "a"]))["status"] == "refused"
        assert (await run("print(1)", fetch=["a"] * 4_096))["status"] == "ok"


@asynchronous
async def test_what_can_not_be_read_is_refused_with_a_reason() -> None:
    async with opened(WatchedNode(), most_body_mb=1) as (url, _), Caller(url) as caller:
        for body, word in (
            ({}, "code"),
            ({"code": 1}, "code"),
            ({"code": "", "colour": 1}, "colour"),
            ({"code": "", "limits": {"cpu_seconds": -1}}, "> 0"),
            ({"code": "", "keep_chars": -1}, "keep_chars"),
            ({"code": "", "files": {"a": "no base64!"}}, "base64"),
            ({"code": "", "id": "x" * 1_025}, "<= 1024"),
        ):
            status, problem = await caller.post("/v1/run", body)
            assert (status, problem["error"]) == (400, "invalid_request")
            assert word in problem["message"]
        async with caller.http.post("/v1/run", data=b"{\xff") as response:
            assert response.status == 400
        assert (await caller.post("/v1/runs", {"calls": []}))[0] == 400
        async with caller.http.post("/v1/run", data=io.BytesIO(b'"%s"' % (b"x" * 2_000_000))) as response:
            assert response.status == 413
        assert (await caller.post("/nowhere", {}))[0] == 404
        assert (await caller.get("/v1/run"))[0] == 405
        status, problem = await caller.post("/v1/sessions/absent/run", {"code": "1"})
        assert (status, problem["error"]) == (410, "unknown_session")


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:1", None, 200),
        ("LOCALHOST", None, 200),
        ("127.0.0.1:1", None, 200),
        ("[::1]:1", None, 200),
        ("[::1]", None, 200),
        ("box", None, 200),
        ("localhost:1", "http://localhost:1", 200),
        ("evil.example:1", None, 403),
        ("evil.example:1", "http://evil.example:1", 403),
        ("localhost.evil.example", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("", None, 403),
        ("localhost:1", "http://evil.example", 403),
        ("localhost:1", "http://localhost:2", 403),
        ("localhost:1", "null", 403),
    ],
)
@asynchronous
async def test_finding_foreign_host_a_node_without_tokens_answers_no_web_page(
    host: str, origin: str | None, status: int, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.me]\ntoken = "0123456789abcdef"\n')
    headers = {"host": host} if origin is None else {"host": host, "origin": origin}
    for token_file, token in ((None, None), (tokens, "0123456789abcdef")):
        async with (
            opened(WatchedNode(), token_file, host="box") as (url, _),
            Caller(url, token) as caller,
            caller.http.post("/v1/run", data=b'{"code":"print(1)"}', headers=headers) as response,
        ):
            assert response.status == (200 if token else status)


@asynchronous
async def test_health_and_metrics() -> None:
    async with Node(CONFIG) as node, served(node) as (url, _), Caller(url) as caller:
        await caller.post("/v1/run", {"code": "print(1)"})
        await caller.post("/v1/run", {"code": "1/0"})
        status, health = await caller.get("/healthz")
        assert (status, health["status"], health["slots"], health["runs"]) == (200, "ok", 2, 2)
        assert health["tier"] >= 1
        assert health["probes"]
        assert health["versions"]["science"]["numpy"]
        async with caller.http.get("/metrics") as response:
            text = await response.text()
    for line in (
        'cleaner_sandbox_calls_total{endpoint="/v1/run",status="ok"} 1.0',
        'cleaner_sandbox_calls_total{endpoint="/v1/run",status="error"} 1.0',
        "cleaner_sandbox_run_seconds_count 2.0",
        "cleaner_sandbox_slots 2.0",
    ):
        assert line in text
    assert all(re.match(r"(# (HELP|TYPE) )?[a-z_]+", line) for line in text.splitlines())


@asynchronous
async def test_finding_metrics_need_a_token_where_there_are_tokens_and_are_kept_for_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.me]\ntoken = "0123456789abcdef"\n')
    monkeypatch.setattr(about, "METRICS_SECONDS", 3_600.0)
    async with (
        opened(WatchedNode(), tokens) as (url, app),
        Caller(url) as stranger,
        Caller(url, "0123456789abcdef") as known,
    ):
        status, problem = await stranger.get("/metrics")
        assert (status, problem["error"]) == (401, "unauthorized")
        texts = iter([b"made once"])
        monkeypatch.setattr(app.observer, "text", lambda: next(texts))
        for _ in range(3):
            async with known.http.get("/metrics") as response:
                assert (response.status, await response.read()) == (200, b"made once")


@asynchronous
async def test_finding_a_long_path_is_not_even_split() -> None:
    async with opened(WatchedNode()) as (url, _), Caller(url) as caller:
        status, problem = await caller.get("/v1/sessions/" + "a/" * 10_000)
        assert (status, problem["error"]) == (404, "not_found")
        assert "more than 2048 characters" in problem["message"]
        longest = "/".join(["x" * 255] * 4)
        assert (await caller.get(f"/v1/sessions/{'0' * 32}/files/{longest}"))[0] == 410


@asynchronous
async def test_openapi_is_what_is_opened() -> None:
    async with opened(WatchedNode()) as (url, app), Caller(url) as caller:
        _, openapi = await caller.get("/openapi.json")
        described = {(method.upper(), path) for path, methods in openapi["paths"].items() for method in methods}
        assert described == {(route.method, route.path) for route in app.routes}
        assert openapi == json.loads(json.dumps(document(app)))
        references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(openapi)))
        assert references <= set(openapi["components"]["schemas"])
        for method, path in described:
            sent = caller.http.request(method, re.sub(r"\{\w+\}", "x", path), data=b"{}")
            async with sent as response:
                assert response.status not in (404, 405, 500), (method, path)


@pytest.mark.skipif(not DOCS.exists(), reason="the pages are in the repository, not in the archive of the package")
@asynchronous
async def test_every_endpoint_is_documented() -> None:
    page = (DOCS / "sandbox-http.md").read_text()
    async with opened(WatchedNode()) as (_, app):
        names = [f"`{route.method} {route.path}`" for route in app.routes]
    assert [name for name in names if name not in page] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "tokens"),
        ("[tokens]", "empty"),
        ('[tokens.a]\ntoken = "short"', "shorter"),
        ('[tokens.a]\ntoken = "0123456789abcdef"\ncolour = 1', "colour"),
        ('[tokens.a]\ntoken = "0123456789abcdef"\n[tokens.b]\ntoken = "0123456789abcdef"', "same token"),
    ],
)
def test_a_token_file_that_can_not_be_meant_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        Tenants.read(str(path))
