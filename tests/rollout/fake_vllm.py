"""A stand-in for a vLLM server, as a process: `python -m tests.rollout.fake_vllm TOKENIZER PORT LOG`.

It speaks vLLM's token route and plays a model that often fails and usually mends it: what it writes depends on the
prompt and the seed alone. Every request is a line of its log, written when it comes and when it is answered.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from tests.rollout.scripted import call, logprobs_of

WINDOW = 8_192
RIGHT, WRONG = "x = 6 * 7\nprint(x)", "x = 6 * 7\nprint(y)"


def written(prompt: str, seed: int) -> str:
    """A call that fails at first in half of the cases and is mended in nine of ten tries, then an answer."""
    last = prompt.rsplit("<|im_start|>", 2)[-2]
    if "42" in last and "tool_response" in last:
        return "The answer: C"
    return call(RIGHT if random.Random(seed).random() < (0.9 if "NameError" in last else 0.5) else WRONG)


class Server:
    def __init__(self, tokenizer: Any, log: Path, seconds: float) -> None:
        self._tokenizer, self._seconds = tokenizer, seconds
        self._log = log.open("a")

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids = np.array(body["token_ids"], np.int32)
        settings = body["sampling_params"]
        print(json.dumps({"asked": body["request_id"]}), file=self._log, flush=True)
        await asyncio.sleep(self._seconds)
        shown = None
        if settings.get("prompt_logprobs") is not None:
            rows = logprobs_of(ids[:1], ids[1:]).tolist()
            shown = [None, *({str(each): {"logprob": row}} for row, each in zip(rows, ids[1:].tolist(), strict=True))]
            drawn = np.array([1], np.int32)
        else:
            text = written(self._tokenizer.decode(ids), zlib.crc32(ids.tobytes()) ^ settings["seed"])
            drawn = np.array([*self._tokenizer.encode(text), settings["stop_token_ids"][0]], np.int32)
        rows = logprobs_of(ids, drawn).tolist()
        choice = {
            "token_ids": drawn.tolist(),
            "finish_reason": "stop",
            "logprobs": {"content": [{"logprob": row} for row in rows]},
        }
        usage = {"prompt_tokens_details": {"cached_tokens": 0}}
        print(json.dumps({"answered": body["request_id"]}), file=self._log, flush=True)
        return web.json_response({"choices": [choice], "usage": usage, "prompt_logprobs": shown})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "fake", "max_model_len": WINDOW}]})


def main(folder: str, port: str, log: str, seconds: str = "0.02") -> None:
    from transformers import AutoTokenizer

    server = Server(AutoTokenizer.from_pretrained(folder), Path(log), float(seconds))
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/inference/v1/generate", server.generate)
    app.router.add_get("/v1/models", server.models)
    app.router.add_get("/health", server.models)
    web.run_app(app, host="127.0.0.1", port=int(port), print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
