"""Loaded by verl's processes (`model.external_lib`): while the file `$DRILL` is there, one request in thirty fails.

It is the engine that fails: of verl's server, an actor of Ray's, the methods were wrapped before this is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

FILE = "DRILL"
EVERY = 30


def _failing(generate: Callable[..., Any]) -> Callable[..., Any]:
    numbers = count(1)

    async def failing(self: Any, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        if os.path.exists(os.environ[FILE]) and next(numbers) % EVERY == 0:  # noqa: ASYNC240 - a glance
            raise RuntimeError("this request fails, as the drill has it")
        async for output in generate(self, *arguments, **options):
            yield output

    return failing


_engine: Any = sys.modules.get("vllm.v1.engine.async_llm")
if _engine is not None:
    _engine.AsyncLLM.generate = _failing(_engine.AsyncLLM.generate)
