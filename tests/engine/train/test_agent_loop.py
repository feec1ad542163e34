"""What our agent loop hands to verl, as verl reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cleaner_rl.train.rows import to_row
from cleaner_rl.trajectory import StopReason
from tests.builders import answered, trajectory, worked

pytestmark = pytest.mark.timeout(300)  # verl's import takes long


def made(begun: int | None = None) -> Any:
    """verl's output of a rollout that solved its task."""
    from cleaner_rl.train.verl.agent_loop import _output

    solved = replace(trajectory(worked(), answered(), success=True), reward=1.0, stop_reason=StopReason.ANSWERED)
    row = to_row(solved)
    assert row is not None
    return _output(replace(row, versions=(8, 9)), solved, begun)


@pytest.mark.parametrize(("begun", "oldest"), [(None, 8), (9, 8), (7, 7)])
def test_the_weights_that_began_a_turn_had_a_part_in_it(begun: int | None, oldest: int) -> None:
    fields = made(begun).extra_fields
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (oldest, 9)


def test_s2_a_fault_is_no_wrong_answer_in_verls_own_evaluation() -> None:
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    output = made()
    columns = {name: [value] * 8 for name, value in output.extra_fields["reward_extra_info"].items()}

    figures = process_validation_metrics(
        ["held-out"] * 8,
        [f"task{number}" for number in range(8)],
        {"reward": [output.reward_score] * 8, **columns},
        expected_acc_counts={("held-out", f"task{number}"): 1 for number in range(10)},  # two were faults
    )

    assert {name: values["mean@1"] for name, values in figures["held-out"].items()} == {"reward": 1.0, "solved": 1.0}
