"""What comes with the package passes the contracts that we ask others to pass."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import pytest

from cleaner_rl.contracts.call_formats import CallFormatContract
from cleaner_rl.contracts.graders import GraderContract
from cleaner_rl.contracts.log_adapters import OTHERS, LogAdapterContract
from cleaner_rl.contracts.repair_rules import Case as RepairCase
from cleaner_rl.contracts.repair_rules import RepairRulesContract
from cleaner_rl.contracts.tools import ToolContract
from cleaner_rl.contracts.trainers import Rollout, Trained, TrainerContract
from cleaner_rl.logs import LogFormat, log_format
from cleaner_rl.logs.warrant import REPAIR_RULES, RepairRules, Unwarranted
from cleaner_rl.rollout import SessionToolEnv, StatelessToolEnv, ToolEnv
from cleaner_rl.tasks import Case, ChoiceGrader, CodeGrader, Grader, MathGrader, MathPool, Task
from cleaner_rl.tools import CallFormat, ToolSpec, call_format, python_tool
from cleaner_rl.train.rows import RowConfig, TrainRow, group_rows
from cleaner_sandbox import SessionRequest
from tests.logs.agents import AGENTS
from tests.logs.cases import CASES
from tests.logs.rendering import RENDERED
from tests.rollout.scripted import node
from tests.tasks.builders import LocalExecutor, code_task, fenced, task


class TestHermes(CallFormatContract):
    def make(self) -> CallFormat:
        return call_format("hermes")

    def write(self, tool: str, code: str) -> str:
        return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': {'code': code}})}\n</tool_call>"


class TestXml(CallFormatContract):
    def make(self) -> CallFormat:
        return call_format("xml")

    def write(self, tool: str, code: str) -> str:
        parameter = f"<parameter=code>\n{code}\n</parameter>"
        return f"<tool_call>\n<function={tool}>\n{parameter}\n</function>\n</tool_call>"


class TestFenced(CallFormatContract):
    names_tools = False

    def make(self) -> CallFormat:
        return call_format("fenced")

    def write(self, tool: str, code: str) -> str:
        return f"```python\n{code}\n```"


@pytest.fixture(scope="module")
def pool() -> Iterator[MathPool]:
    with MathPool(workers=1) as made:
        yield made


class TestMath(GraderContract):
    @pytest.fixture(autouse=True)
    def _pooled(self, pool: MathPool) -> None:
        self.pool = pool

    def make(self) -> Grader:
        return MathGrader(self.pool)

    def right(self) -> Sequence[tuple[Task, str]]:
        return [(task(truth="5"), "\\boxed{5}"), (task(truth="\\frac{1}{2}"), "\\boxed{0.5}")]

    def wrong(self) -> Sequence[tuple[Task, str]]:
        return [(task(truth="5"), "\\boxed{6}"), (task(truth="5"), "It is 5, I think.")]

    def unreadable(self) -> Sequence[Task]:
        return [task(truth=" ")]


class TestChoice(GraderContract):
    def make(self) -> Grader:
        return ChoiceGrader()

    def right(self) -> Sequence[tuple[Task, str]]:
        return [(task("choice", "C"), "\\boxed{C}")]

    def wrong(self) -> Sequence[tuple[Task, str]]:
        return [(task("choice", "C"), "\\boxed{B}")]

    def unreadable(self) -> Sequence[Task]:
        return [task("choice", "Z")]


class TestPrograms(GraderContract):
    def make(self) -> Grader:
        return CodeGrader(LocalExecutor())

    def right(self) -> Sequence[tuple[Task, str]]:
        return [(code_task(Case("3\n", "6\n")), fenced("print(int(input()) * 2)"))]

    def wrong(self) -> Sequence[tuple[Task, str]]:
        return [(code_task(Case("3\n", "6\n")), fenced("print(int(input()) + 2)"))]

    def unreadable(self) -> Sequence[Task]:
        return [task("code", "no JSON"), code_task()]


@pytest.mark.parametrize("variant", RENDERED | AGENTS)
class TestLogs(LogAdapterContract):
    @pytest.fixture(autouse=True)
    def _named(self, variant: str) -> None:
        self.variant = variant

    def make(self) -> LogFormat:
        return log_format(self.variant.partition(",")[0])

    def records(self) -> Sequence[dict[str, Any]]:
        return [(RENDERED | AGENTS)[self.variant](case) for case in CASES[:6]]

    def others(self) -> Sequence[Any]:
        return [other for other in OTHERS if not self.make().detects(other) or self.make().name not in NAMED]


NAMED = ("openai", "verl", "verifiers", "atif", "sharegpt", "responses", "codex", "claude-code")
"""Formats of which the contract itself has a record."""


class TestStateless(ToolContract):
    works, fails = {"code": "print(6 * 7)"}, {"code": "print(six)"}
    writes, reads = {"code": "x = 1"}, {"code": "print('x' in globals())"}
    slow = MappingProxyType({"code": "import time\ntime.sleep(60)"})

    def spec(self) -> ToolSpec:
        return python_tool()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ToolEnv]:
        async with node() as sandbox:
            yield StatelessToolEnv(sandbox)


class TestSession(TestStateless):
    @asynccontextmanager
    async def running(self) -> AsyncIterator[ToolEnv]:
        async with node() as sandbox:
            yield SessionToolEnv(sandbox, SessionRequest(environment="bare"))


class TestRows(TrainerContract):
    """The rows themselves, as a trainer that takes them as they are would see them."""

    def train(self, groups: Sequence[Sequence[Rollout]]) -> Sequence[Sequence[Trained]]:
        return [[trained(row) for row in group_rows(group, RowConfig()).rows] for group in groups]


def trained(row: TrainRow) -> Trained:
    assert row.advantage is not None
    ids = [*row.prompt_ids.tolist(), *row.response_ids.tolist()]
    return Trained(ids, row.loss_mask.astype(int).tolist(), row.logprobs.tolist(), row.advantage)


def _cases(tool: str, argument: str, *cases: tuple[str, str, str]) -> list[RepairCase]:
    return [RepairCase(tool, {argument: failed}, told, {argument: right}) for failed, told, right in cases]


class TestPythonRules(RepairRulesContract):
    by_name = False

    def make(self) -> RepairRules:
        return REPAIR_RULES.load("python")

    def repairs(self) -> Sequence[RepairCase]:
        return _cases(
            "python",
            "code",
            ("print(sqrt(2))", "NameError: name 'sqrt' is not defined", "from math import sqrt\nprint(sqrt(2))"),
            ("d = {'tea': 1}\nprint(d['Tea'])", "KeyError: 'Tea'", "d = {'tea': 1}\nprint(d['tea'])"),
            ("print(sum([3, 4])", "SyntaxError: '(' was never closed", "print(sum([3, 4]))"),
        )

    def kept(self) -> Mapping[Unwarranted, Sequence[RepairCase]]:
        no_name = "NameError: name 'hit' is not defined"
        return {
            Unwarranted.FINDING: _cases("python", "code", ("assert f(2) == 4", "AssertionError", "assert f(2) == 5")),
            Unwarranted.OTHER_PURPOSE: _cases("python", "code", ("print(a[hit])", no_name, "print(b['city'], 3)")),
            Unwarranted.CHANGED: _cases("python", "code", ("hits += 1\nprint(hit)", no_name, "hits += 1\nprint(hits)")),
            Unwarranted.BYPASS: _cases(
                "python",
                "code",
                ("x = '4 €'\nprint(int(x))", "ValueError: invalid literal", "x = '4 €'\nprint(int(x) if x else 0)"),
            ),
            Unwarranted.DENIED: _cases(
                "python", "code", ("open('/a', 'w')", "PermissionError: '/a'", "open('/b', 'w')")
            ),
        }


class TestShellRules(RepairRulesContract):
    by_name = False

    def make(self) -> RepairRules:
        return REPAIR_RULES.load("shell")

    def repairs(self) -> Sequence[RepairCase]:
        return _cases(
            "bash",
            "command",
            ("git lgo -3", "git: 'lgo' is not a git command. See 'git --help'.", "git log -3"),
            ("pytest --maxfial=1", "error: unrecognized arguments: --maxfial=1", "pytest --maxfail=1"),
            ("docker ls", "unknown command: docker ls. Did you mean: ps?", "docker ps"),
        )

    def kept(self) -> Mapping[Unwarranted, Sequence[RepairCase]]:
        not_there = "ls: cannot access 'user.csv': No such file or directory"
        return {
            Unwarranted.FINDING: _cases("bash", "command", ("ls user.csv", not_there, "ls users.csv")),
            Unwarranted.OTHER_PURPOSE: _cases("bash", "command", ("pytest -q", "1 failed", "pytest -q tests/b.py")),
            Unwarranted.CHANGED: _cases(
                "bash", "command", ("echo x >> l && tial l", "bash: tial: command not found", "echo x >> l && tail l")
            ),
            Unwarranted.BYPASS: _cases("bash", "command", ("pytest -q", "1 failed, 3 passed", "pytest -q || true")),
        }


class TestSqlRules(RepairRulesContract):
    by_name = False

    def make(self) -> RepairRules:
        return REPAIR_RULES.load("sql")

    def repairs(self) -> Sequence[RepairCase]:
        return _cases(
            "sql",
            "query",
            ("SELECT avg(aeg) FROM c", "no such column: aeg", "SELECT avg(age) FROM c"),
            ("SELECT TOP 3 a FROM t", 'syntax error at or near "3"', "SELECT a FROM t LIMIT 3"),
        )

    def kept(self) -> Mapping[Unwarranted, Sequence[RepairCase]]:
        insert, twice = "INSERT INTO t VALUES (1)", "UNIQUE constraint failed"
        return {
            Unwarranted.FINDING: _cases("sql", "query", (insert, twice, "INSERT INTO t VALUES (2)")),
            Unwarranted.OTHER_PURPOSE: _cases(
                "sql", "query", ("SELECT a FROM t", "no such table: t", "SELECT a FROM u")
            ),
            Unwarranted.CHANGED: _cases(
                "sql", "query", ("UPDATE t SET b = 1; UPDATE t SET bb = 2", "no such column: bb", "UPDATE t SET b = 2")
            ),
            Unwarranted.BYPASS: _cases("sql", "query", (insert, twice, "INSERT OR REPLACE INTO t VALUES (1)")),
        }


def _edit(told: str, old: str, right: str, path: str = "/a.py", other: str = "/a.py", **more: object) -> RepairCase:
    failed = {"command": "str_replace", "path": path, "old_str": old, "new_str": f"{old} + 1"}
    return RepairCase(
        "edit", failed, told, {**failed, "path": other, "old_str": right, "new_str": f"{right} + 1", **more}
    )


class TestEditRules(RepairRulesContract):
    by_name = False

    def make(self) -> RepairRules:
        return REPAIR_RULES.load("edit")

    def repairs(self) -> Sequence[RepairCase]:
        not_there = "No replacement was performed, old_str did not appear verbatim in the file."
        no_path = "The path b.py is not an absolute path"
        return [_edit(not_there, "total=n", "total = n"), _edit(no_path, "k = 2", "k = 2", "b.py", "/b.py")]

    def kept(self) -> Mapping[Unwarranted, Sequence[RepairCase]]:
        return {
            Unwarranted.FINDING: [_edit("File has been modified since read", "a", "a ")],
            Unwarranted.OTHER_PURPOSE: [_edit("No match", "a = 1", "b = 2")],
            Unwarranted.BYPASS: [_edit("Found 3 matches", "a", "a", replace_all=True)],
        }


class TestOtherRules(RepairRulesContract):
    by_name = False

    def make(self) -> RepairRules:
        return REPAIR_RULES.load("other")

    def repairs(self) -> Sequence[RepairCase]:
        asked, dated = "issue_number is required", "start: expected ISO 8601"
        return [
            RepairCase("update_thing", {"number": 4}, asked, {"issue_number": 4}),
            RepairCase("update_thing", {"start": "2026-05-01 10:00"}, dated, {"start": "2026-05-01T10:00:00Z"}),
        ]

    def kept(self) -> Mapping[Unwarranted, Sequence[RepairCase]]:
        most, confirm = "n must be at most 1000", "invalid request: must be confirmed"
        return {
            Unwarranted.FINDING: [RepairCase("update_thing", {"n": 5000}, most, {"n": 1000})],
            Unwarranted.OTHER_PURPOSE: [RepairCase("update_thing", {"n": 1}, "n must be a text", {"n": "2"})],
            Unwarranted.CHANGED: [RepairCase("update_thing", {"n": 1}, "it broke", {"n": "1"})],
            Unwarranted.BYPASS: [RepairCase("update_thing", {"n": 1}, confirm, {"n": 1, "confirm": True})],
        }
