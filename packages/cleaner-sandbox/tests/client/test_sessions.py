"""Sessions over HTTP, through the client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner_sandbox import (
    BARE,
    Cell,
    Commit,
    FileList,
    Language,
    Limits,
    Node,
    NodeConfig,
    RollbackDeclinedError,
    RunRequest,
    Session,
    SessionLostError,
    SessionRequest,
    Tier,
    TierError,
)
from cleaner_sandbox.client import RequestRefusedError, SandboxClient, SessionBusyError, SyncSandboxClient
from cleaner_sandbox.protocol.results import RunStatus
from cleaner_sandbox.service import fusion
from tests.serving import Caller, asynchronous, opened, scripted, served, until

CONFIG = NodeConfig(slots=2)


class RecordingNode(Node):
    """Knows the sessions it has opened, and opens them when it may."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config)
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.opening = 0

    async def open_session(self, request: SessionRequest | None = None, owner: str = "", owners: int = 1) -> Session:
        self.opening += 1
        await self.may_open.wait()
        self.last_session = await super().open_session(request, owner, owners)
        self.opening -= 1
        return self.last_session


@asynchronous
async def test_a_session_keeps_state_goes_back_and_carries_files() -> None:
    async with Node(CONFIG) as node, served(node) as (url, app), SandboxClient(url) as sandbox:
        session = await sandbox.open_session(SessionRequest(files={"given": b"\x00"}))
        first = await session.run("x = 1")
        here = first.checkpoint
        assert (first.result.status, first.committed) == (RunStatus.OK, True)
        failed = await session.run(Cell("x = 2\nraise ValueError('no')", request_id="mine"))
        assert failed.result.exception is not None
        assert (failed.result.exception.type, failed.result.exception.line) == ("ValueError", 2)
        assert (failed.committed, failed.checkpoint, failed.run.request_id) == (False, here, "mine")
        second = await session.run("print(x); x = 3; x")
        assert (second.result.output, second.checkpoint) == ("1\n3\n", here + 1)
        assert (await session.run(Cell("x = 4", commit=Commit.NEVER))).committed is False
        assert (await session.run(Cell("print(x)", commit=Commit.NEVER))).result.output == "3\n"
        assert await session.rollback() == here
        assert (await session.run(Cell("print(x)", commit=Commit.NEVER))).result.output == "1\n"
        with pytest.raises(RollbackDeclinedError):
            await session.rollback(99)
        await session.put("odd ?%#é.txt", b"odd")
        assert await session.fetch("odd ?%#é.txt") == b"odd"
        await session.put("folder/made", b"\xff\x00")
        assert await session.fetch("folder/made") == b"\xff\x00"
        assert await session.fetch("given") == b"\x00"
        with pytest.raises(FileNotFoundError):
            await session.fetch("absent")
        with pytest.raises(ValueError):
            await session.fetch("a/../../b")
        await session.rollback()
        with pytest.raises(FileNotFoundError):
            await session.fetch("folder/made")
        await session.close()
        await session.close()
        with pytest.raises(SessionLostError):
            await session.run("print(x)")
        assert (app.queue.running, app.queue.bytes, node.status.sessions) == (0, 0, 0)


@asynchronous
async def test_a_file_that_does_not_fit_is_refused_and_leaves_nothing() -> None:
    config = NodeConfig(slots=1, environments=(BARE,), limits=Limits(disk_mb=8))
    async with Node(config) as node, served(node) as (url, _), SandboxClient(url) as sandbox:
        with pytest.raises(ValueError, match="disk limit"):
            await sandbox.open_session(SessionRequest("bare", files={"big": bytes(9 << 20)}))
        session = await sandbox.open_session(SessionRequest("bare"))
        await session.put("small", b"1")
        assert session.checkpoint == 1
        with pytest.raises(ValueError, match="'big'"):
            await session.put("big", bytes(9 << 20))
        assert (await session.run("import os; os.listdir()")).result.output == "['small']\n"
        assert len(node.session(session.id)._committed) == 2


