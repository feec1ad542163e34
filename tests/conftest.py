"""Chooses the profile: how many examples property tests have, and whether slow tests run (see `tests.profile`).

`pytest --hypothesis-profile=thorough` tries harder than either, before a release.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.profile import EXAMPLES, SHORT

# Shared machines stall: a test is bounded by its time-out, not by the time of one example.
FULL = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("full", FULL)
settings.register_profile("ci", FULL, max_examples=EXAMPLES, derandomize=True, database=None)
settings.register_profile("thorough", FULL, max_examples=2_000)
settings.load_profile("ci" if SHORT else "full")


@pytest.fixture
def untraced() -> Iterator[None]:
    """Leave a test out of coverage's trace, which makes code several times slower than the test allows."""
    trace = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(trace)


@pytest.hookimpl(trylast=True)  # after the folders' own, which mark some
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked slow, in the short profile."""
    slow = [item for item in items if SHORT and item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
