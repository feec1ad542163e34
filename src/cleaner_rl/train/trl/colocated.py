"""Serves a `vllm.LLM` in this process to rollouts, with continuous batching.

Rollouts run in a thread of their own and ask from there. The thread that made the `LLM` drives it, because CUDA's
current device and the cores that a CPU build is bound to belong to that thread.

Limits: one process for each model (no tensor parallelism). A score computes its whole prompt again, because vLLM has no
log-probs of tokens that it reads from its prefix cache.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np

from cleaner_rl.rollout import Completion, EngineFaultError, EngineRefusedError, Finish, Sampling
from cleaner_rl.trajectory import Floats, Ids, Scores

T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    name: str
    prompt: list[int]
    settings: dict[str, Any]
    answer: asyncio.Future[Any]


@dataclass(frozen=True)
class _Cancelled:
    name: str


class ColocatedEngine:
    """Samples and scores with an `LLM`, while `drive` runs it."""

    def __init__(self, llm: Any, version: int | None = None) -> None:
        """`version` numbers the weights."""
        self._engine, self._version = llm.llm_engine, version
        self._numbers = itertools.count()
        self._asked: SimpleQueue[_Request | _Cancelled | None] = SimpleQueue()
        """None: there is no more to come."""

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
        """Sample up to `max_tokens` ids."""
        settings = {
            "max_tokens": max_tokens,
            "seed": seed,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or 0,
            "stop_token_ids": list(stop_ids),
            "ignore_eos": True,  # the chat template's own stop tokens are among `stop_ids`
            "logprobs": 0,
        }
        made = (await self._ask(prompt_T, settings, request)).outputs[0]
        ids = list(made.token_ids)
        if made.finish_reason not in ("stop", "length") or made.logprobs is None:
            raise EngineFaultError(f"vLLM ended a request with '{made.finish_reason}'")
        logprobs = [row[token].logprob for token, row in zip(ids, made.logprobs, strict=True)]
        finish = Finish(made.finish_reason)
        return Completion(np.array(ids, np.int32), np.array(logprobs, np.float32), finish, self._version)

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:  # noqa: N803
        """Return the log-probs of a suffix."""
        ids_T = np.concatenate([prefix_T, suffix_T])  # noqa: N806
        # Asked for with log-probs of its prompt, vLLM doesn't read its prefix cache.
        answer = await self._ask(ids_T, {"max_tokens": 1, "seed": 0, "prompt_logprobs": 0}, request)
        rows = (answer.prompt_logprobs or [])[len(prefix_T) :]
        if len(rows) != len(suffix_T):
            raise EngineFaultError("vLLM did not give the log-probs of the prompt that it was asked for")
        scores: Floats = np.array([row[int(token)].logprob for row, token in zip(rows, suffix_T, strict=True)], "f4")
        return Scores(scores, self._version)

    def drive(self, work: Future[T]) -> T:
        """Run vLLM in this thread for as long as the work takes, and return the work's result."""
        work.add_done_callback(lambda _: self._asked.put(None))
        running: dict[str, _Request] = {}
        try:
            while not work.done():
                self._take(running)
                if running:
                    self._step(running)
            return work.result()
        finally:
            if running:
                self._engine.abort_request(list(running))

    async def _ask(self, prompt_T: Ids, settings: dict[str, Any], request: str) -> Any:  # noqa: N803
        name = f"{request}/{next(self._numbers)}"
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.put(_Request(name, prompt_T.tolist(), settings, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            self._asked.put(_Cancelled(name))
            raise

    def _take(self, running: dict[str, _Request]) -> None:
        """Give vLLM what was asked for meanwhile. If it has nothing to do, wait."""
        with suppress(Empty):
            asked = self._asked.get(block=not running)
            while True:
                if isinstance(asked, _Request):
                    self._add(asked, running)
                elif isinstance(asked, _Cancelled) and running.pop(asked.name, None) is not None:
                    self._engine.abort_request([asked.name])
                asked = self._asked.get(block=False)

    def _add(self, asked: _Request, running: dict[str, _Request]) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        settings = SamplingParams(**asked.settings, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY)
        try:
            self._engine.add_request(asked.name, {"prompt_token_ids": asked.prompt}, settings)
        except ValueError as error:  # a prompt that is too long, for one
            _settle(asked.answer, EngineRefusedError(f"vLLM refuses a request: {error}"))
        else:
            running[asked.name] = asked

    def _step(self, running: dict[str, _Request]) -> None:
        try:
            outputs = self._engine.step()
        except Exception as error:  # whatever it is, it is an infrastructure fault
            broken = EngineFaultError(f"vLLM broke: {type(error).__name__}: {error}")
            for asked in running.values():
                _settle(asked.answer, broken)
            running.clear()
            return
        for output in outputs:
            if output.finished and output.request_id in running:
                _settle(running.pop(output.request_id).answer, output)


def _settle(answer: asyncio.Future[Any], outcome: Any) -> None:
    """Answer a request from the thread that drives vLLM."""
    done: Callable[[Any], None] = answer.set_exception if isinstance(outcome, Exception) else answer.set_result

    def settle() -> None:
        if not answer.done():  # whoever asked may have gone
            done(outcome)

    answer.get_loop().call_soon_threadsafe(settle)
