"""Several replicas of an engine as one policy: each trajectory stays with one of them, and leaves it when it breaks.

A replica that had a fault is left alone for a while; its requests go to the others, or wait for it if there is none.

Limits: a new trajectory goes to the replica with the fewest requests, whatever their lengths are.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cleaner_rl.rollout.policy import Completion, EngineFaultError, EngineRefusedError, Policy, Sampling
from cleaner_rl.trajectory import Ids, Scores

REST = 5.0
"""Seconds that a replica is left alone after a fault."""
MOST_NAMES = 65_536
"""Trajectories whose place is remembered."""

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Replica:
    policy: Policy
    outstanding: int = 0
    resting_until: float = 0.0


class Replicas:
    """A policy over policies."""

    def __init__(self, policies: Sequence[Policy], *, patience: float = 300.0) -> None:
        """`patience`: seconds that a request waits while no replica can answer it."""
        self._replicas = [_Replica(policy) for policy in policies]
        self._patience = patience
        self._homes: OrderedDict[str, _Replica] = OrderedDict()

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
        """Draw up to `max_tokens` ids, where the trajectory is at home."""
        return await self._at_home(
            request,
            lambda policy: policy.sample(
                prompt_T, max_tokens=max_tokens, seed=seed, sampling=sampling, stop_ids=stop_ids, request=request
            ),
        )

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        """The log-probs of a suffix, where the trajectory is at home."""
        return await self._at_home(request, lambda policy: policy.score(prefix_T, suffix_T, request=request))

    async def _at_home(self, request: str, ask: Callable[[Policy], Awaitable[T]]) -> T:
        begun = time.monotonic()
        while True:
            replica = self._home(request)
            replica.outstanding += 1
            try:
                return await ask(replica.policy)
            except EngineRefusedError:
                raise
            except EngineFaultError:
                replica.resting_until = time.monotonic() + REST
                self._homes.pop(request, None)
                if time.monotonic() - begun > self._patience:
                    raise
                await asyncio.sleep(self._until_one_is_awake())
            finally:
                replica.outstanding -= 1

    def _home(self, request: str) -> _Replica:
        if request not in self._homes:
            # Those that rest come last: the one that will be awake first, if all do.
            now = time.monotonic()
            best = min(self._replicas, key=lambda each: (max(0.0, each.resting_until - now), each.outstanding))
            self._homes[request] = best
            if len(self._homes) > MOST_NAMES:
                self._homes.popitem(last=False)
        self._homes.move_to_end(request)
        return self._homes[request]

    def _until_one_is_awake(self) -> float:
        return max(0.0, min(each.resting_until for each in self._replicas) - time.monotonic())
