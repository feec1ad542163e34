"""A taskset of verifiers: sums, a harness that runs Python in the rollout's own runtime, and our environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import verifiers.v1 as vf
from openai import AsyncOpenAI

from cleaner_rl.train.verifiers import CleanerEnv

__all__ = ["CleanerEnv", "PythonHarness", "SumsTaskset"]

TOOL = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Runs a program and returns what it prints.",
        "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    },
}


class SumData(vf.TaskData):  # type: ignore[misc]
    answer: str


class SumTask(vf.Task[SumData]):  # type: ignore[misc]
    @vf.reward  # type: ignore[untyped-decorator]
    async def right(self, trace: Any) -> float:
        return float(trace.last_reply.endswith(self.data.answer))


class SumsTaskset(vf.Taskset[SumTask]):  # type: ignore[misc]
    def load(self) -> Iterable[Any]:
        for number in range(2):
            yield SumTask(SumData(prompt=f"What is {number} + 42?", answer=str(number + 42)), self.config.task)


class PythonHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """A chat loop in this process: a harness of verifiers may be one. Its programs run in the rollout's runtime."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> Any:
        messages: list[Any] = [{"role": "user", "content": data.prompt}]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            for _ in range(6):
                answer = await client.chat.completions.create(model=ctx.model, messages=messages, tools=[TOOL])
                reply = answer.choices[0].message
                messages.append(reply.model_dump(exclude_none=True))
                for call in reply.tool_calls or ():
                    code = json.loads(call.function.arguments)["code"]
                    ran = await runtime.run([sys.executable, "-c", code], {})
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": ran.stdout + ran.stderr})
                if not reply.tool_calls:
                    break
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
