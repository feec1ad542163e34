"""vLLM by its token route, `POST /inference/v1/generate`: ids in, ids and log-probs out.

Scoring asks for the log-probs of a prompt while reading the prefix cache, so that only the suffix is computed. With c
tokens cached, there is a row of token i for i > c alone: the first one behind the cache was predicted by a cached
position. Of the others vLLM's first model runner, which CPUs have, gives uninitialised memory, and its second,
which GPUs have for dense models, nothing: so rows are counted from the end. What counts is `cached_tokens`, which a
server reports under `--enable-prompt-tokens-details`; without it, or where the cache holds some of the suffix itself,
the whole prompt is computed. So it is where rows are missing: with the second runner, a request that had to make room
in mid-prompt loses those that it had.

Serve with `vllm serve MODEL --enable-prompt-tokens-details`. Tested with vLLM 0.27.1; 0.32 wants `--enable-scale-out`.
On CPUs, 0.27.1 dies of a seeded request whose prompt it computes in chunks: add `--no-enable-chunked-prefill`.

Limits: vLLM reports no version of its weights. Its second model runner is known from its source; it can't run here.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np

from cleaner_rl.rollout.engine import Completion, EngineFaultError, EngineRefusedError, Finish, Sampling
from cleaner_rl.rollout.engines.http import Address, EngineBrokeError
from cleaner_rl.trajectory import Floats, Ids, Scores

ROUTE = "/inference/v1/generate"
ONE = {"max_tokens": 1, "seed": 0}
"""An engine has to draw something. On CPUs, 0.27.1 forgets all seeds of a step in which one request has none."""
PROMPT = ONE | {"prompt_logprobs": 0}


class _TopLogprob(msgspec.Struct):
    token: str
    logprob: float


class _Logprob(msgspec.Struct):
    logprob: float
    top_logprobs: list[_TopLogprob] = []


class _Logprobs(msgspec.Struct):
    content: list[_Logprob]


class _Choice(msgspec.Struct):
    token_ids: list[int]
    finish_reason: str
    logprobs: _Logprobs | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: _Details | None = None


class _Row(msgspec.Struct):
    logprob: float


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage
    prompt_logprobs: list[dict[int, _Row] | None] | None = None


_decoder = msgspec.json.Decoder(_Answer)


class VllmEngine:
    """One vLLM server."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._numbers = itertools.count()
        self._reports_cache = True

    async def window(self) -> int:
        """Return the longest context that the server takes."""
        models = msgspec.json.decode(await self.address.get("/v1/models"))
        return int(models["data"][0]["max_model_len"])

    async def sample(
        self,
        prompt_T: Ids,
        *,
        max_tokens: int,
        seed: int,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        request: str,
    ) -> Completion:
        """Draw up to `max_tokens` ids."""
        settings = {
            "max_tokens": max_tokens,
            "seed": seed,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or 0,
            "stop_token_ids": list(stop_ids),
            "logprobs": 0,
        }
        answer = await self._ask(prompt_T, settings, request)
        choice = answer.choices[0]
        if choice.finish_reason not in ("stop", "length") or choice.logprobs is None:
            raise EngineFaultError(f"{self.address.url} ended a request with '{choice.finish_reason}'")
        logprobs = np.fromiter((each.logprob for each in choice.logprobs.content), np.float32)
        return Completion(np.array(choice.token_ids, np.int32), logprobs, Finish(choice.finish_reason))

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        """Return the log-probs of a suffix, computed from the end of the cached prefix on."""
        ids_T = np.concatenate([prefix_T, suffix_T])
        first = len(prefix_T)
        request = f"{request}/score"
        answer, cached = await self._from_cache(ids_T, request)
        if answer is not None and cached < first and (scores := _rows(answer, ids_T, first)) is not None:
            return Scores(scores)
        if answer is not None and cached == first and (scores := _rows(answer, ids_T, first + 1)) is not None:
            # A prefix of whole blocks: of the suffix, its first token alone is missing.
            missing = await self._next(prefix_T, int(suffix_T[0]), request)
            return Scores(np.array([missing, *scores], np.float32))
        whole = await self._ask(ids_T, PROMPT | {"skip_reading_prefix_cache": True}, request)
        scores = _rows(whole, ids_T, first)
        if scores is None:
            raise EngineFaultError(f"{self.address.url} did not give the log-probs of the prompt that it was asked for")
        return Scores(scores)

    async def _from_cache(self, ids_T: Ids, request: str) -> tuple[_Answer | None, int]:
        """A prompt computed from behind what is cached, and how much that is; None if it can't be used."""
        if not self._reports_cache:
            return None, 0
        try:
            settings = PROMPT | {"skip_reading_prefix_cache": False}
            answer = await self._ask(ids_T, settings, request, again_if_broken=False)
        except (EngineBrokeError, EngineRefusedError):
            # Uninitialised rows may hold what JSON can't; the server then breaks, or takes it for a bad request.
            return None, 0
        details = answer.usage.prompt_tokens_details
        if details is None or details.cached_tokens is None:
            self._reports_cache = False
            return None, 0
        return answer, details.cached_tokens

    async def _next(self, prefix_T: Ids, token: int, request: str) -> float:
        """The log-prob of one token after a prefix."""
        # The server shows two: that of the token it drew, and that of the first one in this list.
        listed = [token, 0 if token else 1]
        settings = ONE | {"logprobs": 2, "logprob_token_ids": listed}
        answer = await self._ask(prefix_T, settings, request)
        shown = answer.choices[0].logprobs
        for each in shown.content[0].top_logprobs if shown is not None else ():
            if each.token == f"token_id:{token}":
                return each.logprob
        raise EngineFaultError(f"{self.address.url} gave no log-prob of the token that was asked for")

    async def _ask(
        self,
        prompt_T: Ids,
        settings: dict[str, Any],
        request: str,
        *,
        again_if_broken: bool = True,
    ) -> _Answer:
        body = {
            "request_id": f"{request}/{next(self._numbers)}",
            "token_ids": prompt_T.tolist(),
            "sampling_params": {**settings, "detokenize": False},
        }
        answer = await self.address.post(ROUTE, body, again_if_broken=again_if_broken)
        try:
            return _decoder.decode(answer)
        except msgspec.DecodeError as error:
            raise EngineFaultError(f"{self.address.url} answers in another form than vLLM 0.27: {error}") from error


def _rows(answer: _Answer, ids_T: Ids, first: int) -> Floats | None:
    """The log-probs of a prompt's tokens from one on; None if some are missing."""
    tokens = ids_T[first:].tolist()
    rows = answer.prompt_logprobs or []
    rows = rows[max(0, len(rows) - len(tokens)) :]
    if len(rows) != len(tokens) or any(
        row is None or token not in row for row, token in zip(rows, tokens, strict=True)
    ):
        return None
    return np.fromiter((row[token].logprob for row, token in zip(rows, tokens, strict=True) if row), np.float32)
