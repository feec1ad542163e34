"""The log of calls, and what becomes of it without a reader."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from cleaner_rl.sandbox.service.observe import CallLog


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
