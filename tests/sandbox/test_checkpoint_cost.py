"""The short form of `python -m benchmarks.sandbox_checkpoint --json`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cleaner_rl.sandbox import Tier
from tests.sandbox.conftest import needs


@pytest.mark.timeout(240)
def test_a_checkpoint_costs_about_what_a_fork_costs_however_large_the_folder() -> None:
    """A few rounds on a shared machine are no measurement: the bound is twice the one that the long form keeps."""
    needs(Tier.T2)
    command = [sys.executable, "-m", "benchmarks.sandbox_checkpoint", "--json", "--cells", "20", "--rounds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=220)
    figures = json.loads(done.stdout)
    for case in ("empty", "50mb"):
        assert 0 < figures[case]["checkpoint_ms"] < 3 * figures[case]["fork_ms"], figures
