"""What every engine must do that serves a model to rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import numpy as np

from cleaner_rl.rollout import Completion, Engine, EngineFaultError, Finish, Sampling
from cleaner_rl.trajectory import Floats

LEAVING = 15.0
"""Seconds in which a request that is cancelled must be gone."""
TOKENS = 16
"""Tokens that a request of these tests asks for."""


class EngineContract:
    """Subclass it, name the subclass `Test…`, and give `make` or `running`, and what is below.

    The model must be able to continue each prompt by 16 tokens, and must not be sure of all of them.
    """

    prompts: Sequence[Sequence[int]]
    """Three prompts or more, as ids; no two are alike."""
    too_long: Sequence[int] | None = None
    """A prompt that the model has no room for, where the engine can say so."""
    tolerance: float = 1e-3
    """How far the log-prob of a sampled token may be from its score: by rounding alone. With float32 it is 1e-5."""

    def make(self) -> Engine:
        """The engine."""
        raise NotImplementedError

    def running(self) -> AbstractAsyncContextManager[Engine]:
        """The engine with whatever it needs around it, such as a server."""
        return _just(self.make())

    def test_a_completion_has_what_was_asked_for_and_no_more(self) -> None:
        """A turn that is cut off is no turn that ended, and no token is there that nobody asked for."""

        async def check(engine: Engine) -> None:
            for most in (TOKENS, 1):
                found = await _sample(engine, self.prompts[0], most=most)
                assert len(found.ids_T) == most, f"asked for {most} tokens without a stop, it gave {len(found.ids_T)}"
                assert found.finish is Finish.LENGTH, f"cut off after {most} tokens, it says {found.finish}"
                _logprobs(found)

        self._check(check)

    def test_a_stop_token_ends_it_and_is_its_last_token(self) -> None:
        """The next turn is rendered behind this token, so it must be there, once."""

        async def check(engine: Engine) -> None:
            whole = (await _sample(engine, self.prompts[0])).ids_T.tolist()
            stop = whole[len(whole) // 2]
            found = await _sample(engine, self.prompts[0], stop_ids=(stop,))
            expected = whole[: whole.index(stop) + 1]
            assert found.ids_T.tolist() == expected, f"stopped at {stop} it gave {found.ids_T.tolist()}, not {expected}"
            assert found.finish is Finish.STOP, f"it ended with a stop token and says {found.finish}"
            assert len(_logprobs(found)) == len(expected)

        self._check(check)

    def test_a_seed_decides_what_is_sampled(self) -> None:
        """Rollouts of a group differ by their seeds alone, and a run can be repeated."""

        async def check(engine: Engine) -> None:
            first, again, *others = [
                (await _sample(engine, self.prompts[0], seed=seed)).ids_T.tolist() for seed in (7, 7, 8, 9, 10)
            ]
            assert first == again, f"the same seed gave {first}, then {again}"
            assert any(each != first for each in others), f"four seeds gave the same: {first}"

        self._check(check)

    def test_scores_are_the_logprobs_at_which_tokens_were_sampled(self) -> None:
        """Tokens that a repair moved are scored, and trained on beside tokens that were sampled."""

        async def check(engine: Engine) -> None:
            for prompt in self.prompts:
                found = await _sample(engine, prompt)
                for cut in (0, TOKENS // 2):
                    prefix = np.concatenate([np.array(prompt, np.int32), found.ids_T[:cut]])
                    scores = await engine.score(prefix, found.ids_T[cut:], request="contract")
                    self._near(scores.logprobs, _logprobs(found)[cut:], "sampled, and scored")

        self._check(check)

    def test_requests_at_the_same_time_keep_to_their_own_prompts(self) -> None:
        """A batch of requests is answered each by itself."""

        async def check(engine: Engine) -> None:
            asked = [(prompt, seed) for prompt in self.prompts for seed in (1, 2)]
            found = await asyncio.gather(*[_sample(engine, prompt, seed=seed) for prompt, seed in asked])
            scored = [
                engine.score(np.array(prompt, np.int32), each.ids_T, request="contract")
                for (prompt, _), each in zip(asked, found, strict=True)
            ]
            for each, scores in zip(found, await asyncio.gather(*scored), strict=True):
                self._near(scores.logprobs, _logprobs(each), "sampled beside others, and scored")

        self._check(check)

    def test_a_request_that_is_cancelled_leaves_the_others_alone(self) -> None:
        """The wall time of a rollout ends it in the middle of a request."""

        async def check(engine: Engine) -> None:
            expected = (await _sample(engine, self.prompts[0])).ids_T.tolist()
            other = asyncio.create_task(_sample(engine, self.prompts[0]))
            task = asyncio.create_task(_sample(engine, self.prompts[1]))
            await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=LEAVING)
            assert done, f"a cancelled request was still there after {LEAVING:g} s"
            assert task.cancelled(), f"a cancelled request ended with {task.exception()!r}"
            beside = (await other).ids_T.tolist()
            after = (await _sample(engine, self.prompts[0])).ids_T.tolist()
            assert beside == after == expected, (
                f"beside a cancelled request: {beside}, after it: {after}, not {expected}"
            )

        self._check(check)

    def test_what_it_cannot_do_is_a_fault(self) -> None:
        """`EngineFaultError` ends one rollout, and its words reach whoever reads the run."""

        async def check(engine: Engine) -> None:
            if self.too_long is None:
                return
            raised = ""
            try:
                found = await _sample(engine, self.too_long)
                raised = f"nothing, and gave {found.ids_T.tolist()}"
            except EngineFaultError as error:
                raised = "" if str(error).strip() else "a fault without words"
            except Exception as error:
                raised = f"{error!r}, which is no EngineFaultError"
            assert not raised, f"a prompt without room raised {raised}"

        self._check(check)

    def _near(self, found: Floats, expected: Floats, what: str) -> None:
        assert len(found) == len(expected), f"{len(expected)} tokens have {len(found)} scores"
        apart = float(np.abs(np.asarray(found) - np.asarray(expected)).max())
        assert apart <= self.tolerance, f"{what}: a token's log-probs are {apart:g} apart, more than {self.tolerance:g}"

    def _check(self, check: Callable[[Engine], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with self.running() as engine:
                await check(engine)

        asyncio.run(whole())


@asynccontextmanager
async def _just(engine: Engine) -> AsyncIterator[Engine]:
    yield engine


async def _sample(
    engine: Engine, prompt: Sequence[int], *, most: int = TOKENS, seed: int = 1, stop_ids: tuple[int, ...] = ()
) -> Completion:
    return await engine.sample(
        np.array(prompt, np.int32),
        max_tokens=most,
        seed=seed,
        sampling=Sampling(),
        stop_ids=stop_ids,
        request="contract",
    )


def _logprobs(found: Completion) -> Floats:
    assert found.logprobs_T is not None, "it gave no log-probs, without which a rollout can't be trained on"
    assert len(found.logprobs_T) == len(found.ids_T), (
        f"{len(found.ids_T)} tokens have {len(found.logprobs_T)} log-probs; each has one, the stop token too"
    )
    assert bool((np.asarray(found.logprobs_T) <= 0).all()), f"these are no log-probs: {found.logprobs_T.tolist()}"
    return found.logprobs_T
