"""From what a person names to what a rollout needs: a model behind addresses, with its tokenizer and its window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from cleaner_rl.rollout.balance import Dispatcher, EvenPolicy, EvenScheduler, Replica
from cleaner_rl.rollout.chat import Chat, ChatError
from cleaner_rl.rollout.engines.endpoint import ChatModel
from cleaner_rl.rollout.engines.http import Address
from cleaner_rl.rollout.engines.sglang import SglangPolicy
from cleaner_rl.rollout.engines.vllm import VllmPolicy
from cleaner_rl.rollout.model import Model, TokenModel
from cleaner_rl.rollout.policy import EngineFaultError, Policy, Sampling
from cleaner_rl.tasks import Prompt
from cleaner_rl.tools import call_format

ONE_OF_MANY = 10.0
"""Seconds that a request waits for one replica, where there are others."""
LATECOMERS = 2.0
"""Seconds in which the others may say how long a context they take, once one replica has said so."""
DEFAULT_WINDOW = 32_768
"""Of a chat API, which doesn't say."""


class Engine(StrEnum):
    """What stands behind an address."""

    VLLM = "vllm"
    SGLANG = "sglang"
    CHAT = "chat"
    """Any OpenAI-compatible chat API: text only, for evaluation."""


POLICIES: Mapping[Engine, type[VllmPolicy] | type[SglangPolicy]] = {
    Engine.VLLM: VllmPolicy,
    Engine.SGLANG: SglangPolicy,
}
"""Those that speak in tokens."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A model as a person names it."""

    urls: tuple[str, ...]
    """One for each replica; of a chat API the address before `/chat/completions`, with `/v1` where it has no path."""
    model: str
    """The folder or hub name of its tokenizer; for a chat API the name that the service knows."""
    engine: Engine = Engine.VLLM
    window: int | None = None
    """In tokens; None: what the server says."""
    sampling: Sampling = field(default_factory=Sampling)
    token: str | None = None
    patience: float = 300.0
    """Seconds that a request waits for an engine that is away or busy, before its rollout is a fault."""
    template: Mapping[str, object] = field(default_factory=dict)
    """Options of the chat template, such as `{"enable_thinking": False}`."""


@asynccontextmanager
async def connect(connection: Connection, prompt: Prompt) -> AsyncIterator[Model[Any]]:
    """The model, ready for rollouts under a prompt. Raises `ChatError` or `EngineFaultError` if it can't be."""
    if not connection.urls:
        raise ValueError("a model needs at least one address")
    alone = len(connection.urls) == 1
    urls = map(_chat_api, connection.urls) if connection.engine is Engine.CHAT else connection.urls
    patience = connection.patience if alone else min(ONE_OF_MANY, connection.patience)
    async with AsyncExitStack() as stack:
        addresses = [
            await stack.enter_async_context(Address(url, patience=patience, token=connection.token)) for url in urls
        ]
        if connection.engine is Engine.CHAT:
            if not alone:
                raise ChatError("a chat API is asked at one address; put several replicas of it behind a proxy")
            if prompt.call_format != "hermes":
                raise ChatError(
                    f"a chat API has its own form of calls, and the prompt '{prompt.name}' tells the model of another; "
                    "take a prompt with call_format hermes, such as stateless"
                )
            yield ChatModel(
                addresses[0],
                connection.model,
                prompt.tools,
                window=connection.window or DEFAULT_WINDOW,
                sampling=connection.sampling,
            )
            return
        make = POLICIES[connection.engine]
        policies = [make(address) for address in addresses]
        window = connection.window or await _window(connection)
        policy: Policy = policies[0]
        if not alone:
            replicas = {
                url: Replica(one, await stack.enter_async_context(Address(url, patience=0, token=connection.token)))
                for url, one in zip(connection.urls, policies, strict=True)
            }
            scheduler = EvenScheduler(EvenPolicy(longest=window))
            policy = await stack.enter_async_context(Dispatcher(replicas, scheduler, patience=connection.patience))
        yield TokenModel(
            policy,
            Chat(
                tokenizer_of(connection.model),
                prompt.tools,
                in_template=prompt.in_template,
                options=connection.template,
            ),
            call_format(prompt.call_format),
            window=window,
            sampling=connection.sampling,
        )


def _chat_api(url: str) -> str:
    """Where a chat API is: below `/v1`, as almost all are, unless the address names another place."""
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1"


async def _window(connection: Connection) -> int:
    """The shortest that the replicas name. One that is away is not waited for, and is taken to be like the others."""

    async def ask(url: str) -> int:
        async with Address(url, patience=connection.patience, token=connection.token) as address:
            return await POLICIES[connection.engine](address).window()

    asked = [asyncio.create_task(ask(url)) for url in connection.urls]
    try:
        for first in asyncio.as_completed(asked):
            with suppress(EngineFaultError):
                await first
                await asyncio.wait(asked, timeout=LATECOMERS)
                break
        named = [each.result() for each in asked if each.done() and each.exception() is None]
        return min(named) if named else asked[0].result()  # whose fault says why
    finally:
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


def tokenizer_of(model: str) -> Any:
    """The tokenizer of a model, from a folder or the hub."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ChatError(
            f"there is no tokenizer at '{model}': {error}; name the model's folder, or its name on the hub"
        ) from error
