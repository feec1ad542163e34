"""The SQL tool: its failures, its transactions, and the same repair as for Python, live, in hindsight and in a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.contracts.tools import ToolContract
from cleaner_rl.purify import OnUnrepaired, PurifyConfig
from cleaner_rl.replay import ReplaySettings
from cleaner_rl.replay.replayer import Replayer
from cleaner_rl.rollout import ChatRenderer, Purifier, TokenModel, ToolEnv, rollout, tool_env_of
from cleaner_rl.rollout.sql import SqlTool
from cleaner_rl.tasks import load_prompt
from cleaner_rl.tools import PluginError, Status, ToolCall, ToolResult, ToolSet, ToolSpec, call_format, feedback
from cleaner_rl.trajectory import Key, RepairKind, StopReason, TokenSpan, Trajectory
from cleaner_rl.trajectory.store import ParquetWriter, read
from tests.nodes import asynchronous
from tests.rollout.chats import tokenizer
from tests.rollout.scripted import KEY, SEEDS, TASK, ScriptedEngine

SETUP = """
CREATE TABLE sales (item VARCHAR, count INTEGER, price DECIMAL(5, 2));
INSERT INTO sales VALUES ('pen', 3, 1.5), ('ink', 2, NULL), ('cap', 9, 4.25)
"""
SLOW = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000) b"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(file) as connection:
        connection.execute(SETUP)
    return file


def call(query: str) -> ToolCall:
    return ToolSet(load_prompt("sql").tool).read("sql", {"query": query}, 0, 0)


async def asked(tool: ToolEnv, *queries: str) -> list[ToolResult]:
    async with tool.open(Key()) as tool_session:
        return await tool_session.run([call(query) for query in queries])


class TestReading(ToolContract):
    works, fails = {"query": "SELECT item FROM sales ORDER BY item"}, {"query": "SELECT thing FROM sales"}
    writes, reads = {"query": "SELECT 1"}, {"query": "SELECT count(*) FROM sales"}
    slow = {"query": SLOW}  # noqa: RUF012

    def make(self) -> ToolEnv:
        return SqlTool(setup=SETUP)

    def spec(self) -> ToolSpec:
        return load_prompt("sql").tool


class TestWriting(TestReading):
    writes, fails = (
        {"query": "INSERT INTO sales VALUES ('mug', 1, 2)"},
        {"query": "INSERT INTO sales VALUES (1, 'x', 2)"},
    )

    def make(self) -> ToolEnv:
        return SqlTool(setup=SETUP, writable=True)


@asynchronous
async def test_a_query_gives_a_table(shop: Path) -> None:
    (result,) = await asked(SqlTool(str(shop)), "SELECT item, price, price > 2 AS dear FROM sales ORDER BY item")
    assert (
        result.observed
        == ToolResult(
            Status.OK, "item | price | dear\ncap | 4.25 | true\nink | NULL | NULL\npen | 1.50 | false\n(3 rows)"
        ).observed
    )


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("SELEC 1", Status.ERROR, 'ParserException: syntax error at or near "SELEC"'),
        ("SELECT thing FROM sales", Status.ERROR, 'BinderException: Referenced column "thing" not found'),
        ("SELECT 1 FROM sails", Status.ERROR, "CatalogException: Table with name sails does not exist!"),
        ("SELECT item::INT FROM sales", Status.ERROR, "ConversionException: Could not convert string 'pen' to INT32"),
        ("SELECT item + count FROM sales", Status.ERROR, "BinderException: No function matches"),
        ("-- nothing", Status.ERROR, "There is no statement in the query."),
        (SLOW, Status.TIMEOUT, "The query was stopped after 0.5 s."),
        ("SELECT * FROM range(6)", Status.OUTPUT_LIMIT, "range\n0\n1\n2\n3\n4\n(5 rows)\nThere are more than 5 rows"),
        ("SELECT list(range) FROM range(100000000)", Status.MEMORY, "The query needs more than 64 MB of memory."),
        ("DROP TABLE sales", Status.REFUSED, "DROP is not allowed here; allowed: SELECT."),
        ("COMMIT", Status.REFUSED, "TRANSACTION is not allowed here"),
        ("SET threads = 8", Status.REFUSED, "SET is not allowed here"),
        ("SELECT * FROM read_csv('/etc/passwd')", Status.REFUSED, "can't reach files, the network"),
        ("SELECT * FROM shop", Status.ERROR, "CatalogException"),
    ],
)
@asynchronous
async def test_each_failure_has_its_status_and_its_words(query: str, status: Status, words: str, shop: Path) -> None:
    tool = SqlTool(str(shop), seconds=0.5 if query == SLOW else 60, rows=5, memory_mb=64)
    (result,) = await asked(tool, query)
    assert result.status is status, feedback(result)
    assert words in feedback(result)


@asynchronous
async def test_a_failure_knows_its_line() -> None:
    (result,) = await asked(SqlTool(setup=SETUP), "SELECT item,\n  thing\nFROM sales")
    assert result.exception is not None
    assert (result.exception.type, result.exception.line) == ("BinderException", 2)


@asynchronous
async def test_a_python_variable_is_no_table() -> None:
    sails = pa.table({"secret": [1]})  # noqa: F841 - DuckDB looks for names in the frames around it
    (result,) = await asked(SqlTool(setup=SETUP), "SELECT * FROM sails")
    assert result.exception is not None
    assert result.exception.type == "CatalogException"


@asynchronous
async def test_what_worked_before_a_failure_in_one_turn_stays_until_the_turn_is_rolled_back(shop: Path) -> None:
    tool = SqlTool(str(shop), writable=True)
    async with tool.open(Key()) as tool_session:
        turn = ["CREATE TABLE more AS SELECT 1 AS a", "INSERT INTO more VALUES ('x')", "SELECT count(*) FROM more"]
        created, failed, counted = await tool_session.run([call(query) for query in turn])
        assert (created.status, failed.status) == (Status.OK, Status.ERROR)
        assert counted.output.splitlines()[1] == "1"
        await tool_session.rollback()
        await tool_session.rollback()
        (gone,) = await tool_session.run([call("SELECT * FROM more")])
        assert gone.failed
    with duckdb.connect(shop, read_only=True) as connection:
        assert connection.execute("SHOW TABLES").fetchall() == [("sales",)], "the file itself is never written to"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "`database"),
        ({"database": "gone.duckdb"}, "gone.duckdb"),
        ({"setup": "CREATE TABEL x"}, "ParserException"),
        ({"database": __file__}, "database"),
    ],
)
def test_a_wrong_setting_is_told_before_the_run(options: dict[str, str], told: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
    file.write_text(f'base = "sql"\n[tool.options]\n{lines}')
    sandbox: Any = None
    with pytest.raises(PluginError, match=told):
        tool_env_of(load_prompt(file), sandbox)


# The same SAAR as for Python.

WRONG, RIGHT = "SELECT sum(amount) FROM sales", "SELECT sum(count) FROM sales"
MISSPELT = RIGHT.replace("count", "cuont")


def turn(query: str, said: str = "Let me ask.\n") -> str:
    return f"{said}<tool_call>\n{json.dumps({'name': 'sql', 'arguments': {'query': query}})}\n</tool_call>"


def prompt_file(folder: Path, shop: Path, **options: object) -> Path:
    file = folder / "shop.toml"
    more = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
    file.write_text(f'base = "sql"\n[tool.options]\ndatabase = "{shop}"\n{more}')
    return file


async def rolled(prompt_path: Path, replies: list[str], purifier: Purifier | None) -> Trajectory[TokenSpan]:
    prompt = load_prompt(prompt_path)
    chat = ChatRenderer(tokenizer("qwen3"), ToolSet(prompt.tool))
    model = TokenModel(ScriptedEngine([*replies, "It is 14."]), chat, call_format("hermes"), window=20_000)
    sandbox: Any = None
    tool_env = tool_env_of(prompt, sandbox)
    return await rollout(TASK, KEY, prompt=prompt, model=model, tool_env=tool_env, seeds=SEEDS, purifier=purifier)


@asynchronous
async def test_a_wrong_query_is_repaired_live(shop: Path, tmp_path: Path) -> None:
    trajectory = await rolled(
        prompt_file(tmp_path, shop), [turn(WRONG), turn(RIGHT, "The column is count.\n")], Purifier()
    )
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert [each.failed for each in trajectory.turns] == [False, False]
    first = trajectory.turns[0]
    assert first.edit is not None
    assert first.edit.kind is RepairKind.GRAFT
    assert first.calls[0].code == RIGHT
    assert first.reasoning.text == "Let me ask.\n"
    assert first.results[0].output == "sum(count)\n14\n(1 row)"
    failed, _ = first.edit.original
    assert failed.results[0].exception is not None
    assert failed.results[0].exception.type == "BinderException"


@asynchronous
async def test_attempts_run_from_before_the_failure_and_leave_nothing(shop: Path, tmp_path: Path) -> None:
    """Each attempt inserts a row and then fails: nothing of them is there when the right one runs."""
    prompt = prompt_file(tmp_path, shop, writable=True)
    broken = turn("INSERT INTO sales VALUES ('mug', 1, 1); SELECT thing FROM sales")
    right = turn("INSERT INTO sales VALUES ('mug', 1, 1); SELECT sum(count) FROM sales")
    trajectory = await rolled(prompt, [turn("SELECT 1"), broken, broken, right, turn(RIGHT)], Purifier())
    assert trajectory.turns[1].results[0].output == "1 row changed.\nsum(count)\n15\n(1 row)"
    assert trajectory.turns[2].results[0].output == "sum(count)\n15\n(1 row)", "the next turn sees it once"
    config = PurifyConfig(attempts=2, on_unrepaired=OnUnrepaired.KEEP_ATTEMPTS)
    trajectory = await rolled(prompt, [broken, broken, broken, turn(RIGHT)], Purifier(config=config))
    assert trajectory.turns[-2].results[0].output == "sum(count)\n14\n(1 row)", "what never worked was never there"


def test_it_is_repaired_offline_in_a_store_and_replayed(shop: Path, tmp_path: Path) -> None:
    @asynchronous
    async def recorded() -> None:
        trajectory = await rolled(prompt_file(tmp_path, shop), [turn(MISSPELT), turn(RIGHT)], None)
        with ParquetWriter(tmp_path / "store") as writer:
            writer.write(trajectory)

    recorded()
    ran = CliRunner().invoke(main, ["purify", str(tmp_path / "store"), "--out", str(tmp_path / "clean"), "--json"])
    assert ran.exit_code == 0, ran.output
    (clean,) = read(tmp_path / "clean" / "store")
    assert [each.failed for each in clean.turns] == [False, False]
    assert clean.turns[0].calls[0].code == RIGHT
    with Replayer(ReplaySettings()) as replayer:
        assert [found.verdict for found in replayer.replay_all([clean])] == ["same"]
        with duckdb.connect(shop) as connection:
            connection.execute("DELETE FROM sales WHERE item = 'pen'")
        assert [found.verdict for found in replayer.replay_all([clean])] == ["different"], (
            "the database was asked again"
        )


def test_it_is_repaired_offline_in_somebody_s_log(tmp_path: Path) -> None:
    def said(number: int, query: str, result: str, failed: bool) -> list[dict[str, Any]]:
        function = {"name": "run_sql", "arguments": json.dumps({"query": query})}
        made = [{"id": f"c{number}", "type": "function", "function": function}]
        answer = {"role": "tool", "tool_call_id": f"c{number}", "content": result, "is_error": failed}
        return [{"role": "assistant", "content": "I ask.", "tool_calls": made}, answer]

    turns = [
        *said(1, MISSPELT, 'Binder Error: Referenced column "cuont" not found in FROM clause!', True),
        *said(2, RIGHT, "14", False),
        {"role": "assistant", "content": "14"},
    ]
    record = {"messages": [{"role": "user", "content": "How many?"}, *turns]}
    (tmp_path / "log.jsonl").write_text(json.dumps(record) + "\n")
    out = tmp_path / "clean"
    ran = CliRunner().invoke(main, ["purify", str(tmp_path / "log.jsonl"), "--out", str(out), "--same", "--json"])
    assert ran.exit_code == 0, ran.output
    (line,) = (out / "same" / "log.jsonl").read_text().splitlines()
    messages = json.loads(line)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert json.loads(messages[1]["tool_calls"][0]["function"]["arguments"]) == {"query": RIGHT}
