"""Tasks for tests, and an executor that really runs programs."""

from __future__ import annotations

import asyncio
import os
import sys

from cleaner_rl.tasks import Case, Cases, CodeRun, Message, Task
from cleaner_rl.tools import Status, ToolResult


def task(grader: str = "math", truth: str = "5", name: str = "made/1", question: str = "How many?") -> Task:
    return Task(name, (Message("user", question),), grader, truth)


def code_task(*cases: Case, entry: str | None = None) -> Task:
    return task("code", Cases(cases, entry).dumps())


def fenced(program: str) -> str:
    return f"My solution:\n```python\n{program}\n```\n"


class LocalExecutor:
    """Each run as a process of its own: isolation enough for the programs of these tests. Keeps what it was given."""

    def __init__(self) -> None:
        self.runs: list[CodeRun] = []

    async def __call__(self, run: CodeRun) -> ToolResult:
        self.runs.append(run)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-IS", "-c", run.program, stdin=-1, stdout=-1, stderr=-1, env={"PATH": os.environ["PATH"]}
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(run.stdin.encode()), run.seconds)
        except TimeoutError:
            return ToolResult(Status.TIMEOUT)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return ToolResult(Status.OK if process.returncode == 0 else Status.ERROR, output.decode(errors="replace"))