@asynchronous
async def test_what_can_not_be_sent_as_it_is_is_never_sent_as_something_else() -> None:
    async with Node(CONFIG) as node, served(node) as (url, _), SandboxClient(url) as sandbox:
        with pytest.raises(ValueError, match="Unicode"):
            await sandbox.open_session(SessionRequest(files={"a\ud800": b""}))
        session = await sandbox.open_session(SessionRequest(files={"a": b""}))
        outcome = await session.run(Cell("print('\ud800')", request_id="mine"))
        assert (outcome.result.status, outcome.run.request_id) == (RunStatus.MALFORMED, "mine")
        assert (outcome.committed, outcome.checkpoint) == (False, 1)
        assert await session.rollback(outcome.checkpoint) == 1


@asynchronous
async def test_finding_a_rollback_waits_for_a_slot_and_ends_with_its_caller() -> None:
    config = NodeConfig(slots=1, environments=(BARE,), checkpoints=1)
    async with Node(config) as node, served(node) as (url, app), SandboxClient(url) as sandbox:
        session = await sandbox.open_session(SessionRequest("bare"))
        for _ in range(4):
            await session.run("x = 1")
        held = node.session(session.id)
        held._committed[0] = (Cell("while True: pass"), 0)
        going_back = asyncio.create_task(session.rollback(1))
        await until(lambda: app.queue.running == 1 and held.busy)
        waiting = asyncio.create_task(sandbox.run(RunRequest("print(1)")))
        await until(lambda: app.queue.waiting == 1)
        going_back.cancel()
        assert (await waiting).result.output == "1\n"
        assert held.lost


@asynchronous
async def test_a_lost_session_is_said_to_be_lost_and_its_cell_is_not_tried_again() -> None:
    async with Node(CONFIG) as node, served(node) as (url, app), SandboxClient(url) as sandbox:
        session = await sandbox.open_session()
        cell = asyncio.create_task(session.run("while True: pass"))
        await until(lambda: app.queue.running == 1 and node.session(session.id).busy)
        os.kill(node.session(session.id).pid, signal.SIGKILL)
        with pytest.raises(SessionLostError, match="died"):
            await cell
        with pytest.raises(SessionLostError):
            await session.run("print(1)")
        text = app.observer.text().decode()
    assert 'cleaner_sandbox_calls_total{endpoint="/v1/sessions/{session}/run",status="fault"} 1.0' in text


@asynchronous
async def test_a_session_takes_one_cell_at_a_time_and_its_limits_are_its_own() -> None:
    async with Node(CONFIG) as node, served(node) as (url, app), SandboxClient(url) as sandbox:
        session = await sandbox.open_session(SessionRequest(limits=Limits(cpu_seconds=0.5)))
        endless = asyncio.create_task(session.run("while True: pass"))
        await until(lambda: app.queue.running == 1)
        with pytest.raises(SessionBusyError):
            await session.run("print(1)")
        assert (await endless).result.status is RunStatus.TIMEOUT
        assert (await session.run("print(1)")).result.output == "1\n"


@asynchronous
async def test_a_node_that_goes_away_loses_its_sessions() -> None:
    async with SandboxClient("http://127.0.0.1:1", patience=0.2) as sandbox:
        with pytest.raises(SessionLostError):
            await sandbox.open_session()
    async with opened(Node(CONFIG)) as (url, _):
        client = await SandboxClient(url, patience=0.2).__aenter__()
        session = await client.open_session()
    with pytest.raises(SessionLostError):
        await session.run("print(1)")
    await client.__aexit__(None, None, None)


@asynchronous
async def test_a_session_is_opened_once_a_broken_node_or_its_proxy_is_back() -> None:
    async with scripted(408, 500, 502) as (url, sent), SandboxClient(url) as sandbox:
        session = await sandbox.open_session()
        assert (session.id, len(sent)) == ("0" * 32, 4)
    async with scripted(*[500] * 99) as (url, _), SandboxClient(url, patience=0.3) as sandbox:
        with pytest.raises(SessionLostError):
            await sandbox.open_session()


