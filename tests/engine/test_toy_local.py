"""The policy that serves a small model in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from benchmarks.models import write_tiny_qwen3
from benchmarks.toy.local import LocalEngine
from cleaner_rl.rollout import Completion, EngineFaultError, Finish, Sampling
from cleaner_rl.trajectory import Ids


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> LocalEngine:
    return LocalEngine(write_tiny_qwen3(tmp_path_factory.mktemp("tiny") / "model"))


PROMPTS = [np.arange(5, 5 + length, dtype=np.int32) for length in (3, 40, 17)]


async def drawn(engine: LocalEngine, prompt: Ids, seed: int, stop: tuple[int, ...] = ()) -> Completion:
    return await engine.sample(prompt, max_tokens=12, seed=seed, sampling=Sampling(), stop_ids=stop, request="x")


def test_company_changes_neither_the_ids_nor_their_log_probs(engine: LocalEngine) -> None:
    async def together() -> list[Completion]:
        return await asyncio.gather(*(drawn(engine, prompt, 7) for prompt in PROMPTS))

    alone = [asyncio.run(drawn(engine, prompt, 7)) for prompt in PROMPTS]
    for one, other in zip(alone, asyncio.run(together()), strict=True):
        assert one.ids_T.tolist() == other.ids_T.tolist()
        assert one.logprobs_T is not None
        assert one.logprobs_T == pytest.approx(other.logprobs_T, abs=1e-5)
        assert one.finish is Finish.LENGTH
    assert alone[0].ids_T.tolist() != asyncio.run(drawn(engine, PROMPTS[0], 8)).ids_T.tolist()


def test_scores_are_the_log_probs_of_what_was_drawn(engine: LocalEngine) -> None:
    made = asyncio.run(drawn(engine, PROMPTS[1], 3))
    scores = asyncio.run(engine.score(PROMPTS[1], made.ids_T, request="x"))
    assert scores.logprobs == pytest.approx(made.logprobs_T, abs=1e-5)


def test_a_stop_token_ends_a_turn_and_belongs_to_it(engine: LocalEngine) -> None:
    usual = asyncio.run(drawn(engine, PROMPTS[2], 5)).ids_T.tolist()
    stop = usual[4]
    made = asyncio.run(drawn(engine, PROMPTS[2], 5, (stop,)))
    assert made.ids_T.tolist() == usual[: usual.index(stop) + 1]
    assert made.finish is Finish.STOP


def test_other_temperatures_are_refused(engine: LocalEngine) -> None:
    with pytest.raises(EngineFaultError, match="temperature 1"):
        asyncio.run(engine.sample(PROMPTS[0], max_tokens=1, seed=0, sampling=Sampling(0.5), stop_ids=(), request="x"))


def test_the_models_folder_is_read(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        LocalEngine(tmp_path / "nothing")
