from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from cleaner_rl.rollout import Completion, EngineFaultError, EngineRefusedError, Finish, Sampling
from cleaner_rl.rollout.engines import Replicas, replicas
from cleaner_rl.trajectory import Ids, Scores
from tests.sandbox.serving import asynchronous

PROMPT = np.array([1, 2, 3], np.int32)


class Standing:
    """A stand-in for a replica: answers, breaks or refuses, and keeps who asked."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked: list[str] = []
        self.held: asyncio.Event | None = None

    async def sample(self, prompt_T: Ids, *, request: str, **options: Any) -> Completion:
        self.asked.append(request)
        if self.held is not None:
            await self.held.wait()
        if self.errors:
            raise self.errors.pop(0)
        return Completion(prompt_T, None, Finish.STOP)

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        self.asked.append(request)
        return Scores(np.zeros(len(suffix_T), np.float32))


async def ask(policy: Replicas, request: str) -> Completion:
    return await policy.sample(PROMPT, max_tokens=1, seed=0, sampling=Sampling(), stop_ids=(), request=request)


@asynchronous
async def test_a_trajectory_stays_where_it_is_and_new_ones_go_where_the_fewest_are() -> None:
    one, two = Standing(), Standing()
    one.held = two.held = asyncio.Event()
    policy = Replicas([one, two])
    waiting = [asyncio.create_task(ask(policy, name)) for name in "abcd"]
    await asyncio.sleep(0)
    one.held.set()
    await asyncio.gather(*waiting)
    assert (sorted(one.asked), sorted(two.asked)) == (["a", "c"], ["b", "d"])
    for _ in range(3):
        await ask(policy, "b")
        await policy.score(PROMPT, PROMPT, request="b")
    assert two.asked.count("b") == 7
    assert "b" not in one.asked


@asynchronous
async def test_a_replica_that_breaks_is_left_alone_and_its_trajectories_move() -> None:
    one, two = Standing(EngineFaultError("gone")), Standing()
    policy = Replicas([one, two])
    await ask(policy, "a")
    assert (one.asked, two.asked) == (["a"], ["a"])
    await ask(policy, "b")
    await ask(policy, "a")
    assert one.asked == ["a"]
    assert two.asked == ["a", "b", "a"]


@asynchronous
async def test_where_none_answers_they_are_waited_for_until_patience_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "REST", 0.02)
    gone = [EngineFaultError("gone")] * 5
    one, two = Standing(*gone), Standing(*gone)
    await ask(Replicas([one, two], patience=30), "a")
    assert len(one.asked) + len(two.asked) >= 6
    with pytest.raises(EngineFaultError, match="gone"):
        await ask(Replicas([Standing(*gone * 100), Standing(*gone * 100)], patience=0.1), "a")


@asynchronous
async def test_what_one_refuses_is_not_sent_to_another() -> None:
    one, two = Standing(EngineRefusedError("too long")), Standing()
    with pytest.raises(EngineRefusedError):
        await ask(Replicas([one, two]), "a")
    assert not two.asked
