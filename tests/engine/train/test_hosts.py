"""Training across two hosts, in short: in the long form, `python -m benchmarks.hosts`, parts of them are lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.hosts.run import measure
from benchmarks.hosts.two import why_not
from benchmarks.toy.smallest import make
from tests.toy_site import site

__all__ = ["site"]

STEPS = 2
EXACT = 1e-5


@pytest.mark.timeout(2_000)
def test_two_hosts_train_on_exact_rows_and_on_each_of_them_once(site: Path) -> None:
    reason = why_not()
    if reason and os.environ.get("CLEANER_TESTS") != "full":
        pytest.skip(reason)
    assert not reason, "CI has to run this"
    found = measure(make(site / "hosts"), STEPS, faults=False, patience=1_800)
    assert [found[name] for name in ("steps", "lost", "doubled", "faults_trained", "skipped")] == [STEPS, 0, 0, 0, 0]
    assert found["rows"] == STEPS * 4 * 4
    assert found["hosts"] == 2
    assert found["logprob_max_diff"] < EXACT
