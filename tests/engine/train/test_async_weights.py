"""The transfer of weights to engines in other processes: every rollout worker gets what the first actor rank sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cleaner_rl.train.verl.gloo_weights import GlooWeights

pytestmark = pytest.mark.timeout(300)

ACTORS, WORKERS = 2, 2


def weights(update: int) -> Iterator[tuple[str, Any]]:
    """Of every kind that models have, with shapes that don't fall on the borders of buckets."""
    import torch

    torch.manual_seed(update)
    for index, shape in enumerate([(3, 5), (1,), (), (257, 31), (0, 4), (64, 64)]):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            yield f"layers.{index}.{dtype}", torch.randn(shape).to(dtype)
    yield "counts", torch.arange(7, dtype=torch.int64) + update
    yield "flags", torch.tensor([True, False, True])
    yield "a view", torch.randn(8, 6).T


def worker(pipe: Connection, is_first: bool) -> None:
    """One process of the run; the parent plays verl's manager, which calls these methods by name."""
    import torch

    from cleaner_rl.train.verl.gloo_weights import GlooWeights

    torch.set_num_threads(1)
    engine = GlooWeights(bucket_size=20_000, is_master=is_first)
    while (asked := pipe.recv()) is not None:
        method, arguments = asked
        if method == "send":
            asyncio.run(engine.send_weights(weights(arguments)))
            pipe.send(None)
        elif method == "receive":
            pipe.send(asyncio.run(received(engine)))
        else:
            pipe.send(getattr(engine, method)(**arguments))


async def received(engine: GlooWeights) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    return [(name, *plain(weight)) async for name, weight in engine.receive_weights()]


def plain(weight: Any) -> tuple[str, tuple[int, ...], bytes]:
    import torch

    whole = weight.contiguous().view(-1).view(torch.uint8) if weight.numel() else torch.empty(0, dtype=torch.uint8)
    return str(weight.dtype), tuple(weight.shape), whole.numpy().tobytes()


def test_async_engines_get_exactly_the_actors_weights_update_after_update() -> None:
    from cleaner_rl.train.verl.gloo_weights import NO_PART, GlooWeights

    context = get_context("forkserver")
    context.set_forkserver_preload(["cleaner_rl.train.verl.gloo_weights"])  # once for all: verl takes long
    ends = [context.Pipe() for _ in range(ACTORS + WORKERS)]
    processes = [context.Process(target=worker, args=(theirs, index == 0)) for index, (_, theirs) in enumerate(ends)]
    for process in processes:
        process.start()
    pipes = [ours for ours, _ in ends]

    def ask(*asked: Any) -> list[Any]:
        for pipe, each in zip(pipes, asked, strict=True):
            pipe.send(each)
        for pipe in pipes:
            assert pipe.poll(120), "a worker doesn't answer"
        return [pipe.recv() for pipe in pipes]

    try:
        for update in range(3):
            metadata = ask(*[("prepare", {})] * len(pipes))
            assert [bool(each) for each in metadata] == [True, False, False, False]
            actors, workers = GlooWeights.build_topology(ACTORS, WORKERS, metadata)
            assert actors["rank"] == [0, NO_PART]
            joined = [
                {key: value[index] for key, value in part.items()}
                for part in (actors, workers)
                for index in range(len(part["rank"]))
            ]
            ask(*[("init_process_group", each) for each in joined])
            answers = ask(*[("send", update)] * ACTORS, *[("receive", None)] * WORKERS)
            sent = [(name, *plain(weight)) for name, weight in weights(update)]
            for found in answers[ACTORS:]:
                assert found == sent
            ask(*[("finalize", {})] * len(pipes))
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            pipe.send(None)
            process.join(30)
            process.kill()
