"""Serves a small Qwen3 or Llama to rollouts, in this process: the lab's engine where a step must take seconds.

For a model of 0.2M parameters most of the time of a library's forward pass is overhead. Here the pass is written out:
matrix products are torch's, and what is between two of them is one function in C (`fused`). Nothing is computed twice:
equal prompts are read once, and the attention cache of a trajectory stays for its next turn. For larger models the
products within layers can be in bfloat16.

Requests that wait are sampled as one batch, in a thread. A batch begins when no more requests are to be expected: few
large batches take less time than many small ones, and which requests are in a batch doesn't depend on the machine. A
token is drawn by inverting the distribution at a uniform number, and a request's numbers come from its seed.

Limits: Qwen3 or Llama without biases, tied embeddings. Caches are dropped with the engine: make a new one for new
weights. A token's log-prob depends on its batch by rounding (1e-6 in float32, more in bfloat16).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.lab.local.fused import attended, drawn, gated, normed
from cleaner_rl.rollout import Completion, Finish, Sampling
from cleaner_rl.trajectory import Floats, Ids, Scores

LARGEST = 256
"""Requests that are sampled together at most, and fewer of a larger model: `MOST_CACHED`."""
MOST_CACHED = 200_000_000
"""Numbers in the caches of the requests that are sampled together, if each has 512 tokens."""
AT_ONCE = 2_048
"""Tokens of prompts that are read at once, padding included: the numbers of a layer stay in the core's cache."""
ROOM = 64
"""Tokens by which a cache grows."""
UNLIKELY = -1e9
"""The logit of a token that is not drawn."""
SPARSE = 0.7
"""Share of requests that still run below which a batch is made smaller."""


@dataclass(eq=False)
class _Request:
    prompt: Ids
    most: int
    stop_ids: tuple[int, ...]
    top_p: float
    name: str
    draws: Floats
    """A uniform number for each token."""
    answer: asyncio.Future[Completion]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return len(self.ids) == self.most or self.ids[-1] in self.stop_ids


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """Ids that were read, with their keys and values."""

    ids: Ids
    cache_LCHTD: Tensor  # noqa: N815 - the shape is part of the name: layers, keys and values, heads, tokens, numbers

    def shared(self, prompt: Ids) -> int:
        """Return how many ids at the beginning of a prompt it has read, the prompt's last one left out."""
        most = min(len(self.ids), len(prompt) - 1)
        differ = np.flatnonzero(self.ids[:most] != prompt[:most])
        return int(differ[0]) if len(differ) else most


class _Prompt:
    """A prompt, who asked with it, and how much of it was read before."""

    def __init__(self, asked_by: list[_Request], read: _Read | None) -> None:
        self.asked_by, self.ids, self.read = asked_by, asked_by[0].prompt, read
        self.start = 0 if read is None else read.shared(self.ids)
        self.fresh = len(self.ids) - self.start


async def _at_once() -> None:
    """Wait for nothing."""


