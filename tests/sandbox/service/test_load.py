"""A node under load, the short form of `python -m benchmarks.sandbox_load --json`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SHORT = ["--calls", "2000", "--outstanding", "2000", "--connections", "500", "--mixed-calls", "100"]


@pytest.mark.timeout(180)
def test_all_calls_at_once_are_answered_once_rightly_and_to_their_callers() -> None:
    command = [sys.executable, "-m", "benchmarks.sandbox_load", "--json", *SHORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=True)
    figures = json.loads(done.stdout)
    loads = [figures["streamed"], figures["connections"], *figures["mixed"].values()]
    assert [load["answered"] for load in loads] == [2000, 500, 100, 100, 100]
    assert [(load["wrong"], load["faults"]) for load in loads] == [(0, 0)] * 5
    memory = figures["streamed"]["front_mb"]
    # 2,000 waiting calls are some MB of text and bookkeeping; a leak per call would show as growth of another kind.
    assert memory["after_64"] - memory["warm"] < 32
