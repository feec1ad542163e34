"""Displays over HTTP: both clients, batches, sessions and SandboxFusion's form."""

from __future__ import annotations

import asyncio

from cleaner_sandbox import BARE, Cell, Node, NodeConfig, RunRequest, SessionRequest
from cleaner_sandbox.client import SandboxClient, SyncSandboxClient
from tests.serving import Caller, asynchronous, served

SHOW = "display({'text/html': '<' * %d}, raw=True)"
LARGE = 600_000
"""Above what is encoded in one step."""
JSON = """
class Json:
    def __init__(self, value): self.value = value
    def _repr_json_(self): return self.value
    def __repr__(self): return "json"
"""


@asynchronous
async def test_the_clients_carry_displays() -> None:
    async with Node(NodeConfig(slots=2, environments=(BARE,))) as node, served(node) as (url, _):
        async with SandboxClient(url) as sandbox:
            programs = [SHOW % 3, SHOW % LARGE, "print(1)", SHOW % (2 * LARGE)]
            outcomes = dict([each async for each in sandbox.run_many(programs)])
            sizes = [[len(each["text/html"]) for each in outcomes[index].displays] for index in range(4)]
            assert sizes == [[3], [LARGE], [], []]
            assert outcomes[3].displays_left_out == {"text/html": 1}
            unwanted = await sandbox.run(RunRequest(SHOW % 3, keep_displays=False))
            assert unwanted.displays == []
            session = await sandbox.open_session(SessionRequest(environment="bare"))
            cell = await session.run(SHOW % LARGE + "; 1 / 0")
            assert (cell.committed, [len(each["text/html"]) for each in cell.run.displays]) == (False, [LARGE])
            assert (await session.run(Cell(SHOW % 3, keep_displays=False))).run.displays == []
            await session.close()

        def synchronous() -> list[int]:
            with SyncSandboxClient(url) as sandbox:
                return [len(each["text/html"]) for each in sandbox.run(SHOW % 5).displays]

        assert await asyncio.to_thread(synchronous) == [5]


@asynchronous
async def test_an_outcome_without_displays_has_no_word_of_them() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node, served(node) as (url, _), Caller(url) as caller:
        _, outcome = await caller.post("/v1/run", {"code": "print(1)"})
        assert not [name for name in outcome if "display" in name]
        _, outcome = await caller.post("/v1/run", {"code": SHOW % 2})
        assert outcome["displays"] == [{"text/html": "<<"}]


@asynchronous
async def test_sandbox_fusion_has_displays_as_jupyter_does() -> None:
    text = "display({'application/json': '{'}, raw=True)"
    async with Node(NodeConfig(slots=2)) as node, served(node) as (url, _), Caller(url) as caller:
        cells = [JSON, "Json({'a': [1]})", "Json(float('nan'))", SHOW % LARGE, text, "6 * 7"]
        _, answer = await caller.post("/run_jupyter", {"cells": cells})
        assert answer["status"] == "Success"
        shown = [cell["display"] for cell in answer["cells"]]
        assert shown[0] == shown[5] == []
        assert shown[1] == [{"text/plain": "json", "application/json": {"a": [1]}}]
        assert shown[2] == [{"text/plain": "json", "application/json": "NaN"}]
        assert shown[3] == [{"text/html": "<" * LARGE}]
        assert shown[4] == [{"application/json": "{"}]
        _, ran = await caller.post("/run_code", {"code": SHOW % 3, "language": "python"})
        assert ran["status"] == "Success"


BIG = "import sys; sys.set_int_max_str_digits(0); display({'application/json': 10**5000}, raw=True)"
DEEP = "x = []\nfor _ in range(900): x = [x]\nimport json; display({'application/json': x}, raw=True)"


@asynchronous
async def test_finding_a_display_that_python_can_not_decode_leaves_the_answer_decodable() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node, served(node) as (url, _), Caller(url) as caller:
        _, answer = await caller.post(
            "/run_jupyter", {"cells": [BIG, DEEP, "display({'application/json': [1]}, raw=True)"]}
        )
    big, deep, plain = (cell["display"][0]["application/json"] for cell in answer["cells"])
    assert (isinstance(big, str), isinstance(deep, str), plain) == (True, True, [1])
    assert len(big) == 5_001
