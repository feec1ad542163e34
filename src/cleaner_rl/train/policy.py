"""verl's rollout servers as a policy: ids in, ids out, and a suffix's log-probs after a prefix.

Sampling goes through verl's client as any agent loop's does, so routing and weight updates in mid-flight stay verl's.
Each request brings its own seed; verl sets none. A request that a weight update broke off is taken up again here and
not in verl's asynchronous client, which would send the same seed once more: the continuation would repeat the noise of
its beginning.

Scoring is one prefill; it is asked again if a weight update aborted it, and like sampling it passes by the asynchronous
client, which drops prompt log-probs from its answers. The prefix may come out of the engine's cache, but vLLM has no
rows of cached tokens: its second model runner, which GPUs have, leaves them out, and its first, which processors have,
gives uninitialised memory that often looks right. So rows are counted from the end, and an answer whose cache reached
into the suffix is thrown away, and the request repeated without the cache.

Limits: a request that is cancelled goes on at the engine until its end, since verl has no way to end one. SGLang's
servers are asked as verl's own code asks them, untested here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from cleaner_rl.rollout import Completion, EngineFaultError, Finish, Sampling
from cleaner_rl.trajectory import Floats, Ids, Scores, derive_seed

ABORTS = 30
"""How often a weight update may abort one scoring request before it is a fault."""
ABORTED = ("aborted", "abort")
AGAIN_SECONDS = 1.0
"""Until a request that was aborted is sent again."""


class VerlPolicy:
    """The servers that verl's client reaches."""

    def __init__(self, client: Any, engine: str) -> None:
        self._vllm = engine == "vllm"
        self._goes_on = isinstance(client, FullyAsyncLLMServerClient)
        self._generate = partial(LLMServerClient.generate, client) if self._goes_on else client.generate
        self.oldest: int | None = None
        """The oldest weights that any id was sampled with; a `Completion` has the newest."""

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
            "stop_token_ids": list(stop_ids),
            "logprobs": True,
        }
        ids, logprobs, version = await self._draw(request, prompt_T, parameters, max_tokens, seed)
        stopped = bool(ids) and ids[-1] in stop_ids
        # An engine also stops at the other ends that the model's generation_config.json lists. Such a token is none of
        # the template's; a turn of nothing else keeps it, so that there is something to learn from.
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
        """Ids, their log-probs and the newest weights, in as many pieces as weight updates make of the request."""
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
                raise EngineFaultError("the server gave the request up, and verl's client doesn't take it up again")
            await asyncio.sleep(AGAIN_SECONDS)

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:  # noqa: N803
        """The log-prob of each id of the suffix after all ids before it, at temperature 1 and top-p 1."""
        ids = np.concatenate([prefix_T, suffix_T])
        output = await self._prefill(request, ids, cached=self._vllm)
        # A token's row was computed at the one before it.
        if self._vllm and (output.extra_fields.get("num_cached_tokens") or 0) >= len(prefix_T):
            output = await self._prefill(request, ids, cached=False)
        scores = _suffix(output.extra_fields, suffix_T)
        if scores is None and self._vllm:
            # With its second runner, a request that had to make room in mid-prompt loses the rows that it had.
            output = await self._prefill(request, ids, cached=False)
            scores = _suffix(output.extra_fields, suffix_T)
        if scores is None:
            raise EngineFaultError("the server scored other tokens than those it was asked for")
        return Scores(scores, output.extra_fields.get("global_steps"))

    async def _prefill(self, request: str, ids: Ids, *, cached: bool) -> Any:
        parameters: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 1, "prompt_logprobs": 0}
        if self._vllm:
            # On CPUs, vLLM 0.27.1 forgets all seeds of a step in which one request has none.
            parameters |= {"skip_reading_prefix_cache": not cached, "detokenize": False, "seed": 0}
        for _ in range(ABORTS):
            output = await self._ask(request, ids, dict(parameters))
            # An aborted request has rows too: verl's own, of nothing.
            if "prompt_logprobs" in output.extra_fields and output.stop_reason not in ABORTED:
                return output
            await asyncio.sleep(AGAIN_SECONDS)
        raise EngineFaultError(f"the server gave a scoring request up {ABORTS} times")

    def _note(self, version: int | None) -> None:
        if version is not None:
            self.oldest = version if self.oldest is None else min(self.oldest, version)

    async def _ask(self, request: str, ids: Ids, parameters: dict[str, Any]) -> Any:
        # verl's client would leave a request that is cancelled before it has a server in the router's books for ever.
        asked = asyncio.ensure_future(self._generate(request, prompt_ids=ids.tolist(), sampling_params=parameters))
        _asked.add(asked)
        asked.add_done_callback(_forget)
        try:
            return await asyncio.shield(asked)
        except Exception as error:  # Ray's, the server's, the engine's: none of them is the model's doing
            raise EngineFaultError(f"the rollout server failed: {type(error).__name__}: {error}") from error


def _suffix(answer: Mapping[str, Any], suffix_T: Ids) -> Floats | None:  # noqa: N803
    """The log-probs of a prompt's last tokens; None if the rows speak of others."""
    rows = slice(-1 - len(suffix_T), -1)  # the last one is verl's, and speaks of nothing
    if [row[0] for row in answer["prompt_ids"][rows]] != suffix_T.tolist():
        return None
    return np.asarray([row[0] for row in answer["prompt_logprobs"][rows]], np.float32)


_asked: set[asyncio.Future[Any]] = set()
"""Requests that verl hasn't answered yet; some of them nobody waits for any more."""


def _forget(asked: asyncio.Future[Any]) -> None:
    _asked.discard(asked)
    if not asked.cancelled():
        asked.exception()  # whoever waits has it too; of one that nobody waits for, nobody need hear
