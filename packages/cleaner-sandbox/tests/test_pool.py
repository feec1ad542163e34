"""The pool, over a zygote that the test plays: slots that don't start, and waiters that leave."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cleaner_sandbox.inside import wire
from cleaner_sandbox.node import pool as pool_module
from cleaner_sandbox.node.pool import Pool
from cleaner_sandbox.node.zygotes import Slot
from tests.serving import asynchronous, until

PAUSE = 0.05


class PlayedZygote:
    """Its slots start and do nothing, or end at once."""

    pid = -1

    def __init__(self, *_: object) -> None:
        self.works = True
        self.forks = 0
        self._theirs: list[socket.socket] = []

    async def start(self) -> None:
        pass

    def fork(self, index: int, died: Callable[[Slot], None], kind: type[Slot], _: Any = None) -> Slot:
        self.forks += 1
        control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        requests, their_requests = socket.socketpair()
        self._theirs += (their_control, their_requests)
        if self.works:
            ended = subprocess.Popen(["true"])
            pidfd = os.pidfd_open(ended.pid)
            ended.wait()
            socket.send_fds(their_control, [bytes([wire.KIND_HELLO])], [pidfd])
            os.close(pidfd)
        else:
            their_control.close()
        return kind(index, control, requests, died)

    def kill(self) -> None:
        for each in self._theirs:
            each.close()


@asynccontextmanager
async def started(size: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Pool, PlayedZygote]]:
    """A pool of so many slots."""
    monkeypatch.setattr(pool_module, "Zygote", PlayedZygote)
    monkeypatch.setattr(pool_module, "RETRY_SECONDS", PAUSE)
    pool = Pool("played", {}, size, deque(range(size + 8)))
    await pool.start()
    zygote = pool._zygote
    assert isinstance(zygote, PlayedZygote)
    try:
        yield pool, zygote
    finally:
        await pool.close()


@asynchronous
async def test_slots_that_can_not_start_are_forked_one_at_a_time_with_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, sleep = 0, asyncio.sleep

    async def counting(seconds: float) -> None:
        nonlocal pauses
        pauses += seconds == PAUSE
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", counting)
    async with started(4, monkeypatch) as (pool, zygote):
        zygote.works, before = False, zygote.forks
        for _ in range(2):
            (await pool.take()).kill()
        await until(lambda: zygote.forks >= before + 6)
        assert pauses >= 4
        assert len(pool._tasks) == 1
        zygote.works = True
        slots = [await pool.take() for _ in range(4)]
        assert len({slot.index for slot in slots}) == 4
        await until(lambda: not pool._tasks)


@asynchronous
async def test_a_waiter_that_leaves_when_its_turn_has_come_passes_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(1, monkeypatch) as (pool, _):
        slot = await pool.take()
        leaves, stays = [asyncio.create_task(pool.take()) for _ in range(2)]
        await asyncio.sleep(0)
        pool.give(slot)
        leaves.cancel()
        assert await asyncio.wait_for(stays, 10) is slot
        assert leaves.cancelled()
