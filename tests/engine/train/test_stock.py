"""With repair and RoC off, a batch of ours is one of stock verl's: the same ids, the same mask, the same rewards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.train.world import ROOT, world
from tests.taught_site import site

__all__ = ["site", "world"]

SECONDS = 1_200


@pytest.mark.timeout(SECONDS + 300)
def test_under_greedy_decoding_our_loop_gives_the_batches_of_verls_own(world: Path) -> None:
    settings = ["--pairs", "2", "--prompts", "4", "--rollouts", "2", "--turns", "8", "--alone", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stock", str(world), *settings],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["rows"] == figures["rows_of_ours"] == figures["equal_rows"] == 2 * 4 * 2
    assert figures["with_calls"] > 0
