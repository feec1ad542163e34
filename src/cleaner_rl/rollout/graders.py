"""The graders that come with the package, with the sandbox behind the one that runs programs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cleaner_rl.rollout.toolbox import Sandbox
from cleaner_rl.sandbox.limits import Limits
from cleaner_rl.sandbox.requests import RunRequest
from cleaner_rl.tasks import ChoiceGrader, CodeGrader, CodeRun, Grader, MathGrader, MathPool
from cleaner_rl.tools import ToolResult


def standard_graders(sandbox: Sandbox, pool: MathPool) -> dict[str, Grader]:
    """By the names that tasks call them."""

    async def execute(runs: Sequence[CodeRun]) -> list[ToolResult]:
        requests = [RunRequest(run.program, stdin=run.stdin, limits=Limits(cpu_seconds=run.seconds)) for run in runs]
        return [outcome.result for outcome in await asyncio.gather(*map(sandbox.run, requests))]

    return {"math": MathGrader(pool), "choice": ChoiceGrader(), "code": CodeGrader(execute)}
