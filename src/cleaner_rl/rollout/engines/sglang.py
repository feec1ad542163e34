"""SGLang by its native route, `POST /generate`, as its documentation describes it.

Sampled ids are read beside their log-probs (`output_token_logprobs`), so the two can't part. Scoring asks for the
prompt's log-probs from the prefix' last token on (`logprob_start_len`); SGLang reads its cache up to there by itself.

Seeds are sent as `sampling_seed`; a server heeds them under `--enable-deterministic-inference`.

Limits: SGLang has no build for the machines that test this; the tests use a stand-in written to that documentation.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from cleaner_rl.rollout.engine import Completion, EngineFaultError, Finish, Sampling
from cleaner_rl.rollout.engines.http import Address
from cleaner_rl.trajectory import Ids, Scores

Row = tuple[float | None, int, str | None]
"""Log-prob (null where nothing stands before the token), id, text."""


class _Finish(msgspec.Struct):
    type: str
    message: str = ""


class _Meta(msgspec.Struct):
    finish_reason: _Finish | None = None
    output_token_logprobs: list[Row] = []
    input_token_logprobs: list[Row] = []
    weight_version: str = ""


class _Answer(msgspec.Struct):
    meta_info: _Meta


_decoder = msgspec.json.Decoder(_Answer)


class SglangEngine:
    """One SGLang server."""

    def __init__(self, address: Address) -> None:
        self.address = address

    async def window(self) -> int:
        """Return the longest context that the server takes."""
        about = msgspec.json.decode(await self.address.get("/get_server_info"))
        length = about.get("context_length") or about.get("max_total_num_tokens")
        if not isinstance(length, int):
            raise EngineFaultError(f"{self.address.url} doesn't say how long a context it takes; name the window")
        return length

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
            "max_new_tokens": max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "stop_token_ids": list(stop_ids),
            "sampling_seed": seed,
            "skip_special_tokens": False,
            "no_stop_trim": True,
        }
        meta = await self._ask(prompt_T, settings, {"logprob_start_len": -1})
        ended = meta.finish_reason
        if ended is None or ended.type not in ("stop", "length"):
            why = "nothing" if ended is None else f"'{ended.type}' {ended.message}"
            raise EngineFaultError(f"{self.address.url} ended request {request} with {why}")
        ids = np.fromiter((row[1] for row in meta.output_token_logprobs), np.int32)
        logprobs = np.fromiter((row[0] for row in meta.output_token_logprobs), np.float32)
        return Completion(ids, logprobs, Finish(ended.type), _version(meta))

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        """Return the log-probs of a suffix."""
        ids_T = np.concatenate([prefix_T, suffix_T])
        settings = {"max_new_tokens": 0, "temperature": 1.0}
        meta = await self._ask(ids_T, settings, {"logprob_start_len": len(prefix_T) - 1})
        # The first row it gives has no log-prob, because it looks no further back than it was asked.
        rows = meta.input_token_logprobs[-len(suffix_T) :]
        values = [row[0] for row in rows if row[0] is not None]
        if [row[1] for row in rows] != suffix_T.tolist() or len(values) != len(rows):
            raise EngineFaultError(f"{self.address.url} did not give the log-probs that request {request} asked for")
        return Scores(np.array(values, np.float32), _version(meta))

    async def _ask(self, ids_T: Ids, settings: dict[str, Any], more: dict[str, Any]) -> _Meta:
        body = {"input_ids": ids_T.tolist(), "sampling_params": settings, "return_logprob": True, **more}
        answer = await self.address.post("/generate", body)
        try:
            return _decoder.decode(answer).meta_info
        except msgspec.DecodeError as error:
            reason = f"{self.address.url} answers in another form than SGLang documents: {error}"
            raise EngineFaultError(reason) from error


def _version(meta: _Meta) -> int | None:
    """SGLang names weights freely; a trainer numbers them."""
    return int(meta.weight_version) if meta.weight_version.isdecimal() else None
