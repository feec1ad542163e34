"""Our policy over verl's client; a stand-in plays the client, the router is ours."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cleaner_rl.rollout import Sampling
from cleaner_rl.train.router import EvenRouter

pytestmark = pytest.mark.timeout(120)  # verl's import takes long


class Client:
    """Asks the router for a server, answers when it may, and gives the server back: the order of verl's own."""

    def __init__(self, router: EvenRouter) -> None:
        self._router, self.answer, self.served = router, asyncio.Event(), asyncio.Event()

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        server, _ = await self._router.acquire_server(request_id, prompt_ids)
        try:
            self.served.set()
            await self.answer.wait()
            return SimpleNamespace(token_ids=[1], log_probs=[0.0], stop_reason="completed", extra_fields={})
        finally:
            self._router.release_server(server, request_id)


def test_a_request_that_is_cancelled_while_it_waits_for_a_server_gives_its_room_back() -> None:
    from cleaner_rl.train.policy import VerlPolicy

    async def ask(policy: VerlPolicy, request: str) -> None:
        prompt = np.arange(60, dtype=np.int32)
        await policy.sample(prompt, max_tokens=8, seed=1, sampling=Sampling(), stop_ids=(1,), request=request)

    async def check() -> None:
        client = Client(EvenRouter({"a": object()}, {"longest": 100, "room": 100}))
        policy = VerlPolicy(client, "vllm")
        first, waiting = asyncio.create_task(ask(policy, "first")), asyncio.create_task(ask(policy, "waiting"))
        await client.served.wait()
        waiting.cancel()
        client.answer.set()
        await first
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(ask(policy, "third"), 10)  # there is room for one at a time

    asyncio.run(check())
