"""A session's link, its supervisor played by the test: cells whose end nobody is there to take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cleaner_sandbox.inside import wire
from cleaner_sandbox.node import links
from cleaner_sandbox.node.links import SessionLink
from cleaner_sandbox.node.zygotes import SlotDiedError, close_all
from tests.serving import asynchronous
from tests.test_zygotes import Supervisor, cancel_then_end, end_then_cancel, meets, open_descriptors


@pytest.mark.parametrize("meet", [end_then_cancel, cancel_then_end])
@asynchronous
async def test_a_cell_that_ends_just_when_it_is_cancelled_leaves_no_descriptor(
    meet: Callable[[Supervisor, asyncio.Task[object]], None],
) -> None:
    assert await meets(lambda link: link.cell(b"start", b"request", 60), meet, SessionLink) == 0


@asynchronous
async def test_a_supervisor_that_dies_between_a_cells_end_and_its_status_leaves_no_descriptor() -> None:
    before = open_descriptors()
    supervisor = Supervisor(SessionLink)
    assert isinstance(supervisor.slot, SessionLink)
    cell = asyncio.create_task(supervisor.slot.cell(b"start", b"request", 60))
    await asyncio.sleep(0)
    supervisor.read(len(b"request"))
    supervisor.end_run()
    await asyncio.sleep(0)
    supervisor.control.close()
    with pytest.raises(SlotDiedError):
        await cell
    supervisor.close()
    assert open_descriptors() == before


@asynchronous
async def test_finding_a_cell_whose_session_is_given_up_after_it_has_its_answer() -> None:
    """What its program left can't be ended: that is the program's doing, and no fault."""
    supervisor = Supervisor(SessionLink)
    assert isinstance(supervisor.slot, SessionLink)
    cell = asyncio.create_task(supervisor.slot.cell(b"start", b"request", 60))
    await asyncio.sleep(0)
    supervisor.read(len(b"request"))
    supervisor.end_run()
    await asyncio.sleep(0)
    supervisor.control.send(bytes([wire.KIND_GIVEN_UP]))
    supervisor.slot._readable()
    supervisor.control.close()
    run_exit, files, status = await cell
    assert (run_exit.reason, status) == (wire.EXITED, None)
    close_all(files)
    supervisor.close()


@asynchronous
async def test_a_supervisor_that_does_not_say_where_it_stands_is_given_up() -> None:
    before = open_descriptors()
    waits: list[Callable[[SessionLink], Coroutine[Any, Any, object]]] = [
        lambda link: link.first(),
        lambda link: link.cell(b"start", b"request", 60),
        lambda link: link.rollback(0),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "STATUS_SECONDS", 0.01)
        for number, wait in enumerate(waits):
            supervisor = Supervisor(SessionLink)
            assert isinstance(supervisor.slot, SessionLink)
            waiting = asyncio.create_task(wait(supervisor.slot))
            await asyncio.sleep(0)
            if number == 1:
                supervisor.read(len(b"request"))
                supervisor.end_run()
            with pytest.raises(SlotDiedError):
                await waiting
            supervisor.close()
    assert open_descriptors() == before
