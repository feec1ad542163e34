"""Reports rollouts that give no row although nothing broke: dropped by the recipe's choice, or out of wall time.

verl knows a rollout only by its rows, so one without rows looks like a fault. The agent loop writes such a rollout to a
separate partition of verl's queue before its group ends, and the sampler counts it there. It is a module of its own,
because the two run in different processes and import different parts of verl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import transfer_queue as tq

from cleaner_rl.trajectory import StopReason


def told_in(partition_id: str) -> str:
    """Return the partition for the excluded rollouts of one of verl's partitions."""
    return f"{partition_id}-absent"


async def tell_absent(row: Mapping[str, Any], partition_id: str, stop_reason: StopReason | None) -> None:
    """Report that this rollout of verl's row ended so and isn't trained on."""
    key = f"{row['uid']}_{row['session_id']}"
    await tq.async_kv_put(key=key, partition_id=told_in(partition_id), tag={"ending": str(stop_reason)})