@asynchronous
async def test_who_asks_for_one_session_too_many_waits_for_it() -> None:
    async with opened(Node(replace(CONFIG, sessions=1))) as (url, app), SandboxClient(url) as sandbox:
        first = await sandbox.open_session()
        second = asyncio.create_task(sandbox.open_session())
        refused = 'cleaner_sandbox_refused_requests_total{error="too_many_sessions"}'
        await until(lambda: refused in app.observer.text().decode())
        assert (await first.run("1")).result.output == "1\n"
        await first.close()
        assert (await (await second).run("2")).result.output == "2\n"


def test_programs_run_on_a_node_that_is_full_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = asyncio.Event()

    def for_long(_: str | None) -> float:
        waits.set()
        return 3600.0

    monkeypatch.setattr("cleaner_sandbox.client.session.retry_seconds", for_long)

    @asynchronous
    async def check() -> None:
        async with opened(Node(replace(CONFIG, sessions=1))) as (url, _), SandboxClient(url) as sandbox:
            await sandbox.open_session()
            second = asyncio.create_task(sandbox.open_session())
            await waits.wait()
            assert (await sandbox.run("print(1)", within=30)).result.output == "1\n"
            second.cancel()

    check()


@asynchronous
async def test_an_answer_that_is_no_nodes_is_a_lost_session() -> None:
    async with scripted() as (url, _), SandboxClient(url) as sandbox:
        session = await sandbox.open_session()
        with pytest.raises(SessionLostError):
            await session.rollback()


@asynchronous
async def test_a_session_belongs_to_its_token_and_counts_for_its_quota(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.a]\ntoken = "aaaaaaaaaaaaaaaa"\nsessions = 1\n[tokens.b]\ntoken = "bbbbbbbbbbbbbbbb"\n')
    async with (
        opened(Node(CONFIG), tokens) as (url, _),
        Caller(url, "aaaaaaaaaaaaaaaa") as first,
        Caller(url, "bbbbbbbbbbbbbbbb") as second,
    ):
        status, answer = await first.post("/v1/sessions", {})
        assert status == 201
        path = f"/v1/sessions/{answer['session']}"
        assert (await second.post(f"{path}/run", {"code": "1"}))[0] == 410
        assert (await first.post("/v1/sessions", {}))[1]["error"] == "too_many_sessions"
        async with first.http.delete(path) as response:
            assert response.status == 204
        assert (await first.post("/v1/sessions", {}))[0] == 201


@asynchronous
async def test_sessions_that_are_asked_for_at_once_all_count_for_the_quota(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.a]\ntoken = "aaaaaaaaaaaaaaaa"\nsessions = 2\n')
    async with opened(Node(CONFIG), tokens) as (url, app), Caller(url, "aaaaaaaaaaaaaaaa") as caller:
        answers = await asyncio.gather(*(caller.post("/v1/sessions", {"environment": "bare"}) for _ in range(6)))
        assert sorted(status for status, _ in answers) == [201, 201, 429, 429, 429, 429]
        for _, answer in answers:
            if "session" in answer:
                await (await caller.http.delete(f"/v1/sessions/{answer['session']}")).read()
        for _ in range(3):  # what was refused took no share of the quota
            assert (await caller.post("/v1/sessions", {"environment": "absent"}))[0] == 400
        assert app.tenants.find(b"Bearer aaaaaaaaaaaaaaaa").sessions == set()  # type: ignore[union-attr]  # it is there


@asynchronous
async def test_below_tier_2_there_are_no_sessions() -> None:
    async with opened(Node(NodeConfig(slots=1, tier=Tier.T1))) as (url, _), Caller(url) as caller:
        status, problem = await caller.post("/v1/sessions", {})
        assert (status, problem["error"]) == (501, "no_sessions")
        async with SandboxClient(url) as client:
            with pytest.raises(TierError, match="tier 2"):
                await client.open_session()


