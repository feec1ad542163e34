"""Serves the model that a training loop holds in this process to rollouts, with transformers alone.

Requests that wait are sampled as one batch, in a thread; those that come meanwhile are the next batch.

Limits: temperature 1, all tokens. A token's log-prob depends on its batch by rounding (1e-6), so once in a long while a
seed gives another token in other company.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cleaner_rl.rollout.engine import Completion, EngineFaultError, Finish, Sampling
from cleaner_rl.trajectory import Floats, Ids, Scores

LARGEST = 64
"""Requests that are sampled together at most."""


@dataclass(eq=False)
class _Request:
    prompt_T: Ids
    most: int
    seed: int
    stop_ids: tuple[int, ...]
    answer: asyncio.Future[Completion]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return len(self.ids) == self.most or (bool(self.ids) and self.ids[-1] in self.stop_ids)

    def completion(self, version: int | None) -> Completion:
        finish = Finish.STOP if self.ids[-1] in self.stop_ids else Finish.LENGTH
        return Completion(np.array(self.ids, np.int32), np.array(self.logprobs, np.float32), finish, version)


class TransformersEngine:
    """Samples from a causal language model of transformers, and scores with it.

    Examples:
        >>> from cleaner_rl.rollout import TokenModel, open_runner
        >>> from cleaner_rl.rollout.engines import TransformersEngine
        >>> from cleaner_rl.tasks import load_prompt
        >>> from cleaner_sandbox import open_sandbox
        >>> async def rewards(model, tokenizer, tasks) -> list[float | None]:
        ...     prompt = load_prompt("stateless")
        ...     served = TokenModel.for_prompt(TransformersEngine(model.eval()), tokenizer, prompt, window=8_192)
        ...     async with open_sandbox() as sandbox, open_runner(served, prompt, sandbox) as runner:
        ...         return [trajectory.reward async for trajectory in runner.run(tasks, samples=8)]
    """

    def __init__(self, model: Any, version: int | None = None) -> None:
        """`model` is used as it is, so put it into evaluation mode first; `version` numbers its weights."""
        self._model, self._version = model, version
        self._waiting: list[_Request] = []
        self._working: asyncio.Task[None] | None = None

    async def sample(
        self,
        prompt_T: Ids,
        *,
        max_tokens: int,
        seed: int,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        request: str,  # noqa: ARG002 - there is one place to be served at
    ) -> Completion:
        """Sample up to `max_tokens` ids."""
        if not sampling.exact:
            raise EngineFaultError(f"this engine samples at temperature 1 from all tokens, not with {sampling}")
        asked = _Request(prompt_T, max_tokens, seed, stop_ids, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await asked.answer

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:  # noqa: ARG002
        """Return the log-probs of a suffix, by a forward pass over everything."""
        return Scores(await asyncio.to_thread(self._score, prefix_T, suffix_T), self._version)

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:LARGEST], self._waiting[LARGEST:]
            try:
                await asyncio.to_thread(self._draw, batch)
            except Exception as error:  # out of memory, most of the time
                said = f"the model could not sample: {type(error).__name__}: {error}"
                for each in batch:
                    if not each.answer.done():
                        each.answer.set_exception(EngineFaultError(said))
                continue
            for each in batch:
                if not each.answer.done():  # whoever asked may have gone
                    each.answer.set_result(each.completion(self._version))

    def _draw(self, batch: Sequence[_Request]) -> None:
        import torch

        device = self._model.device
        longest = max(len(each.prompt_T) for each in batch)
        ids_BT = torch.zeros(len(batch), longest, dtype=torch.long, device=device)
        mask_BT = torch.zeros(len(batch), longest, dtype=torch.long, device=device)
        for row, each in enumerate(batch):
            ids_BT[row, longest - len(each.prompt_T) :] = torch.from_numpy(each.prompt_T.astype(np.int64))
            mask_BT[row, longest - len(each.prompt_T) :] = 1
        generators = [torch.Generator().manual_seed(each.seed) for each in batch]
        cache: Any = None
        places = (mask_BT.cumsum(1) - 1).clamp(min=0)
        with torch.inference_mode():
            while batch:
                out = self._model(
                    input_ids=ids_BT,
                    attention_mask=mask_BT,
                    position_ids=places,
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                cache = out.past_key_values
                logprobs_BV = out.logits[:, -1].float().log_softmax(-1).cpu()
                # The least of independent exponential times, each at its token's rate, falls on a token by its odds.
                times = torch.stack([torch.empty(logprobs_BV.shape[1]).exponential_(generator=g) for g in generators])
                drawn_B = (logprobs_BV - times.log()).argmax(-1)
                for row, each in enumerate(batch):
                    each.ids.append(int(drawn_B[row]))
                    each.logprobs.append(float(logprobs_BV[row, drawn_B[row]]))
                left = torch.tensor([row for row, each in enumerate(batch) if not each.over], dtype=torch.long)
                if len(left) < len(batch):
                    cache.batch_select_indices(left.to(device))
                    batch, generators = [batch[row] for row in left], [generators[row] for row in left]
                ids_BT = drawn_B[left, None].to(device)
                ones = torch.ones(len(left), 1, dtype=torch.long, device=device)
                mask_BT = torch.cat([mask_BT[left.to(device)], ones], 1)
                places = places[left.to(device), -1:] + 1

    def _score(self, prefix_T: Ids, suffix_T: Ids) -> Floats:
        import torch

        ids_T = torch.from_numpy(np.concatenate([prefix_T, suffix_T]).astype(np.int64)).to(self._model.device)
        with torch.inference_mode():
            logits = self._model(input_ids=ids_T[None], logits_to_keep=len(suffix_T) + 1).logits[0, :-1]
            logprobs = logits.float().log_softmax(-1)
        scores: Floats = logprobs.gather(1, ids_T[-len(suffix_T) :, None])[:, 0].cpu().numpy()
        return scores
