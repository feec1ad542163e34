"""A stand-in for a vLLM server on the loopback: its token route, with a script in the place of a model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web

from tests.rollout.scripted import logprobs_of

BREAKS = "breaks"
"""A reply that the server answers with an error."""


@dataclass
class ScriptedServer:
    """Plays each rollout by the next of its scripts. A log-prob depends on the token and on all tokens before it."""

    tokenizer: Any
    scripts: Sequence[Sequence[str]]
    scores: bool = True
    """Whether it scores prompts; otherwise it refuses to."""
    url: str = ""
    seen: dict[str, list[list[int]]] = field(default_factory=dict)
    """The ids of each request, prompt and completion, by the rollout's session."""
    scored: int = 0

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids = np.array(body["token_ids"], np.int32)
        shown = None
        if body["sampling_params"].get("prompt_logprobs") is not None:
            if not self.scores:
                return web.json_response({"error": "this server scores nothing"}, status=400)
            self.scored += 1
            rows = logprobs_of(ids[:1], ids[1:]).tolist()
            shown = [None, *({str(each): {"logprob": row}} for row, each in zip(rows, ids[1:].tolist(), strict=True))]
            drawn = np.array([1], np.int32)
        else:
            turns = self.seen.setdefault(request.headers["X-Session-ID"], [])
            reply = self.scripts[list(self.seen).index(request.headers["X-Session-ID"])][len(turns)]
            if reply == BREAKS:
                return web.json_response({"error": "the engine broke"}, status=500)
            end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
            drawn = np.array([*self.tokenizer.encode(reply), end], np.int32)
            turns.append([*ids.tolist(), *drawn.tolist()])
        rows = logprobs_of(ids, drawn).tolist()
        content = [
            {"token": f"token_id:{each}", "logprob": row} for each, row in zip(drawn.tolist(), rows, strict=True)
        ]
        choice = {"token_ids": drawn.tolist(), "finish_reason": "stop", "logprobs": {"content": content}}
        usage = {"prompt_tokens_details": {"cached_tokens": 0}}
        return web.json_response({"choices": [choice], "usage": usage, "prompt_logprobs": shown})


@asynccontextmanager
async def serving(model: str, scripts: Sequence[Sequence[str]], **options: Any) -> AsyncIterator[ScriptedServer]:
    from transformers import AutoTokenizer

    made = ScriptedServer(AutoTokenizer.from_pretrained(model), scripts, **options)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/inference/v1/generate", made.generate)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield made
    finally:
        await runner.cleanup()
