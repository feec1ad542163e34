"""Hands the actor's weights to engines in other processes, over gloo: what verl's `separate_async` needs without a GPU.

verl loads it by the name of this module (`rollout.checkpoint_engine.custom_backend_module`) and calls its backend
`gloo`. For each update, the first actor rank and all rollout workers make a group of their own, so engines may come and
go between updates. The first rank sends buckets: the sizes of two parts, then a description of the weights (JSON), then
their bytes. The other actor ranks only take part in gathering the weights.

Limits: tensors in the machine's memory. A weight that is larger than a bucket is a bucket of its own. Whoever reaches
the port of the first rank while a group is made can disturb it: keep the machines of a run in a network of their own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed as dist
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.rollout.utils import ensure_async_iterator

BACKEND = "gloo"
PATIENCE = timedelta(minutes=5)
"""For all workers to come together, and for each bucket."""
NO_PART = -1
"""The rank of an actor that sends nothing."""


@CheckpointEngineRegistry.register(BACKEND)
class GlooWeights(CheckpointEngine):  # type: ignore[misc]  # verl has no types
    """One worker's end of the transfer."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._bucket_bytes, self._is_first = bucket_size, is_master
        self._store: dist.TCPStore | None = None
        self._group: dist.ProcessGroupGloo | None = None
        self._rank = NO_PART

    def prepare(self) -> dict[str, Any]:
        """Open the place where the group comes together, at the first actor rank, and say where it is."""
        if not self._is_first:
            return {}
        host = ray.util.get_node_ip_address().strip("[]")
        self._store = dist.TCPStore(host, 0, is_master=True, timeout=PATIENCE, wait_for_workers=False)
        return {"host": host, "port": self._store.port}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Give the first actor rank 0, the rollout workers the ranks after it, and the other actors no part."""

        def places(ranks: Sequence[int]) -> dict[str, list[Any]]:
            size = 1 + rollout_world_size
            return {"rank": [*ranks], "world_size": [size] * len(ranks), "meeting": [metadata[0]] * len(ranks)}

        actors = [0, *[NO_PART] * (actor_wg_world_size - 1)]
        return places(actors), places(range(1, 1 + rollout_world_size))

    def init_process_group(self, rank: int, world_size: int, meeting: dict[str, Any]) -> None:
        """Join the group."""
        self._rank = rank
        if rank == NO_PART:
            return
        if self._store is None:
            self._store = dist.TCPStore(meeting["host"], meeting["port"], is_master=False, timeout=PATIENCE)
        self._group = dist.ProcessGroupGloo(dist.PrefixStore("weights", self._store), rank, world_size, PATIENCE)

    def finalize(self) -> None:
        """Leave the group."""
        self._group = self._store = None

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, Any]:  # noqa: ARG002 - verl's
        """Send all weights; every actor rank goes through them, because gathering one takes all ranks."""
        bucket: list[tuple[str, torch.Tensor]] = []
        held = 0
        async for name, weight in ensure_async_iterator(weights):
            if self._rank == NO_PART:
                continue
            bucket.append((name, weight.detach().cpu().contiguous()))
            held += weight.nbytes
            if held >= self._bucket_bytes:
                self._send(bucket, last=False)
                bucket, held = [], 0
        if self._rank != NO_PART:
            self._send(bucket, last=True)
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:  # noqa: ARG002 - verl's
        """Yield all weights, in the order in which they were sent."""
        last = False
        while not last:
            sizes = self._broadcast(torch.zeros(2, dtype=torch.int64))
            head = self._broadcast(torch.empty(int(sizes[0]), dtype=torch.uint8))
            told = json.loads(head.numpy().tobytes())
            body = self._broadcast(torch.empty(int(sizes[1]), dtype=torch.uint8))
            last, at = told["last"], 0
            for name, shape, dtype in told["weights"]:
                kind = getattr(torch, dtype)
                size = torch.Size(shape).numel() * kind.itemsize
                # A copy: the place in the bucket need not be one where a number of this kind may begin.
                yield name, body[at : at + size].clone().view(kind).view(shape)
                at += size

    def _send(self, bucket: Sequence[tuple[str, torch.Tensor]], last: bool) -> None:
        described = [(name, list(weight.shape), str(weight.dtype).removeprefix("torch.")) for name, weight in bucket]
        head = bytearray(json.dumps({"weights": described, "last": last}).encode())
        parts = [weight.view(-1).view(torch.uint8) for _, weight in bucket if weight.numel()]
        body = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)
        self._broadcast(torch.tensor([len(head), body.numel()]))
        self._broadcast(torch.frombuffer(head, dtype=torch.uint8))
        self._broadcast(body)

    def _broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Send a tensor from the first rank to all others, and return it."""
        assert self._group is not None
        if tensor.numel():
            options = dist.BroadcastOptions()
            options.rootRank = 0
            self._group.broadcast([tensor], options).wait()
        return tensor
