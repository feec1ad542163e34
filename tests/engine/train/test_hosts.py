"""Training across two hosts, in short: in the long form, `python -m benchmarks.hosts`, parts of them are lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.train.exactness import EXACT

STEPS = 2


@pytest.mark.timeout(2_000)
def test_two_hosts_train_on_exact_rows_and_on_each_of_them_once(world: Path) -> None:
    from benchmarks.hosts.run import measure
    from benchmarks.hosts.two import why_not

    reason = why_not()
    if reason and os.environ.get("CLEANER_TESTS") != "full":
        pytest.skip(reason)
    assert not reason, "CI has to run this"
    found = measure(world, STEPS, faults=False, patience=1_800)
    assert [found[name] for name in ("steps", "lost", "doubled", "faults_trained", "skipped")] == [STEPS, 0, 0, 0, 0]
    assert found["rows"] == STEPS * 4 * 4
    assert found["hosts"] == 2
    assert found["logprob_max_diff"] < EXACT
