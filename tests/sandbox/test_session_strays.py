"""Processes that a cell leaves behind: they end with it, or stay within the session's limits."""

from __future__ import annotations

import time

import pytest

from cleaner_rl.sandbox import Limits
from cleaner_rl.tools import Status
from tests.sandbox.conftest import Driver
from tests.sandbox.test_sessions import Cells

FORK_FOREVER = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


@pytest.mark.timeout(110)
def test_a_cell_that_forks_forever_is_stopped_and_undone(t2: Driver) -> None:
    cells = Cells(t2, limits=Limits(cpu_seconds=1, wall_seconds=3, processes=64))
    cells.show("x = 1")
    began = time.monotonic()
    assert cells.fail(FORK_FOREVER).result.status is Status.TIMEOUT
    assert time.monotonic() - began < 60
    assert cells.show("x += 1; print(x)") == "2\n"
    assert cells.rollback(0) == 0
