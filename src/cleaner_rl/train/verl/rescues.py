"""Lets a group wait for its rescue on verl, and no other group.

verl runs all rollouts of a prompt in one process and takes the group as ended when the last of them has. So the rescue
is one more of them: it waits until the others have ended, and then tries. If it finds a right rollout, that is a row of
the group like any other. What it sampled in vain is in no row. The agent loop writes it to a separate partition of
verl's queue before the group ends, and the sampler counts it there.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from typing import Any

import transfer_queue as tq

from cleaner_rl.train.rows import Graded

TRIED_IN = "train-rescues"
"""The partition for rescues. Its keys are the ids of prompts, and its tags say how many tokens a rescue sampled."""
TOKENS = "tokens"


class RunningGroups:
    """Holds the ended rollouts of groups that run in this process, until the rescue of their group has them all."""

    def __init__(self) -> None:
        self._ended: dict[str, dict[int, asyncio.Future[Graded]]] = defaultdict(dict)

    async def ended(self, uid: str, number: int, rollout: Awaitable[Graded]) -> Graded:
        """Await one rollout of a group, and keep it for the group's rescue."""
        place = self._place(uid, number)
        try:
            made = await rollout
        except BaseException:
            place.cancel()
            raise
        place.set_result(made)
        return made

    async def group(self, uid: str, size: int) -> list[Graded] | None:
        """Wait until all rollouts of a group have ended, and return them; None if one of them raised an exception."""
        places = [self._place(uid, number) for number in range(size)]
        await asyncio.wait(places)
        del self._ended[uid]
        return None if any(place.cancelled() for place in places) else [place.result() for place in places]

    def _place(self, uid: str, number: int) -> asyncio.Future[Graded]:
        places = self._ended[uid]
        if number not in places:
            places[number] = asyncio.get_running_loop().create_future()
        return places[number]


async def tell_rescue(row: Mapping[str, Any], tokens: int) -> None:
    """Report that a rescue was tried for the group of verl's row, and how many tokens it sampled."""
    await tq.async_kv_put(key=str(row["uid"]), partition_id=TRIED_IN, tag={TOKENS: tokens})
