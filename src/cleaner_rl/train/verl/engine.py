"""Makes verl's rollout servers an engine: it samples ids after a prompt, and scores a suffix after a prefix.

Sampling goes through verl's client like any agent loop's, so routing and weight updates during a request stay verl's.
Each request has its own seed; verl sets none. If a weight update interrupts a request, this module continues it, not
verl's asynchronous client, which would send the same seed again: the continuation would repeat the random numbers of
the beginning.

Scoring is one prefill, repeated if a weight update aborted it. Like sampling it bypasses the asynchronous client, which
drops prompt log-probs from its answers. The prefix may come from the engine's cache, but vLLM has no rows for cached
tokens: its second model runner (GPUs) leaves them out, and its first (CPUs) returns uninitialized memory that often
looks right. So rows are counted from the end, and if the cache reached into the suffix the request is repeated without
the cache.

Limits: a cancelled request continues in the engine until its end, because verl can't end one. SGLang's servers are
called as verl's own code calls them, untested here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from cleaner_rl.rollout import Completion, EngineFaultError, Finish, Sampling
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import Floats, Ids, Scores

ABORTS = 30
"""How often a weight update may abort one scoring request before it counts as a fault."""
ABORTED = ("aborted", "abort")
AGAIN_SECONDS = 1.0
"""Pause before an aborted request is sent again."""


class VerlEngine:
    """Samples from and scores with the servers behind verl's client."""

    def __init__(self, client: Any, engine: str) -> None:
        self._vllm = engine == "vllm"
        self._goes_on = isinstance(client, FullyAsyncLLMServerClient)
        self._generate = partial(LLMServerClient.generate, client) if self._goes_on else client.generate
        self.oldest: int | None = None
        """The oldest weights that sampled any id; a `Completion` has the newest."""

    async def sample(
        self,
        prompt_T: Ids,  # noqa: N803 - the shape is part of the name
        *,
        max_tokens: int,
        seed: int,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        request: str,
    ) -> Completion:
        """Sample up to `max_tokens` ids after the prompt."""
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1 if sampling.top_k is None else sampling.top_k,
            "stop_token_ids": list(stop_ids),
            "logprobs": True,
        }
        ids, logprobs, version = await self._draw(request, prompt_T, parameters, max_tokens, seed)
        stopped = bool(ids) and ids[-1] in stop_ids
        # An engine also stops at other end tokens of the model's generation_config.json. Such a token isn't part of the
        # template, so it is removed, unless the turn has no other token.
        if not stopped and 0 < len(ids) < max_tokens:
            stopped, ids, logprobs = True, ids[:-1] or ids, logprobs and (logprobs[:-1] or logprobs)
        ids_T = np.asarray(ids, np.int32)  # noqa: N806
        logprobs_T = None if logprobs is None else np.asarray(logprobs, np.float32)  # noqa: N806
        return Completion(ids_T, logprobs_T, Finish.STOP if stopped else Finish.LENGTH, version)

    async def _draw(
        self,
        request: str,
        prompt_T: Ids,  # noqa: N803
        parameters: dict[str, Any],
        max_tokens: int,
        seed: int,
    ) -> tuple[list[int], list[float] | None, int | None]:
        """Sample ids in pieces, if weight updates interrupt; return them, their log-probs and the newest weights."""
        ids: list[int] = []
        logprobs: list[float] | None = []
        version: int | None = None
        while True:
            own = {
                "max_tokens": max_tokens - len(ids),
                "seed" if self._vllm else "sampling_seed": derive_seed(seed, len(ids)) if ids else seed,
            }
            output = await self._ask(request, np.concatenate([prompt_T, np.asarray(ids, np.int32)]), parameters | own)
            if output.token_ids:
                ids += output.token_ids
                logprobs = None if logprobs is None or output.log_probs is None else [*logprobs, *output.log_probs]
                version = output.extra_fields.get("global_steps")
                self._note(version)
            if output.stop_reason not in ABORTED or len(ids) >= max_tokens:
                return ids, logprobs, version
            if not self._goes_on:
                raise EngineFaultError("the server aborted the request, and verl's client doesn't continue it")
            await asyncio.sleep(AGAIN_SECONDS)

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:  # noqa: N803
        """Return the log-prob of each id of the suffix after all ids before it, at temperature 1 and top-p 1."""
        ids = np.concatenate([prefix_T, suffix_T])
        output = await self._prefill(request, ids, cached=self._vllm)
        # A token's row was computed at the one before it.
        if self._vllm and (output.extra_fields.get("num_cached_tokens") or 0) >= len(prefix_T):
            output = await self._prefill(request, ids, cached=False)
        scores = _suffix(output.extra_fields, suffix_T)
        if scores is None and self._vllm:
            # With its second runner, a request that was preempted within its prompt loses the rows that it had.
            output = await self._prefill(request, ids, cached=False)
            scores = _suffix(output.extra_fields, suffix_T)
        if scores is None:
            raise EngineFaultError("the server scored other tokens than it was asked for")
        return Scores(scores, output.extra_fields.get("global_steps"))

    async def _prefill(self, request: str, ids: Ids, *, cached: bool) -> Any:
        parameters: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 1, "prompt_logprobs": 0}
        if self._vllm:
            # On CPUs, vLLM 0.27.1 forgets all seeds of a step in which one request has none.
            parameters |= {"skip_reading_prefix_cache": not cached, "detokenize": False, "seed": 0}
        for _ in range(ABORTS):
            output = await self._ask(request, ids, dict(parameters))
            # An aborted request has rows too, but empty ones that verl adds.
            if "prompt_logprobs" in output.extra_fields and output.stop_reason not in ABORTED:
                return output
            await asyncio.sleep(AGAIN_SECONDS)
        raise EngineFaultError(f"the server aborted a scoring request {ABORTS} times")

    def _note(self, version: int | None) -> None:
        if version is not None:
            self.oldest = version if self.oldest is None else min(self.oldest, version)

    async def _ask(self, request: str, ids: Ids, parameters: dict[str, Any]) -> Any:
        # If a request were cancelled before it has a server, verl's client would never release it in the router.
        asked = asyncio.ensure_future(self._generate(request, prompt_ids=ids.tolist(), sampling_params=parameters))
        _asked.add(asked)
        asked.add_done_callback(_forget)
        try:
            return await asyncio.shield(asked)
        except Exception as error:  # of Ray, the server or the engine: an infrastructure fault in any case
            raise EngineFaultError(f"the rollout server failed: {type(error).__name__}: {error}") from error


def _suffix(answer: Mapping[str, Any], suffix_T: Ids) -> Floats | None:  # noqa: N803
    """Return the log-probs of a prompt's last tokens; None if the rows are of other tokens."""
    rows = slice(-1 - len(suffix_T), -1)  # verl adds the last row, which is empty
    if [row[0] for row in answer["prompt_ids"][rows]] != suffix_T.tolist():
        return None
    return np.asarray([row[0] for row in answer["prompt_logprobs"][rows]], np.float32)


_asked: set[asyncio.Future[Any]] = set()
"""Requests that verl hasn't answered yet, including cancelled ones."""


def _forget(asked: asyncio.Future[Any]) -> None:
    _asked.discard(asked)
    if not asked.cancelled():
        asked.exception()  # retrieve it, so that asyncio doesn't log it for a cancelled request
