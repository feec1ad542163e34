"""A slot as the node sees it, played by the test: ends and cancellations that fall into one turn of the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cleaner_rl.sandbox.inside import wire
from cleaner_rl.sandbox.zygotes import Slot
from tests.sandbox.serving import asynchronous

DONE = wire.DONE.pack(wire.KIND_DONE, wire.EXITED, 0, 0.0, 0.0, 0.0, 0)


class Supervisor:
    """The other side of a slot."""

    def __init__(self, kind: type[Slot] = Slot) -> None:
        ours, self.control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        requests, self.requests = socket.socketpair()
        ours.setblocking(False)
        requests.setblocking(False)
        self.slot = kind(0, ours, requests, lambda _: None)

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
