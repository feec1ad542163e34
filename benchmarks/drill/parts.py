"""Loaded by verl's processes (`model.external_lib`): while the file `$DRILL` is there, one request in thirty fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

FILE = "DRILL"
EVERY = 30


def _failing(generate: Callable[..., Any]) -> Callable[..., Any]:
    numbers = count(1)

    async def failing(self: Any, *arguments: Any, **options: Any) -> Any:
        if os.path.exists(os.environ[FILE]) and next(numbers) % EVERY == 0:  # noqa: ASYNC240 - a glance
            raise RuntimeError("this request fails, as the drill has it")
        return await generate(self, *arguments, **options)

    return failing


_server: Any = sys.modules.get("verl.workers.rollout.vllm_rollout.vllm_async_server")
if _server is not None:
    _server.vLLMHttpServer.generate = _failing(_server.vLLMHttpServer.generate)
