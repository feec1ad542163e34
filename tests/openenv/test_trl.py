"""What TRL's harness worker makes of our sessions, by its own code for a session; its process is not started."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

import pytest

from cleaner_rl.train.rows import to_row
from tests.openenv.captures import Captured
from tests.openenv.test_sessions import ANSWER, MISSPELT, RIGHT, SORTED, UNKNOWN, session, trace_of

pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="needs TRL (the extra `trl`)")


def rollout(given: Any) -> Any:
    """The rollout of a session, as TRL's loop makes it: completion, ids, sequences, calls, failures and reward."""
    from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop

    class Factory:
        def create(self, *_: Any, **__: Any) -> Any:
            return given

    loop = object.__new__(_HarnessRolloutLoop)
    loop._factory, loop._adapter, loop._rollout_reward_fn = Factory(), None, None
    loop._live_sessions, loop._stop_event, loop._fork_threshold_tokens = set(), asyncio.Event(), 0
    made, metrics = loop._run_session([{"role": "user", "content": "?"}])
    assert metrics is not None
    return made


@pytest.mark.parametrize("steps", [[UNKNOWN, RIGHT, ANSWER], [MISSPELT, SORTED, ANSWER]])
def test_a_session_gives_the_sequence_of_its_row(steps: Any) -> None:
    given = session(trace_of(steps))
    _, _, sequences, _, _, reward = rollout(given)
    (sequence,) = sequences
    (trajectory,) = given.trajectories
    row = to_row(trajectory)
    assert row is not None
    failed = steps[0] is MISSPELT  # the other one is repaired, and nothing of it is left
    start, length = len(row.prompt_ids), len(trajectory.turns[0].text.encode())
    mask = row.loss_mask.astype(int).tolist()
    assert sequence.input_ids == [*row.prompt_ids.tolist(), *row.response_ids.tolist()]
    assert sequence.completion_mask[start:] == ([0] * length + mask[length:] if failed else mask)
    assert sequence.old_log_probs[start:] == pytest.approx(row.logprobs.tolist(), abs=1e-6)
    assert reward == 1.0
    assert given.session.closed


def test_a_rollout_that_broke_is_no_sequence_and_has_no_reward() -> None:
    _, _, sequences, _, _, reward = rollout(session(trace_of([RIGHT, ANSWER]), None))
    assert (sequences, reward) == ([], None)


def test_a_session_of_somebody_else_is_taken_by_the_same_code() -> None:
    _, _, (sequence,), _, _, reward = rollout(Captured(trace_of([MISSPELT, SORTED, ANSWER])))
    assert sum(sequence.completion_mask) > 0
    assert reward == 1.0
