"""Kills in the middle of a real run, in short: `python -m benchmarks.rollout_kills` is the long form.

The model is a pupil of seconds, which fails more often than not. It keeps engines and sandbox busy; nothing else is
asked of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rollout_kills import measure
from benchmarks.toy.folder import made
from benchmarks.toy.model import Lessons
from benchmarks.toy.regimes import REGIMES
from tests.toy_site import site

__all__ = ["site"]

LESSONS = Lessons(demonstrations=96, epochs=14, batch=16, lr=1e-2, width=64, layers=2, heads=2, longest=64)


@pytest.mark.timeout(600)
def test_a_run_survives_the_kill_of_an_engine_of_a_node_and_its_own(site: Path, tmp_path: Path) -> None:
    world = made(REGIMES["mistakes"], LESSONS, site)
    found = measure(world, 20, ("engine", "node", "command"), 7, tmp_path)
    assert found["kills"] == {"engine": 1, "node": 1, "command": 1}
    assert [found[name] for name in ("lost", "doubled", "ended_in_a_fault", "faults_among_results")] == [0] * 4
    assert found["replayed_different"] == 0
    assert found["replayed_same"] != 0
