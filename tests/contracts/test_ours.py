"""What comes with the package passes the contracts that we ask others to pass."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import pytest

from cleaner_rl.contracts.call_formats import CallFormatContract
from cleaner_rl.contracts.graders import GraderContract
from cleaner_rl.contracts.log_adapters import OTHERS, LogAdapterContract
from cleaner_rl.contracts.tools import ToolContract
from cleaner_rl.contracts.trainers import Rollout, Trained, TrainerContract
from cleaner_rl.logs import LogFormat, log_format
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