@asynchronous
async def test_a_session_whose_opener_left_before_the_answer_is_closed() -> None:
    async with RecordingNode(CONFIG) as node, served(node) as (url, app):
        node.may_open.clear()
        async with Caller(url) as caller:
            asking = asyncio.create_task(caller.post("/v1/sessions", {"environment": "bare"}))
            await until(lambda: node.opening == 1)
            asking.cancel()
        async with Caller(url) as caller:  # its answer comes after the node has heard that the other one left
            assert (await caller.get("/healthz"))[0] == 200
        node.may_open.set()
        await until(lambda: node.opening == 0)
        await until(lambda: node.last_session.lost == "it was closed")
        assert node.status.sessions == 0
        assert app.tenants.find(None).sessions == set()  # type: ignore[union-attr]  # it is there


@asynchronous
async def test_finding_session_quota_a_run_of_cells_is_a_session_of_its_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.a]\ntoken = "aaaaaaaaaaaaaaaa"\nsessions = 1\n')
    async with (
        RecordingNode(CONFIG) as node,
        served(node, tokens) as (url, _),
        Caller(url, "aaaaaaaaaaaaaaaa") as caller,
    ):
        _, opened_one = await caller.post("/v1/sessions", {"environment": "bare"})
        status, beyond = await caller.post("/run_jupyter", {"cells": ["print(7)"]})
        assert (status, beyond["status"]) == (200, "SandboxError")
        assert "more sessions" in beyond["message"]
        await (await caller.http.delete(f"/v1/sessions/{opened_one['session']}")).read()
        node.may_open.clear()
        within = asyncio.create_task(caller.post("/run_jupyter", {"cells": ["print(7)"]}))
        await until(lambda: node.opening == 1)
        assert (await caller.post("/v1/sessions", {"environment": "bare"}))[0] == 429
        node.may_open.set()
        assert (await within)[1]["cells"][0]["stdout"] == "7\n"
        assert (await caller.post("/v1/sessions", {"environment": "bare"}))[0] == 201
        node.last_session.end("its time ran out")  # nobody has to come back for it
        assert (await caller.post("/run_jupyter", {"cells": ["print(7)"]}))[1]["status"] == "Success"


@asynchronous
async def test_finding_batch_outputs_of_cells_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "UNREAD_BYTES", 250_000)
    async with opened(Node(CONFIG)) as (url, _), Caller(url) as caller:
        _, answer = await caller.post("/run_jupyter", {"cells": ["print('x' * 99_999)"] * 9})
        assert (answer["status"], answer["driver"]["return_code"], len(answer["cells"])) == ("Failed", 1, 3)
        assert "did not run" in answer["driver"]["stderr"]


@asynchronous
async def test_finding_exceptions_of_cells_count_and_so_do_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "UNREAD_BYTES", 30_000)
    async with opened(Node(CONFIG)) as (url, _), Caller(url) as caller:
        _, answer = await caller.post("/run_jupyter", {"cells": ["raise ValueError('\N{GRINNING FACE}' * 2_500)"] * 9})
        assert (answer["status"], answer["driver"]["return_code"]) == ("Failed", 1)
        assert len(answer["cells"]) == 2
        status, problem = await caller.post("/run_jupyter", {"cells": [""] * (fusion.MOST_CELLS + 1)})
        assert (status, problem["error"]) == (413, "too_large")


@asynchronous
async def test_finding_cells_together_have_a_slot_for_no_longer_than_one_program() -> None:
    config = replace(CONFIG, maxima=Limits(wall_seconds=0.5))
    async with opened(Node(config)) as (url, _), Caller(url) as caller:
        cells = ["import time; time.sleep(0.2)"] * 20
        _, answer = await caller.post("/run_jupyter", {"cells": cells, "total_timeout": 1e9, "cell_timeout": 1e8})
        assert (answer["status"], answer["driver"]["status"]) == ("Failed", "TimeLimitExceeded")
        assert len(answer["cells"]) <= 3


