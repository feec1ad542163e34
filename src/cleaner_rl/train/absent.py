"""Rollouts that give no row though nothing broke: dropped by the recipe's choice, or out of wall time.

verl learns of a rollout by its rows alone, so one without any looks like a fault. Such a rollout says so in a partition
of its own in verl's queue, before its group ends; the sampler counts it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import transfer_queue as tq

from cleaner_rl.trajectory import Ending

NOBODYS_FAULT = (Ending.DROPPED, Ending.TIME_LIMIT)


def told_in(partition_id: str) -> str:
    """The partition beside one of verl's."""
    return f"{partition_id}-absent"


async def tell_absent(row: Mapping[str, Any], partition_id: str, ending: Ending) -> None:
    """This rollout of verl's row ended so, and there is nothing to learn from it."""
    key = f"{row['uid']}_{row['session_id']}"
    await tq.async_kv_put(key=key, partition_id=told_in(partition_id), tag={"ending": str(ending)})
