"""A fixture: a folder that sandboxed runs can see, since theirs is another /tmp."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_sandbox import Tier
from cleaner_sandbox.isolation.tiers import choose_tier
from cleaner_sandbox.node.probes import probe


@pytest.fixture(scope="session")
def site() -> Iterator[Path]:
    if choose_tier(probe(), None, Tier.NONE) < Tier.T2:
        pytest.skip("sessions need tier 2")
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="cleaner-rl-toy-") as folder:
        yield Path(folder)
