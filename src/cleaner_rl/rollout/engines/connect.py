"""From what a person names to what a rollout needs: a model behind addresses, with its tokenizer and its window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from cleaner_rl.rollout.balance import Dispatcher, EvenConfig, EvenScheduler, Replica
from cleaner_rl.rollout.engine import Connection, Engine, EngineFaultError, EngineKind
from cleaner_rl.rollout.engines.endpoint import ChatModel
from cleaner_rl.rollout.engines.http import Address
from cleaner_rl.rollout.engines.sglang import SglangEngine
from cleaner_rl.rollout.engines.vllm import VllmEngine
from cleaner_rl.rollout.model import Model, TokenModel
from cleaner_rl.rollout.templates import ChatError
from cleaner_rl.tasks import Prompt
from cleaner_rl.tools import NO_CALLS

ONE_OF_MANY = 10.0
"""Seconds that a request waits for one replica, where there are others."""
LATECOMERS = 2.0
"""Seconds in which the others may say how long a context they take, once one replica has said so."""
DEFAULT_WINDOW = 32_768
"""Of a chat API, which doesn't say."""


ENGINES: Mapping[EngineKind, type[VllmEngine] | type[SglangEngine]] = {
    EngineKind.VLLM: VllmEngine,
    EngineKind.SGLANG: SglangEngine,
}
"""Those that speak in tokens."""


@asynccontextmanager
async def connect(connection: Connection, prompt: Prompt) -> AsyncIterator[Model[Any]]:
    """Return the model, ready for rollouts with a prompt. Raises `ChatError` or `EngineFaultError` if it isn't.

    Examples:
        >>> import asyncio
        >>> from cleaner_rl.rollout import Connection
        >>> from cleaner_rl.rollout.engines import connect
        >>> from cleaner_rl.tasks import load_prompt
        >>> async def main() -> None:
        ...     served = Connection(("http://127.0.0.1:8000",), "Qwen/Qwen3-4B")
        ...     async with connect(served, load_prompt("stateless")) as model:
        ...         print(model.window)
        >>> asyncio.run(main())  # doctest: +SKIP
    """
    if not connection.urls:
        raise ValueError("a model needs at least one address")
    alone = len(connection.urls) == 1
    urls = map(_chat_api, connection.urls) if connection.engine is EngineKind.CHAT else connection.urls
    patience = connection.patience if alone else min(ONE_OF_MANY, connection.patience)
    async with AsyncExitStack() as stack:
        addresses = [
            await stack.enter_async_context(Address(url, patience=patience, token=connection.token)) for url in urls
        ]
        if connection.engine is EngineKind.CHAT:
            if not alone:
                raise ChatError("a chat API is asked at one address; put several replicas of it behind a proxy")
            if prompt.call_format not in ("hermes", NO_CALLS):
                raise ChatError(
                    f"a chat API has its own form of calls, and the prompt '{prompt.name}' tells the model of another; "
                    "take a prompt with call_format hermes, such as stateless, or one without a tool, such as no-tool"
                )
            yield ChatModel(
                addresses[0],
                connection.model,
                prompt.tools,
                window=connection.window or DEFAULT_WINDOW,
                sampling=connection.sampling,
                template=connection.template,
            )
            return
        make = ENGINES[connection.engine]
        engines = [make(address) for address in addresses]
        window = connection.window or await _window(connection)
        engine: Engine = engines[0]
        if not alone:
            replicas = {
                url: Replica(one, await stack.enter_async_context(Address(url, patience=0, token=connection.token)))
                for url, one in zip(connection.urls, engines, strict=True)
            }
            scheduler = EvenScheduler(EvenConfig(longest=window))
            engine = await stack.enter_async_context(Dispatcher(replicas, scheduler, patience=connection.patience))
        yield TokenModel.for_prompt(
            engine,
            tokenizer_of(connection.model),
            prompt,
            window=window,
            sampling=connection.sampling,
            template=connection.template,
        )


def _chat_api(url: str) -> str:
    """Where a chat API is: below `/v1`, as almost all are, unless the address names another place."""
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1"


async def _window(connection: Connection) -> int:
    """The shortest that the replicas name. One that is away is not waited for, and is taken to be like the others."""

    async def ask(url: str) -> int:
        async with Address(url, patience=connection.patience, token=connection.token) as address:
            return await ENGINES[connection.engine](address).window()

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
    """Load the tokenizer of a model, from a folder or the hub."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ChatError(
            f"there is no tokenizer at '{model}': {error}; name the model's folder, or its name on the hub"
        ) from error
