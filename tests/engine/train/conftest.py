"""The smallest toy environment, which takes a minute to make: one for all tests of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.toy.smallest import make
from tests.toy_site import site

__all__ = ["site"]


@pytest.fixture(scope="session")
def world(site: Path) -> Path:
    return make(site / "world")
