"""A slot as the node sees it, played by the test: ends and cancellations that fall into one turn of the event loop, and
ends of runs that have not read their whole request."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cleaner_sandbox.inside import wire
from cleaner_sandbox.node.zygotes import Slot, SlotDiedError, close_all
from tests.serving import asynchronous

DONE = wire.DONE.pack(wire.KIND_DONE, wire.EXITED, 0, 0.0, 0.0, 0.0, 0)


class Supervisor:
    """The other side of a slot."""

    def __init__(self, kind: type[Slot] = Slot) -> None:
        ours, self.control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        requests, self.requests = socket.socketpair()
        ours.setblocking(False)
        requests.setblocking(False)
        self.slot = kind(0, ours, requests, lambda _: None)

    def read(self, size: int) -> None:
        """So much of the request."""
        self.requests.recv(size, socket.MSG_WAITALL)

    def end_run(self) -> None:
        """Hand over what a run left, and have the slot read it before anything else happens."""
        files = [os.memfd_create(name) for name in ("stdout", "stderr", "report")]
        socket.send_fds(self.control, [DONE], files)
        for descriptor in files:
            os.close(descriptor)
        self.slot._readable()

    def close(self) -> None:
        self.slot.kill()
        self.control.close()
        self.requests.close()


def open_descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))


def end_then_cancel(supervisor: Supervisor, run: asyncio.Task[object]) -> None:
    supervisor.end_run()
    run.cancel()


def cancel_then_end(supervisor: Supervisor, run: asyncio.Task[object]) -> None:
    run.cancel()
    supervisor.end_run()


async def meets(
    begin: Callable[[Any], Coroutine[Any, Any, object]],
    meet: Callable[[Supervisor, asyncio.Task[object]], None],
    kind: type[Slot] = Slot,
) -> int:
    """How many descriptors are left of something in a slot that ended just when it was cancelled."""
    before = open_descriptors()
    supervisor = Supervisor(kind)
    begun = asyncio.create_task(begin(supervisor.slot))
    await asyncio.sleep(0)
    meet(supervisor, begun)
    with pytest.raises(asyncio.CancelledError):
        await begun
    supervisor.close()
    return open_descriptors() - before


@pytest.mark.parametrize("meet", [end_then_cancel, cancel_then_end])
@asynchronous
async def test_a_run_that_ends_just_when_it_is_cancelled_leaves_no_descriptor(
    meet: Callable[[Supervisor, asyncio.Task[object]], None],
) -> None:
    assert await meets(lambda slot: slot.run(b"start", b"request", 60), meet) == 0


@pytest.mark.parametrize(
    ("size", "read", "used_on"),
    [(100, 100, True), (100, 99, False), (100, 0, False), (8 << 20, 100_000, False), (8 << 20, 0, False)],
)
@asynchronous
async def test_a_slot_whose_run_ended_before_it_had_read_its_request_is_used_no_more(
    size: int, read: int, used_on: bool
) -> None:
    before = open_descriptors()
    supervisor = Supervisor()
    run = asyncio.create_task(supervisor.slot.run(b"start", bytes(size), 60))
    await asyncio.sleep(0)
    supervisor.read(read)
    supervisor.end_run()
    run_exit, files = await run
    assert run_exit.reason == wire.EXITED
    assert supervisor.slot.alive is used_on
    close_all(files)
    supervisor.close()
    assert open_descriptors() == before


@asynchronous
async def test_a_request_larger_than_a_sockets_buffer_arrives_whole() -> None:
    supervisor = Supervisor()
    run = asyncio.create_task(supervisor.slot.run(b"start", bytes(8 << 20), 60))
    await asyncio.to_thread(supervisor.read, 8 << 20)
    supervisor.end_run()
    close_all((await run)[1])
    assert supervisor.slot.alive
    supervisor.close()


@asynchronous
async def test_a_slot_that_dies_while_its_request_is_sent_says_so() -> None:
    supervisor = Supervisor()
    run = asyncio.create_task(supervisor.slot.run(b"start", bytes(8 << 20), 60))
    await asyncio.sleep(0)
    supervisor.slot.kill()
    with pytest.raises(SlotDiedError):
        await run
    supervisor.close()


def test_what_is_longer_than_one_message_is_none() -> None:
    with pytest.raises(ValueError, match="more"):
        wire.body(-1, 4, b"12345")
