"""Two weighted rewards on the real stack: five steps, with the rows and advantages of a loop of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rewards import STEPS, train, verl_and_loop


@pytest.mark.timeout(2_400)
def test_two_weighted_rewards_train_on_the_rows_of_a_loop_of_ones_own(world: Path, tmp_path: Path) -> None:
    train(tmp_path, world)
    figures = verl_and_loop(tmp_path)
    assert figures["steps"] == STEPS
    assert figures["rollouts"] == figures["rewards_as_by_hand"] == STEPS * 4 * 4
    assert figures["verl_rows"] == figures["verl_rows_equal"] == figures["rollouts"]
    assert figures["verl_advantages_apart"] < 1e-6
    assert figures["repaired_and_penalised"] > 0, "the penalty is that of the raw rollout"