class TinyEngine:
    """Samples from a small model of transformers, and scores with it."""

    def __init__(
        self,
        model: Any,
        version: int | None = None,
        ready: Callable[[], Awaitable[None]] = _at_once,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`ready` waits for whatever holds up other requests; `dtype` is that of the products within layers."""
        self._net, self._version, self._ready = Net(model, dtype), version, ready
        self._largest = max(1, min(LARGEST, MOST_CACHED // self._net.cache(1, 512).numel()))
        self.sampled, self.scored = 0, 0
        self._likely: dict[bytes, Ids] = {}
        self._read: dict[str, _Read] = {}
        self._waiting: list[_Request] = []
        self._working: asyncio.Task[None] | None = None

    async def sample(
        self,
        prompt_T: Ids,  # noqa: N803
        *,
        max_tokens: int,
        seed: int,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        request: str,
    ) -> Completion:
        """Sample up to `max_tokens` ids, at temperature 1."""
        assert sampling.temperature == 1.0
        assert sampling.top_k is None
        draws = np.random.Generator(np.random.PCG64(seed)).random(max_tokens, np.float32)
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(prompt_T, max_tokens, stop_ids, sampling.top_p, request, draws, answer))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await answer

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:  # noqa: N803, ARG002
        """Return the log-probs of a suffix."""
        self.scored += len(suffix_T)
        return Scores(await asyncio.to_thread(self._score, prefix_T, suffix_T), self._version)

    def likely(self, ids_T: Ids) -> Ids:  # noqa: N803
        """Return the most likely token at each place of ids that were scored, up to where they were scored; else 0.

        Entry `t` is for the token `t`, given all before it.
        """
        for end in range(len(ids_T), 0, -1):
            found = self._likely.get(ids_T[:end].tobytes())
            if found is not None:
                return np.pad(found, (0, len(ids_T) - end))
        raise KeyError("no beginning of these ids was scored")

    async def _work(self) -> None:
        while self._waiting:
            await self._ready()
            batch, self._waiting = self._waiting[: self._largest], self._waiting[self._largest :]
            await asyncio.to_thread(self._draw, batch)
            for each in batch:
                self.sampled += len(each.ids)
                if not each.answer.done():  # whoever asked may have gone
                    finish = Finish.STOP if each.ids[-1] in each.stop_ids else Finish.LENGTH
                    ids, logprobs = np.array(each.ids, np.int32), np.array(each.logprobs, np.float32)
                    each.answer.set_result(Completion(ids, logprobs, finish, self._version))

    def _draw(self, batch: Sequence[_Request]) -> None:
        with torch.inference_mode():
            self._decode(batch)

    def _decode(self, batch: Sequence[_Request]) -> None:
        rows, last_BD, cache, lengths = self._prefilled(batch)  # noqa: N806
        draws_TB = torch.zeros(max(each.most for each in rows), len(rows))  # noqa: N806
        for row, each in enumerate(rows):
            draws_TB[: each.most, row] = torch.from_numpy(each.draws)
        for number in count():
            logits_BV = self._net.logits(last_BD)  # noqa: N806
            if rows[0].top_p < 1.0:
                logits_BV = nucleus(logits_BV, rows[0].top_p)  # noqa: N806
            ids_B, logprobs_B = drawn(logits_BV, draws_TB[number])  # noqa: N806
            for each, token, logprob in zip(rows, ids_B.tolist(), logprobs_B.tolist(), strict=True):
                if not each.ids or not each.over:
                    each.ids.append(token)
                    each.logprobs.append(logprob)
            going = [row for row, each in enumerate(rows) if not each.over]
            if len(going) < SPARSE * len(rows):
                self._keep([(row, each) for row, each in enumerate(rows) if each.over], cache, lengths)
                if not going:
                    return
                rows, cache, lengths = [rows[row] for row in going], cache[:, :, going], lengths[going]
                ids_B, draws_TB = ids_B[going], draws_TB[:, going]  # noqa: N806
            if int(lengths.max()) == cache.shape[4]:
                cache = functional.pad(cache, (0, 0, 0, ROOM))
            last_BD = self._net(ids_B[:, None], lengths, cache)[:, 0]  # noqa: N806
            lengths = lengths + 1

    def _prefilled(self, batch: Sequence[_Request]) -> tuple[list[_Request], Tensor, Tensor, Tensor]:
        """Read the prompts; return the requests, reordered, with the last hidden state, cache and length of each."""
        alike: dict[bytes, list[_Request]] = {}
        for each in batch:
            alike.setdefault(each.prompt.tobytes(), []).append(each)
        prompts = [_Prompt(same, self._read.get(same[-1].name)) for same in alike.values()]
        # Prompts with as many ids to read are read together: little of it is padding.
        prompts.sort(key=lambda each: each.fresh)
        parts = list(_parts(prompts))
        longest = max(each.start + part[-1].fresh for part in parts for each in part)  # padding is read too
        cache = self._net.cache(len(prompts), longest + ROOM)
        last, first = [], 0
        for part in parts:
            last.append(self._last_hidden(part, cache[:, :, first : first + len(part)]))
            first += len(part)
        last_UD, lengths = torch.cat(last), torch.tensor([len(each.ids) for each in prompts])  # noqa: N806
        rows = [each for prompt in prompts for each in prompt.asked_by]
        if len(rows) == len(prompts):
            return rows, last_UD, cache, lengths
        copies = torch.tensor([row for row, prompt in enumerate(prompts) for _ in prompt.asked_by])
        return rows, last_UD[copies], cache[:, :, copies], lengths[copies]

    def _last_hidden(self, prompts: Sequence[_Prompt], cache: Tensor) -> Tensor:
        """Read what is new of some prompts into their cache; return the last hidden state of each."""
        ids_UT = torch.zeros(len(prompts), prompts[-1].fresh, dtype=torch.long)  # noqa: N806
        for row, each in enumerate(prompts):
            if each.read is not None:
                cache[:, :, row, :, : each.start] = each.read.cache_LCHTD[:, :, :, : each.start]
            ids_UT[row, : each.fresh] = torch.from_numpy(each.ids[each.start :].astype(np.int64))
        hidden = self._net(ids_UT, torch.tensor([each.start for each in prompts]), cache)
        return hidden[torch.arange(len(prompts)), torch.tensor([each.fresh - 1 for each in prompts])]

    def _keep(self, done: Sequence[tuple[int, _Request]], cache: Tensor, lengths: Tensor) -> None:
        """Keep the caches of requests for the next turns of their trajectories."""
        for row, each in done:
            ids = np.concatenate([each.prompt, np.array(each.ids, np.int32)])[: int(lengths[row])]
            self._read[each.name] = _Read(ids, cache[:, :, row, :, : len(ids)].clone())

    def _score(self, prefix_T: Ids, suffix_T: Ids) -> Floats:  # noqa: N803
        ids_T = torch.from_numpy(np.concatenate([prefix_T, suffix_T]).astype(np.int64))  # noqa: N806
        with torch.inference_mode():
            hidden = self._net(ids_T[None], torch.tensor([0]), self._net.cache(1, len(ids_T)))[0]
            logprobs = self._net.logits(hidden[len(prefix_T) - 1 : -1]).log_softmax(-1)
            likely = logprobs.argmax(-1).numpy().astype(np.int32)
        self._likely[ids_T.numpy().astype(np.int32).tobytes()] = np.pad(likely, (len(prefix_T), 0))
        scores: Floats = logprobs.gather(1, ids_T[-len(suffix_T) :, None])[:, 0].numpy()
        return scores


def _parts(prompts: Sequence[_Prompt]) -> Iterator[Sequence[_Prompt]]:
    """Cut prompts, sorted by what is to be read of them, into parts that are read at once."""
    part: list[_Prompt] = []
    for each in prompts:
        if part and each.fresh * (len(part) + 1) > AT_ONCE:
            yield part
            part = []
        part.append(each)
    yield part


def nucleus(logits_BV: Tensor, top_p: float) -> Tensor:  # noqa: N803
    """Return logits without those of the tokens outside of the nucleus."""
    sorted_BV, places = logits_BV.softmax(-1).sort(-1, descending=True)  # noqa: N806
    outside = torch.zeros_like(logits_BV, dtype=torch.bool)
    return logits_BV.masked_fill(outside.scatter(1, places, sorted_BV.cumsum(-1) - sorted_BV >= top_p), UNLIKELY)


class Net:
    """The forward pass of a Qwen3 or a Llama, on a copy of its weights."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        config = model.config
        self._groups, self._size = config.num_key_value_heads, config.head_dim
        self._epsilon = config.rms_norm_eps
        self._layers = [_Layer(each, dtype) for each in model.model.layers]
        self._embedding = model.model.embed_tokens.weight.detach().clone()
        self._norm = model.model.norm.weight.detach().clone()
        self._rope = model.model.rotary_emb.inv_freq

    def cache(self, rows: int, tokens: int) -> Tensor:
        """Return an empty cache: layers, keys and values, rows, heads, tokens, numbers."""
        return torch.zeros(len(self._layers), 2, rows, self._groups, tokens, self._size)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of hidden states."""
        return hidden @ self._embedding.T

    def __call__(self, ids_BT: Tensor, starts_B: Tensor, cache: Tensor) -> Tensor:  # noqa: N803
        """Read ids that follow what each row's cache holds; return the last hidden states."""
        angles = (starts_B[:, None] + torch.arange(ids_BT.shape[1]))[..., None] * self._rope
        cos, sin = angles.cos(), angles.sin()
        x = functional.embedding(ids_BT, self._embedding)
        for layer, (keys, values) in zip(self._layers, cache, strict=True):
            parts = _product(self._normed(x, layer.before), layer.qkv)
            seen = attended(parts, layer.heads, self._epsilon, cos, sin, starts_B, keys, values)
            x = x + _product(seen, layer.out)
            x = x + _product(gated(_product(self._normed(x, layer.after), layer.up)), layer.down)
        return self._normed(x, self._norm)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return normed(x, weight, self._epsilon)


class _Layer:
    """The weights of a layer, each ready to be multiplied with from the left."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.before = layer.input_layernorm.weight.detach().clone()
        self.after = layer.post_attention_layernorm.weight.detach().clone()
        self.heads: tuple[Tensor, Tensor] | None = None
        """The norms of queries and keys; a Llama has none."""
        if hasattr(attention, "q_norm"):
            self.heads = attention.q_norm.weight.detach().clone(), attention.k_norm.weight.detach().clone()
        self.qkv = _joined(dtype, attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = _joined(dtype, attention.o_proj)
        self.up = _joined(dtype, mlp.gate_proj, mlp.up_proj)
        self.down = _joined(dtype, mlp.down_proj)


def _joined(dtype: torch.dtype, *parts: Any) -> Tensor:
    return torch.cat([each.weight.detach() for each in parts]).T.contiguous().to(dtype)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return (x.to(weight.dtype) @ weight).float()
