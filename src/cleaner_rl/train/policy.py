"""verl's rollout servers as a policy: ids in, ids out, and a suffix's log-probs after a prefix.

Sampling goes through verl's client as any agent loop's does, so routing, weight updates in mid-flight and partial
rollouts stay verl's. Each request brings its own seed; verl sets none.

Scoring is one prefill. verl's asynchronous client drops prompt log-probs from its answers, so scoring asks its base
class, and asks again if a weight update aborted the request. The prefix may come out of the engine's cache, but rows of
cached tokens are uninitialised memory that often looks right: an answer whose cache reached into the suffix is thrown
away, and the request repeated without the cache.

Limits: a request that is cancelled goes on at the engine until its end, since verl has no way to end one. SGLang's
servers are asked as verl's own code asks them, untested here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from verl.workers.rollout.llm_server import LLMServerClient

from cleaner_rl.rollout import Completion, EngineFaultError, Finish, Sampling
from cleaner_rl.trajectory import Ids, Scores

ABORTS = 30
"""How often a weight update may abort one scoring request, a second apart, before it is a fault."""


class VerlPolicy:
    """The servers that verl's client reaches."""

    def __init__(self, client: Any, engine: str) -> None:
        self._client, self._vllm = client, engine == "vllm"

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
        """Draw up to `max_tokens` ids after the prompt."""
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1 if sampling.top_k is None else sampling.top_k,
            "max_tokens": max_tokens,
            "stop_token_ids": list(stop_ids),
            "logprobs": True,
            "seed" if self._vllm else "sampling_seed": seed,
        }
        output = await self._ask(self._client.generate, request, prompt_T, parameters)
        if output.stop_reason == "aborted":
            raise EngineFaultError("the server gave the request up, and verl's client didn't take it up again")
        ids_T = np.asarray(output.token_ids, np.int32)  # noqa: N806
        logprobs_T = None if output.log_probs is None else np.asarray(output.log_probs, np.float32)  # noqa: N806
        stopped = len(ids_T) > 0 and int(ids_T[-1]) in stop_ids
        finish = Finish.STOP if stopped else Finish.LENGTH
        return Completion(ids_T, logprobs_T, finish, output.extra_fields.get("max_global_steps"))

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:  # noqa: N803
        """The log-prob of each id of the suffix after all ids before it, at temperature 1 and top-p 1."""
        ids = np.concatenate([prefix_T, suffix_T])
        output = await self._prefill(request, ids, cached=self._vllm)
        first = len(prefix_T) - 1  # a row speaks of the token after it
        if self._vllm and (output.extra_fields.get("num_cached_tokens") or 0) > first:
            output = await self._prefill(request, ids, cached=False)
        rows = slice(first, first + len(suffix_T))
        spoken_of = [row[0] for row in output.extra_fields["prompt_ids"][rows]]
        if spoken_of != suffix_T.tolist():
            raise EngineFaultError("the server scored other tokens than those it was asked for")
        logprobs = [row[0] for row in output.extra_fields["prompt_logprobs"][rows]]
        return Scores(np.asarray(logprobs, np.float32), output.extra_fields.get("global_steps"))

    async def _prefill(self, request: str, ids: Ids, *, cached: bool) -> Any:
        parameters: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 1, "prompt_logprobs": 0}
        if self._vllm:
            # On CPUs, vLLM 0.27.1 forgets all seeds of a step in which one request has none.
            parameters |= {"skip_reading_prefix_cache": not cached, "detokenize": False, "seed": 0}
        for _ in range(ABORTS):
            output = await self._ask(
                lambda *arguments, **options: LLMServerClient.generate(self._client, *arguments, **options),
                request,
                ids,
                dict(parameters),
            )
            if "prompt_logprobs" in output.extra_fields:
                return output
            await asyncio.sleep(1)
        raise EngineFaultError(f"the server gave a scoring request up {ABORTS} times")

    async def _ask(self, generate: Any, request: str, ids: Ids, parameters: dict[str, Any]) -> Any:
        # verl's client would leave a request that is cancelled before it has a server in the router's books for ever.
        asked = asyncio.ensure_future(generate(request, prompt_ids=ids.tolist(), sampling_params=parameters))
        _asked.add(asked)
        asked.add_done_callback(_forget)
        try:
            return await asyncio.shield(asked)
        except Exception as error:  # Ray's, the server's, the engine's: none of them is the model's doing
            raise EngineFaultError(f"the rollout server failed: {type(error).__name__}: {error}") from error


_asked: set[asyncio.Future[Any]] = set()
"""Requests that verl hasn't answered yet; some of them nobody waits for any more."""


def _forget(asked: asyncio.Future[Any]) -> None:
    _asked.discard(asked)
    if not asked.cancelled():
        asked.exception()  # whoever waits has it too; of one that nobody waits for, nobody need hear
