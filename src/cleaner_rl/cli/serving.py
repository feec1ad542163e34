"""What commands that run a model open: the model behind its address, a sandbox, and the graders that tasks need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import click

from cleaner_rl.rollout import (
    Chat,
    EngineFaultError,
    Model,
    Sampling,
    SessionToolbox,
    StatelessToolbox,
    TokenModel,
    Toolbox,
)
from cleaner_rl.rollout.engines import Address, ChatModel, SglangPolicy, VllmPolicy
from cleaner_rl.rollout.toolbox import Sandbox
from cleaner_rl.sandbox import Limits, Node, RunRequest, SessionRequest
from cleaner_rl.sandbox.client import SandboxClient
from cleaner_rl.tasks import ChoiceGrader, CodeGrader, CodeRun, Grader, MathGrader, MathPool, Prompt, Task, ToolKind
from cleaner_rl.tools import ToolResult, ToolSet, call_format

APIS = ("vllm", "sglang", "chat")
FIRST_CONTACT = 10.0
"""Seconds that an engine has for its first answer. Later it may be away for longer: then there is work to lose."""
HOW_TO_SERVE = {
    "vllm": "vllm serve MODEL --enable-prompt-tokens-details",
    "sglang": "python -m sglang.launch_server --model-path MODEL",
}


@asynccontextmanager
async def open_model(
    api: str, url: str, name: str, tokenizer: str, prompt: Prompt, sampling: Sampling, window: int, token: str | None
) -> AsyncIterator[Model[Any]]:
    """The model that is served there. `window`, in tokens, is for a chat address, which doesn't tell.

    Raises `click.ClickException` if nobody answers, or if what answers can't be used like this.
    """
    tools = ToolSet(prompt.tool)
    async with Address(url, token=token) as address:
        if api == "chat":
            if prompt.call_format != "hermes":
                raise click.ClickException(
                    f"a chat address has its own form of calls, and the prompt '{prompt.name}' tells the model of "
                    "another; take stateless or session"
                )
            yield ChatModel(address, name, tools, window=window, sampling=sampling)
            return
        chat = Chat(_tokenizer(tokenizer), tools, in_template=prompt.in_template)
        for note in chat.notes:
            click.echo(f"Note: {note}.", err=True)
        policy = (VllmPolicy if api == "vllm" else SglangPolicy)(address)
        form = call_format(prompt.call_format)
        yield TokenModel(policy, chat, form, window=await _window(api, url, token), sampling=sampling)


async def _window(api: str, url: str, token: str | None) -> int:
    """The longest context that the server takes; it has to be up already."""
    async with Address(url, patience=FIRST_CONTACT, token=token) as address:
        try:
            return await (VllmPolicy if api == "vllm" else SglangPolicy)(address).window()
        except EngineFaultError as error:
            raise click.ClickException(f"{error}; serve the model first: {HOW_TO_SERVE[api]}") from None


@asynccontextmanager
async def open_sandbox(url: str | None, token: str | None = None) -> AsyncIterator[Sandbox]:
    """A sandbox that is served there, or one of our own."""
    if url is not None:
        async with SandboxClient(url, token=token) as client:
            yield client
    else:
        async with Node() as node:
            yield node


def toolbox(prompt: Prompt, sandbox: Sandbox, limits: Limits) -> Toolbox:
    """The tool that the prompt tells of."""
    if prompt.tool_kind is ToolKind.SESSION:
        return SessionToolbox(sandbox, SessionRequest(limits=limits))
    return StatelessToolbox(sandbox, limits)


@contextmanager
def graders(tasks: Iterable[Task], sandbox: Sandbox) -> Iterator[dict[str, Grader]]:
    """Our graders, as far as these tasks need them: algebra is heavy to load."""
    needed = {task.grader for task in tasks}
    made: dict[str, Grader] = {"choice": ChoiceGrader(), "code": CodeGrader(_executor(sandbox))}
    if unknown := needed - {"math", *made}:
        raise click.ClickException(f"there is no grader called {', '.join(sorted(unknown))}; ours: choice, code, math")
    if "math" not in needed:
        yield made
        return
    with MathPool() as pool:
        yield {**made, "math": MathGrader(pool)}


def _executor(sandbox: Sandbox) -> Any:
    async def execute(runs: Sequence[CodeRun]) -> list[ToolResult]:
        async def one(run: CodeRun) -> ToolResult:
            request = RunRequest(run.program, run.stdin, Limits(cpu_seconds=run.seconds))
            return (await sandbox.run(request)).result

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(run)) for run in runs]
        return [task.result() for task in tasks]

    return execute


def _tokenizer(name: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise click.ClickException("tokenizers need transformers: pip install 'cleaner-rl[rollout]'") from error
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"there is no tokenizer at '{name}'; give its folder with --tokenizer ({error})"
        ) from None