@pytest.mark.parametrize("path", ["session", "/run_jupyter", "/v1/runs"])
@asynchronous
async def test_finding_answers_that_are_not_read_count_as_the_bytes_that_are_held_for_them(path: str) -> None:
    code = "import sys\nfor stream in (sys.stdout, sys.stderr): stream.write('\\x01' * 1_000_000)"
    body: dict[str, object] = {"code": code}
    if path == "/run_jupyter":
        body = {"cells": [code]}
    elif path == "/v1/runs":
        body = {"calls": [{"code": code, "keep_chars": 1_000_000}]}
    async with opened(Node(CONFIG)) as (url, app), Caller(url) as caller:
        if path == "session":
            _, session = await caller.post("/v1/sessions", {"environment": "bare", "keep_chars": 1_000_000})
            path = f"/v1/sessions/{session['session']}/run"
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            sent = json.dumps(body).encode()
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(sent)}\r\n\r\n"
            slow.sendall(head.encode() + sent)
            await until(lambda: app.queue.bytes > 12_000_000)
            assert app.queue.running == 0
        await until(lambda: app.queue.bytes == 0)


@asynchronous
async def test_run_jupyter_runs_cells_in_one_interpreter() -> None:
    async with RecordingNode(CONFIG) as node, served(node) as (url, _), Caller(url) as caller:
        cells = ["a = 1", "print(a)", "a = 2; raise RuntimeError('no')", "print(a)"]
        status, body = await caller.post("/run_jupyter", {"cells": cells, "files": {"f": "AA=="}, "fetch_files": ["f"]})
        assert (status, body["status"], body["driver"]["status"]) == (200, "Success", "Finished")
        assert [cell["stdout"] for cell in body["cells"]] == ["", "1\n", "", "2\n"]
        ((error,),) = [cell["error"] for cell in body["cells"] if cell["error"]]
        assert (error["ename"], error["evalue"]) == ("RuntimeError", "no")
        assert body["files"] == {"f": "AA=="}
        _, late = await caller.post(
            "/run_jupyter", {"cells": ["print(1)", "while True: pass", "2"], "total_timeout": 1}
        )
        assert (late["status"], late["driver"]["status"]) == ("Failed", "TimeLimitExceeded")
        assert [cell["stdout"] for cell in late["cells"]] == ["1\n", ""]
        _, long = await caller.post("/run_jupyter", {"cells": ["print('x' * 99_999)"]})
        assert len(long["cells"][0]["stdout"]) == 100_000
        naps = {"cells": ["import time; time.sleep(1)"] * 4, "total_timeout": 0.5}
        _, slept = await caller.post("/run_jupyter", naps)
        assert (slept["status"], slept["driver"]["status"]) == ("Failed", "TimeLimitExceeded")
        assert len(slept["cells"]) <= 2
        _, outside = await caller.post("/run_jupyter", {"cells": ["1"], "files": {"../f": "AA=="}})
        assert (outside["status"], outside["cells"]) == ("Failed", [])
        assert "working folder" in outside["message"]
        thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()"
        cells = [f"{thread}\nprint(time.time())", "import os; os._exit(1)", "print(1)"]
        _, unlike = await caller.post("/run_jupyter", {"cells": cells})
        driver = unlike["driver"]
        assert (unlike["status"], driver["status"], driver["return_code"]) == ("Failed", "Finished", 1)
        assert [bool(cell["error"]) for cell in unlike["cells"]] == [False, True]
        _, complete = await caller.post("/run_jupyter", {"cells": cells[:2]})
        assert (complete["status"], len(complete["cells"])) == ("Success", 2), "no cell had to be left out"
        busy = asyncio.create_task(caller.post("/run_jupyter", {"cells": ["while True: pass"]}))
        await until(lambda: node.last_session.busy)
        os.kill(node.last_session.pid, signal.SIGKILL)
        _, lost = await busy
        assert (lost["status"], lost["cells"]) == ("SandboxError", [])
        assert node.status.sessions == 0


