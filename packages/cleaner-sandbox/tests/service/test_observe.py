"""The log of calls, and what becomes of it without a reader."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest

from cleaner_sandbox.service.observe import CallLog
from tests.serving import Caller, asynchronous, opened
from tests.watched import WatchedNode


def test_a_log_that_nobody_reads_any_more_is_dropped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = os.pipe()

    async def write(log: CallLog) -> None:
        log.add(b"one")
        log.flush()
        assert os.read(reader, 100) == b"one\n"
        os.close(reader)
        for _ in range(3):
            log.add(b"another")
            log.flush()
        assert not log._lines

    with caplog.at_level(logging.WARNING), os.fdopen(writer, "wb") as stream:
        asyncio.run(write(CallLog(stream)))
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the log of calls can't be written, and ends here"
    ]


def test_an_observer_that_raises_loses_neither_a_calls_answer_nor_its_slot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(*_: Any) -> None:
        raise ValueError("no such metric")

    @asynchronous
    async def check() -> None:
        async with opened(WatchedNode(slots=1)) as (url, app), Caller(url) as caller:
            monkeypatch.setattr(app.observer, "call_ended", raising)
            _, expired = await caller.post("/v1/run", {"code": "", "within": 0})
            assert expired["fault"] == "expired"
            for number in range(3):
                _, body = await caller.post("/v1/run", {"code": f"print({number})"})
                assert body["output"] == f"{number}\n"
            assert (app.queue.running, app.queue.waiting) == (0, 0)

    check()
    assert {record.message for record in caplog.records} == {"the end of a call could not be recorded"}
