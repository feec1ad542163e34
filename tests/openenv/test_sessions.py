"""What a session gives to a trainer: masks, repairs, log-probs, statuses, and the same rows as without a harness."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cleaner_rl.purify import PurifyScope, RepairConfig, rescore
from cleaner_rl.tools import ToolCall
from cleaner_rl.train.rows import RowConfig, group_rows
from cleaner_rl.trajectory import Key, StopReason, TokenSpan, Trajectory, without_hindsight
from cleaner_rl.trajectory.store import read as read_store
from tests.openenv.captures import SCORE, Captured, Step, entries, logprobs, reader, rendered, shell

KEY = Key("run", 3, "task", 0)
UNKNOWN = Step("I ask.", "wether", {"city": "Oslo"}, "Error: unknown tool wether")
RIGHT = Step("I ask.", "weather", {"city": "Oslo"}, {"content": "rain", "is_error": False})
ANSWER = Step("It rains.")
MISSPELT = shell("sotr names.txt", 127, "/bin/sh: 1: sotr: not found\n")
SORTED = shell("sort names.txt", 0, "anna\nbert\n")


def trace_of(steps: Sequence[Step], **options: Any) -> Any:
    from openenv.core.harness import TrainingTrace

    return TrainingTrace.from_entries(entries("How is it?", steps, **options))


def session(
    trace: Any, reward: float | None = 1.0, *, scored: Any = SCORE, folder: Path | None = None, **settings: Any
) -> Any:
    """A session of ours; the engine that scores is a function."""
    from cleaner_rl.train.openenv import CaptureConfig, CleanerSession
    from cleaner_rl.train.record import RunFolder

    class Scored(CleanerSession):
        async def _rescored(self, rollout: Any) -> Any:
            return await rescore(rollout, scored)

    config = CaptureConfig("none", "http://none", **settings)
    return Scored(Captured(trace, reward), config, reader(), RunFolder(folder, "run"), KEY, "task", 3)


def supervised(trace: Any) -> list[bool]:
    """Of each turn, whether its completion is in the loss."""
    found = []
    for turn in trace.turns:
        mask = turn.loss_mask[len(turn.prompt_token_ids) :]
        assert len(set(mask)) == 1
        found.append(bool(mask[0]))
    return found


def statuses(trace: Any) -> list[list[str]]:
    return [turn.metadata.get("cleaner_rl", {}).get("statuses", []) for turn in trace.turns]


def test_a_failed_command_is_masked_in_a_right_rollout() -> None:
    raw = trace_of([MISSPELT, SORTED, ANSWER])
    given = session(raw)
    made = given.fetch_training_trace()
    assert supervised(made) == [False, True, True]
    assert statuses(made) == [["error"], ["ok"], []]
    assert [turn.prompt_token_ids for turn in made.turns] == [turn.prompt_token_ids for turn in raw.turns]
    assert [turn.per_token_logps for turn in made.turns] == [turn.per_token_logps for turn in raw.turns]
    (rollout,) = given.trajectories
    assert rollout.info.other["left_alone"] == [{"turn": 0, "reason": "unproven"}]
    assert (rollout.reward, rollout.success, rollout.stop_reason) == (1.0, True, StopReason.ANSWERED)


def test_a_wrong_rollout_keeps_its_failed_turns_in_the_loss() -> None:
    made = session(trace_of([MISSPELT, SORTED, ANSWER]), -1.0).fetch_training_trace()
    assert supervised(made) == [True, True, True]
    masked = session(trace_of([MISSPELT, SORTED, ANSWER]), -1.0, scope=PurifyScope.ALL).fetch_training_trace()
    assert supervised(masked) == [False, True, True]


def test_a_call_of_an_unknown_tool_is_repaired() -> None:
    raw = trace_of([UNKNOWN, RIGHT, ANSWER])
    given = session(raw)
    made = given.fetch_training_trace()
    first, last = made.turns
    assert (first.node_id, first.metadata["cleaner_rl"]) == ("node1", {"statuses": ["ok"], "replaces": ["node0"]})
    assert first.prompt_token_ids == raw.turns[0].prompt_token_ids
    assert (
        first.completion_token_ids == raw.turns[1].completion_token_ids
    )  # the same thought: a graft is the correction
    for turn in made.turns:
        # The prompt is what the template makes of the repaired messages, and so no token of the failed turn is in it.
        assert turn.prompt_token_ids == rendered(turn.request["messages"])
        expected = logprobs(turn.completion_token_ids, turn.prompt_token_ids)
        assert np.allclose(turn.per_token_logps, expected, atol=1e-6)
    assert [each["role"] for each in last.request["messages"]] == ["user", "assistant", "tool"]
    assert supervised(made) == [True, True]


def test_a_graft_has_the_first_thought_and_the_correction() -> None:
    made = session(trace_of([UNKNOWN, replace(RIGHT, thought="It is called weather."), ANSWER])).fetch_training_trace()
    first = made.turns[0]
    text = bytes(first.completion_token_ids).decode()
    assert text.startswith("I ask.<tool_call>")
    assert '"weather"' in text
    assert first.response["choices"][0]["message"]["content"] == "I ask."
    assert made.turns[1].prompt_token_ids == rendered(made.turns[1].request["messages"])


def test_arguments_that_are_no_json_are_repaired() -> None:
    broken = replace(RIGHT, arguments='{"city": Oslo}', told="Error: invalid JSON")
    given = session(trace_of([broken, RIGHT, ANSWER]))
    made = given.fetch_training_trace()
    assert [turn.node_id for turn in made.turns] == ["node1", "node2"]


def test_words_decide_nothing() -> None:
    told = replace(RIGHT, told="Error: failed with an exception, traceback")
    made = session(trace_of([told, RIGHT, ANSWER])).fetch_training_trace()
    assert supervised(made) == [True, True, True]
    assert statuses(made)[0] == []


def test_an_error_field_is_a_failure_and_a_missing_argument_alone_is_none() -> None:
    flagged = replace(RIGHT, told={"content": "sunny", "is_error": True})
    assert supervised(session(trace_of([flagged, ANSWER])).fetch_training_trace()) == [False, True]
    lacking = replace(RIGHT, arguments={"town": "Oslo"}, told="sunny")
    assert supervised(session(trace_of([lacking, ANSWER])).fetch_training_trace()) == [True, True]
    rejected = replace(lacking, told={"content": "city is required", "is_error": True})
    made = session(trace_of([rejected, RIGHT, ANSWER])).fetch_training_trace()
    assert [turn.node_id for turn in made.turns] == ["node1", "node2"]


def test_what_the_harness_drops_from_its_history_is_masked() -> None:
    """As mini-swe-agent does with a call that it can't take: it asks again, without the model's message."""
    from openenv.core.harness import TrainingTrace

    for dropped in (UNKNOWN, replace(RIGHT, arguments='{"city": Oslo}')):
        (alone,) = entries("How is it?", [dropped])
        said = alone["response"]["choices"][0]["message"]
        if dropped is not UNKNOWN:  # the engine's parser found no call in it
            said["content"] = f"I ask.{said.pop('tool_calls')}"
        alone["metadata"] = {"node_id": "dropped"}
        for call in said.get("tool_calls", ()):
            call["id"] = "dropped"
        made = session(TrainingTrace.from_entries([alone, *entries("How is it? Again.", [RIGHT, ANSWER])]))
        assert supervised(made.fetch_training_trace()) == [False, True, True]
        assert [[turn.failed for turn in each.turns] for each in made.trajectories] == [[True], [False, False]]


@contextmanager
def _runs(outputs: dict[str, str]) -> Iterator[Callable[[ToolCall], str]]:
    yield lambda call: outputs[str(call.arguments["command"])]


def _replay(outputs: dict[str, str]) -> Any:
    return lambda _task, _seed: _runs(outputs)


def test_a_replay_proves_the_repair_of_a_command() -> None:
    told = {"sort names.txt": str(SORTED.told)}
    made = session(trace_of([MISSPELT, SORTED, ANSWER]), replay=_replay(told)).fetch_training_trace()
    assert [turn.node_id for turn in made.turns] == ["node1", "node2"]
    assert supervised(made) == [True, True]


def test_a_replay_that_gives_something_else_leaves_the_failure_masked() -> None:
    told = {"sort names.txt": "<returncode>0</returncode>\n<output>\nzoe\n</output>"}
    given = session(trace_of([MISSPELT, SORTED, ANSWER]), replay=_replay(told))
    assert supervised(given.fetch_training_trace()) == [False, True, True]
    assert not given.trajectories[0].edits


def test_a_history_that_was_written_differently_begins_a_new_chain_and_is_not_repaired_across() -> None:
    made = entries("How is it?", [UNKNOWN, RIGHT, RIGHT, ANSWER])
    made[1]["prompt_token_ids"] = [32, *made[1]["prompt_token_ids"][1:]]
    from openenv.core.harness import TrainingTrace

    given = session(TrainingTrace.from_entries(made))
    # Later prompts have the first turn again as it was sampled, and the second one as context.
    assert [len(each.turns) for each in given.trajectories] == [3, 1]
    assert supervised(given.fetch_training_trace()) == [False, True, True, True]
    assert not any(each.edits for each in given.trajectories)


def test_a_turn_that_the_capture_masked_stays_masked() -> None:
    made = entries("How is it?", [RIGHT, RIGHT, ANSWER])
    made[1]["loss_mask"] = [0] * len(made[1]["loss_mask"])
    from openenv.core.harness import TrainingTrace

    given = session(TrainingTrace.from_entries(made))
    assert supervised(given.fetch_training_trace()) == [True, False, True]
    assert [len(each.turns) for each in given.trajectories] == [2]


def test_a_trace_that_is_masked_in_part_is_passed_on_and_not_trained_on_by_us() -> None:
    made = entries("How is it?", [RIGHT, ANSWER])
    made[0]["loss_mask"][-1] = 0
    from openenv.core.harness import TrainingTrace

    raw = TrainingTrace.from_entries(made)
    given = session(raw)
    assert given.fetch_training_trace() is raw
    (dropped,) = given.trajectories
    assert dropped.stop_reason is StopReason.DROPPED
    assert "masked in part" in dropped.info.grade


def test_an_engine_that_cannot_score_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    from cleaner_rl.rollout.engines import Address
    from cleaner_rl.train.openenv import CaptureConfig, CleanerSession, sessions
    from cleaner_rl.train.record import RunFolder

    monkeypatch.setattr(sessions, "Address", partial(Address, patience=0.1))
    given = CleanerSession(
        Captured(trace_of([UNKNOWN, RIGHT, ANSWER])),
        CaptureConfig("none", "http://127.0.0.1:9"),
        reader(), RunFolder(None, "run"), KEY, "task", 3,
    )  # fmt: skip
    made = given.fetch_training_trace()
    assert not any(bit for turn in made.turns for bit in turn.loss_mask)
    assert given.verify([]).env_reward is None
    assert given.trajectories[0].broken


def test_a_rollout_without_a_reward_is_in_no_loss() -> None:
    given = session(trace_of([RIGHT, ANSWER]), None)
    assert supervised(given.fetch_training_trace()) == [False, False]
    assert given.verify([]).env_reward is None


def test_a_session_is_graded_once_before_anything_is_repaired() -> None:
    given = session(trace_of([UNKNOWN, RIGHT, ANSWER]))
    given.fetch_training_trace()
    assert given.verify([]).env_reward == 1.0
    assert given.session.verified == 1
    given.close()
    assert given.session.closed


def test_the_store_has_what_was_sampled(tmp_path: Path) -> None:
    raw = trace_of([UNKNOWN, RIGHT, ANSWER])
    given = session(raw, folder=tmp_path)
    given.fetch_training_trace()
    (stored,) = read_store(tmp_path / "trajectories")
    before: Trajectory[TokenSpan] = without_hindsight(stored)  # type: ignore[arg-type]
    last = raw.turns[-1]
    assert before.ids().tolist() == last.prompt_token_ids + last.completion_token_ids
    ids, mask = before.ids(), before.loss_mask()
    assert ids[mask].tolist() == [token for turn in raw.turns for token in turn.completion_token_ids]
    kept = np.array([each for turn in raw.turns for each in turn.per_token_logps], np.float32)
    assert before.logprobs()[mask].tolist() == kept.tolist()
    nodes = stored.info.other["openenv"]
    assert [each["node_id"] for each in nodes] == ["node0", "node1", "node2"]
    assert nodes[1]["response"] == raw.turns[1].response
    assert json.loads(json.dumps(stored.info.messages)) == [
        *last.request["messages"],
        last.response["choices"][0]["message"],
    ]


def test_rows_are_those_of_the_same_rollouts_without_the_harness() -> None:
    from cleaner_rl.logs import purify_log
    from cleaner_rl.train.openenv import group_chains

    given = [session(trace_of([UNKNOWN, RIGHT, ANSWER])), session(trace_of([MISSPELT, SORTED, ANSWER]), -1.0)]
    given[1].key = replace(KEY, rollout=1)
    config = RowConfig(mask_failed=True)
    with_harness = group_chains([each.trajectories for each in given], config)

    async def plain(captured: Any, key: Key, reward: float) -> Trajectory[Any]:
        (read,) = reader().read(captured.session.trace, key)
        read = replace(read, reward=reward, success=reward > 0)
        return await rescore(purify_log(read, RepairConfig()).trajectory if reward > 0 else read, SCORE)

    rollouts = [asyncio.run(plain(each, each.key, each.session.reward)) for each in given]
    without = group_rows(rollouts, config)
    assert len(with_harness.rows) == 2
    for row, other in zip(with_harness.rows, without.rows, strict=True):
        assert (row.key, row.advantage, row.reward) == (other.key, other.advantage, other.reward)
        for name in ("prompt_ids", "response_ids", "loss_mask", "logprobs"):
            assert getattr(row, name).tolist() == getattr(other, name).tolist()


def test_a_temperature_other_than_one_is_refused_where_tokens_are_scored() -> None:
    from cleaner_rl.train.openenv import CaptureConfig, CleanerSessionFactory

    def make(**_: Any) -> None: ...

    with pytest.raises(ValueError, match=r"temperature=0\.7"):
        CleanerSessionFactory(make, CaptureConfig("none", "http://none"), sampling={"temperature": 0.7})
    CleanerSessionFactory(make, CaptureConfig("none", "http://none", repair=None), sampling={"temperature": 0.7})