@asynchronous
async def test_files_of_a_session_are_listed_and_fetched_together() -> None:
    async with Node(CONFIG) as node, served(node) as (url, _), SandboxClient(url) as sandbox:
        session = await sandbox.open_session(SessionRequest(files={"given": b"\x00"}))
        assert await session.list_files() == FileList({"given": 1})
        await session.run("import os; os.mkdir('out'); open('out/é.csv', 'w').write('12'); os.symlink('/etc', 'link');")
        await session.run(Cell("open(b'\\xff', 'w').close(); open('out/new', 'w').close();"))
        assert await session.list_files() == FileList({"given": 1, "out/é.csv": 2, "out/new": 0}, left_out=1)
        assert await session.fetch_all("out", "g*", "absent") == {"given": b"\x00", "out/é.csv": b"12", "out/new": b""}
        with pytest.raises(FileNotFoundError):
            await session.fetch("out")
        with pytest.raises(ValueError, match="not below the working folder"):
            await session.fetch_all("../*")
        with pytest.raises(ValueError, match="1 or more of the files are too large or too many"):
            await session.fetch_all("**")
        before = session.checkpoint
        await session.rollback()
        assert (await session.list_files()).files == {"given": 1, "out/é.csv": 2}
        assert session.checkpoint == before - 1, "to look leaves no trace"
        shell = await sandbox.open_session(SessionRequest(language=Language.BASH))
        await shell.run("mkdir a; cd a; touch b")
        assert await shell.list_files() == FileList({"a/b": 0})
        await shell.close()
        with pytest.raises(SessionLostError):
            await shell.list_files()


@asynchronous
async def test_a_token_lists_its_own_sessions_and_can_take_them_up_again(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text('[tokens.ann]\ntoken = "ann-0123456789abcdef"\n[tokens.bob]\ntoken = "bob-0123456789abcdef"\n')
    async with (
        Node(CONFIG) as node,
        served(node, file) as (url, _),
        SandboxClient(url, token="ann-0123456789abcdef") as ann,
        SandboxClient([url, "http://127.0.0.1:9"], token="bob-0123456789abcdef") as bob,
        SandboxClient(url, token="eve-0123456789abcdef") as eve,
    ):
        first, second = await ann.open_session(), await ann.open_session(SessionRequest(language=Language.BASH))
        await first.run("x = 1")
        assert await bob.list_sessions() == [], "the node that isn't there is left out"
        with pytest.raises(RequestRefusedError):
            await eve.list_sessions()
        mine = {info.id: info for info in await ann.list_sessions()}
        assert set(mine) == {first.id, second.id}
        info = mine[first.id]
        assert (info.language, info.environment, info.checkpoint, info.busy) == (Language.PYTHON, "science", 1, False)
        assert info.node == url
        assert info.held_bytes > 0
        assert mine[second.id].language is Language.BASH
        again = ann.attach_session(info)
        assert again.checkpoint == 1
        assert (await again.run("x")).result.output == "1\n"
        with pytest.raises(SessionLostError):
            await bob.attach_session(info).run("x")
        await again.close()
        assert [info.id for info in await ann.list_sessions()] == [second.id]
        with pytest.raises(ValueError, match="is not the id of a session"):
            ann.attach_session(replace(info, id="../x"))


@asynchronous
async def test_the_synchronous_client_has_sessions_too() -> None:
    async with Node(CONFIG) as node, served(node) as (url, _):

        def use() -> str:
            with SyncSandboxClient(url) as sandbox:
                session = sandbox.open_session()
                session.run("x = 5")
                session.put("f", b"1")
                assert session.fetch("f") == b"1"
                assert session.list_files().files == {"f": 1}
                assert session.fetch_all("*") == {"f": b"1"}
                session.rollback()
                (info,) = sandbox.list_sessions()
                session = sandbox.attach_session(info)
                output = session.run("print(x)").result.output
                session.close()
                return output

        assert await asyncio.to_thread(use) == "5\n"
