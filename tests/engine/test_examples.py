"""The whole training loop on one page, as a reader runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOOP = Path(__file__).parents[2] / "examples" / "train_loop.py"


@pytest.mark.timeout(900)
def test_purified_trajectories_teach_the_loop_not_to_fail() -> None:
    ran = subprocess.run(
        [sys.executable, str(LOOP), "--json"], capture_output=True, text=True, timeout=800, check=False
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout)
    assert list(figures) == [
        "seconds",
        "steps",
        "seeds",
        "failed_calls_first",
        "failed_calls_last",
        "failed_calls_last_grpo",
    ]
    assert figures["seeds"] == 3
    assert 2 * figures["failed_calls_last"] <= figures["failed_calls_first"]
    assert figures["failed_calls_last"] < figures["failed_calls_last_grpo"]
