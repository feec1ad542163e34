"""The loop, with a scripted model and the real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cleaner_rl.purify import OnUnrepaired, PurifyConfig
from cleaner_rl.rollout import EngineFaultError, Purifier, RolloutBudget, Sampling, StatelessToolEnv, rollout
from cleaner_rl.rollout.model import RescoringRefusedError
from cleaner_rl.rollout.tool_env import ToolSession
from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.train.rows import to_row
from cleaner_rl.trajectory import (
    Key,
    RepairKind,
    RolloutInfo,
    StopReason,
    TokenSpan,
    Trajectory,
    residual_tally,
    sampled_turns,
)
from cleaner_sandbox import RunOutcome, RunRequest, RunResult, RunStatus, SessionRequest
from tests.nodes import asynchronous, until
from tests.rollout.scripted import (
    KEY,
    SEEDS,
    STATELESS,
    TASK,
    Reply,
    ScriptedEngine,
    call,
    logprobs_of,
    node,
    tasks_left,
    token_model,
)

SAAR = Purifier()


class FakeSandbox:
    """A stand-in that answers without running anything: `ok`, or what the code names."""

    def __init__(self) -> None:
        self.programs: list[str] = []

    async def run(self, request: RunRequest) -> RunOutcome:
        self.programs.append(request.code)
        status = RunStatus(request.code) if request.code in set(RunStatus) else RunStatus.OK
        return RunOutcome(RunResult(status, output=f"{len(request.code)}\n"))

    async def open_session(self, request: SessionRequest | None = None) -> Any:
        raise AssertionError("nobody asked for a session")


async def rolled(engine: ScriptedEngine, sandbox: Any = None, **options: Any) -> Trajectory[TokenSpan]:
    window = options.pop("window", 20_000)
    return await rollout(
        TASK,
        KEY,
        prompt=STATELESS,
        model=token_model(engine, window),
        seeds=SEEDS,
        **{"tool_env": StatelessToolEnv(sandbox or FakeSandbox()), **options},
    )


def assert_exact(trajectory: Trajectory[TokenSpan]) -> None:
    """Every sampled token has the log-prob that it has where it stands now."""
    ids, mask = trajectory.ids(), trajectory.loss_mask()
    wanted = np.concatenate([logprobs_of(ids[:1], ids[1:])])
    assert mask[0] == 0
    assert np.array_equal(trajectory.logprobs()[1:][mask[1:]], wanted[mask[1:]])


@asynchronous
async def test_each_request_holds_exactly_the_ids_of_the_history() -> None:
    engine = ScriptedEngine([call("print(6 * 7)"), call("print('é' * 3)"), "It is C."])
    async with node() as sandbox:
        trajectory = await rolled(engine, sandbox)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert [turn.results[0].output for turn in trajectory.turns[:2]] == ["42\n", "ééé\n"]
    for index, asked in enumerate(engine.asked):
        before = replace(trajectory, turns=trajectory.turns[:index])
        assert asked.prompt == before.ids().tolist()
        assert asked.seed == SEEDS.request(index)
        assert asked.request == "run/training/3/test/1/1"
    assert "<tool_response>\n42\n</tool_response>" in trajectory.text
    assert_exact(trajectory)


@asynchronous
async def test_a_failure_is_repaired_and_the_next_turn_sees_a_clean_history() -> None:
    fixed = call("x = 3\nprint(x)", "I see.\n")
    engine = ScriptedEngine([call("x = 3\nprint(y)"), "Hm, no call.", call("print(z)"), fixed, "C."])
    async with node() as sandbox:
        trajectory = await rolled(engine, sandbox, purifier=SAAR)
    assert trajectory.stop_reason is StopReason.ANSWERED
    turn, answer = trajectory.turns
    assert turn.edit is not None
    assert turn.edit.kind is RepairKind.GRAFT
    assert turn.results[0].output == "3\n"
    assert answer.text == "C.<|im_end|>"
    assert residual_tally(trajectory).failed == 0
    # The clean history is what the next request held, and all of it is scored where it stands.
    assert engine.asked[-1].prompt == replace(trajectory, turns=(turn,)).ids().tolist()
    assert_exact(trajectory)
    # Every turn that was sampled is in the ledger, after the context that its request held.
    sampled = list(sampled_turns(trajectory))
    assert [each.turn.attempt for each in sampled] == [0, 1, 2, 3, 0]
    for each, asked in zip(sampled, engine.asked, strict=True):
        context = replace(trajectory, turns=each.context)
        assert context.ids().tolist() == asked.prompt
    assert [asked.seed for asked in engine.asked[1:4]] == [SEEDS.request(0, attempt) for attempt in (1, 2, 3)]


@asynchronous
async def test_re_scoring_asks_for_the_grafted_tokens_alone() -> None:
    engine = ScriptedEngine([call("error"), call("errors"), "C."])
    trajectory = await rolled(engine, purifier=SAAR)
    ((prefix, suffix),) = engine.scored
    turn = trajectory.turns[0]
    assert turn.action is not None
    assert suffix == turn.action.ids.tolist()
    assert prefix == [*trajectory.prompt.ids.tolist(), *turn.reasoning.ids.tolist()]


@asynchronous
async def test_without_repair_or_off_the_coin_nothing_is_edited() -> None:
    for purifier in (None, Purifier(config=PurifyConfig(probability=0.0))):
        engine = ScriptedEngine([call("error"), call("fine"), "C."])
        trajectory = await rolled(engine, purifier=purifier)
        assert len(trajectory.turns) == 3
        assert not trajectory.edits
        assert not engine.scored


@asynchronous
async def test_re_scoring_after_another_sampling_is_refused_with_the_reason() -> None:
    model = token_model(ScriptedEngine(["C."]), sampling=Sampling(temperature=0.7))

    async def under(purifier: Purifier) -> Trajectory[TokenSpan]:
        tool_env = StatelessToolEnv(FakeSandbox())
        return await rollout(
            TASK, KEY, prompt=STATELESS, model=model, tool_env=tool_env, seeds=SEEDS, purifier=purifier
        )

    with pytest.raises(RescoringRefusedError, match="another distribution"):
        await under(SAAR)
    unscored = await under(Purifier(rescore=False))
    assert unscored.stop_reason is StopReason.ANSWERED


@pytest.mark.parametrize("purifier", [None, SAAR])
@asynchronous
async def test_s2_a_fault_ends_the_rollout_and_is_never_repaired(purifier: Purifier | None) -> None:
    engine = ScriptedEngine([call("fault"), "C."])
    trajectory = await rolled(engine, purifier=purifier)
    assert trajectory.stop_reason is StopReason.FAULT
    assert not trajectory.usable
    assert len(engine.asked) == 1
    assert trajectory.info.fault


@asynchronous
async def test_s2_a_fault_under_an_attempt_ends_it_too() -> None:
    engine = ScriptedEngine([call("error"), call("fault"), "C."])
    trajectory = await rolled(engine, purifier=SAAR)
    assert trajectory.stop_reason is StopReason.FAULT
    assert len(engine.asked) == 2
    assert trajectory.info.fault


@pytest.mark.parametrize("place", ["sampling", "scoring"])
@asynchronous
async def test_whatever_an_engine_raises_ends_its_rollout_as_a_fault(place: str) -> None:
    class OutOfMemory(ScriptedEngine):
        async def score(self, prefix_T: Any, suffix_T: Any, *, request: str) -> Any:
            raise MemoryError("scoring 9,000 tokens")

    replies: list[Reply] = [call("error"), call("fine"), "C."] if place == "scoring" else [MemoryError("no blocks")]
    done = await rolled(OutOfMemory(replies), purifier=SAAR)
    assert done.stop_reason is StopReason.FAULT
    said = "scoring 9,000 tokens" if place == "scoring" else "no blocks"
    assert done.info.fault == f"the engine raised MemoryError: {said}"


@asynchronous
async def test_more_tokens_than_asked_for_are_refused() -> None:
    class Generous(ScriptedEngine):
        async def sample(self, prompt_T: Any, *, max_tokens: int, **others: Any) -> Any:
            return await super().sample(prompt_T, max_tokens=max_tokens + 1, **others)

    replies = ["A long answer, of more words than there is room for."]
    done = await rolled(Generous(replies), budget=RolloutBudget(tokens=4))
    assert done.stop_reason is StopReason.FAULT
    assert done.info.fault == "the engine returned 5 tokens where at most 4 were asked for"
    assert done.turns == ()


@asynchronous
async def test_an_engine_that_breaks_is_a_fault_and_what_came_before_is_kept() -> None:
    engine = ScriptedEngine([call("fine"), EngineFaultError("no replica answers")])
    trajectory = await rolled(engine)
    assert trajectory.stop_reason is StopReason.FAULT
    assert trajectory.info.fault == "no replica answers"
    assert len(trajectory.turns) == 1


@asynchronous
async def test_s3_a_malformed_call_gets_feedback_and_a_repair() -> None:
    broken = 'So.\n<tool_call>\n{"name": "python", "arguments": {"code": "print(1)}\n</tool_call>'
    engine = ScriptedEngine([broken, call("print(1)"), "C."])
    raw_one = await rolled(ScriptedEngine([broken, "C."]))
    assert raw_one.turns[0].results[0].status is Status.MALFORMED
    assert "not valid JSON" in raw_one.turns[0].observation.text  # type: ignore[union-attr]
    repaired = await rolled(engine, purifier=SAAR)
    assert residual_tally(repaired).failed == 0


@asynchronous
async def test_s5_every_call_of_a_turn_has_its_own_result() -> None:
    two = call("error") + "\n" + call("fine", "")
    trajectory = await rolled(ScriptedEngine([two, "C."]))
    turn = trajectory.turns[0]
    assert [result.status for result in turn.results] == [Status.ERROR, Status.OK]
    assert turn.observation is not None
    assert turn.observation.text.count("<tool_response>") == 2


@asynchronous
async def test_calls_of_a_turn_run_side_by_side_on_a_stateless_tool() -> None:
    class Meeting(FakeSandbox):
        """Answers only once two calls are there."""

        barrier = asyncio.Barrier(2)

        async def run(self, request: RunRequest) -> RunOutcome:
            async with asyncio.timeout(10):
                await self.barrier.wait()
            return await super().run(request)

    trajectory = await rolled(ScriptedEngine([call("a") + call("b", ""), "C."]), Meeting())
    assert trajectory.stop_reason is StopReason.ANSWERED


@asynchronous
async def test_s12_an_attempt_without_a_call_switches_nothing_off() -> None:
    engine = ScriptedEngine([call("error"), "No.", "No.", "No.", call("error"), call("fine"), "C."])
    trajectory = await rolled(engine, purifier=SAAR)
    first, second, _ = trajectory.turns
    assert first.failed
    assert first.edit is not None
    assert not first.edit.commits
    assert second.verified
    assert second.edit is not None
    assert second.edit.commits


@asynchronous
async def test_s13_a_repair_in_the_last_turn_is_kept_and_no_call_dangles() -> None:
    engine = ScriptedEngine([call("fine"), call("error"), call("fixed"), "C."])
    trajectory = await rolled(engine, budget=RolloutBudget(turns=2), purifier=SAAR)
    assert trajectory.stop_reason is StopReason.TURN_LIMIT
    assert len(trajectory.turns) == 2
    assert all(turn.results and turn.observation is not None for turn in trajectory.turns)
    assert trajectory.turns[1].verified


@pytest.mark.parametrize("on_unrepaired", OnUnrepaired)
@asynchronous
async def test_a_lookahead_in_the_last_turn_can_be_skipped(on_unrepaired: OnUnrepaired) -> None:
    skipping = Purifier(config=PurifyConfig(on_unrepaired=on_unrepaired, skip_last_turn=True))
    replies = [call("fine"), call("error"), call("fixed")]
    engine, budget = ScriptedEngine(replies), RolloutBudget(turns=2)
    trajectory = await rolled(engine, budget=budget, purifier=skipping)

    without = await rolled(ScriptedEngine(replies), budget=budget)
    assert len(engine.asked) == 2
    assert trajectory.turns == without.turns
    assert trajectory.stop_reason is StopReason.TURN_LIMIT
    assert (trajectory.info.lookahead, trajectory.info.sampled) == (0, without.info.sampled)


@asynchronous
async def test_earlier_turns_are_repaired_alike_whether_the_last_one_is_skipped_or_not() -> None:
    replies = [call("fine"), call("error"), call("fixed"), "C."]
    made = [
        await rolled(
            ScriptedEngine(replies),
            budget=RolloutBudget(turns=3),
            purifier=Purifier(config=PurifyConfig(skip_last_turn=skips)),
        )
        for skips in (False, True)
    ]
    rows = [to_row(replace(each, reward=1.0)) for each in made]
    assert str(made[0].turns) == str(made[1].turns)
    assert made[0].turns[1].edit is not None
    shown = [(row.response_ids.tobytes(), row.loss_mask.tobytes(), row.logprobs.tobytes()) for row in rows if row]
    assert len(shown) == 2
    assert shown[0] == shown[1]


@pytest.mark.parametrize("on_unrepaired", [OnUnrepaired.KEEP_ATTEMPTS, OnUnrepaired.KEEP_FIRST])
@pytest.mark.parametrize("turns", [1, 2, 3, 4, 5, 6])
@asynchronous
async def test_a_history_holds_as_many_turns_with_repair_as_without(turns: int, on_unrepaired: OnUnrepaired) -> None:
    never = [call("error")]
    budget = RolloutBudget(turns=turns)
    without = await rolled(ScriptedEngine(never), budget=budget)
    purifier = Purifier(config=PurifyConfig(on_unrepaired=on_unrepaired))
    with_repair = await rolled(ScriptedEngine(never), budget=budget, purifier=purifier)
    assert len(without.turns) == len(with_repair.turns) == turns
    assert without.stop_reason is with_repair.stop_reason is StopReason.TURN_LIMIT


class ForgetfulTools:
    """A stand-in for stateful tools: `error` fails, and from the given run on other calls end as they never did."""

    stateful, limits = True, None

    def __init__(self, changes: int, status: Status) -> None:
        self._changes, self._status, self.runs = changes, status, 0

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[ToolSession]:
        yield self

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        self.runs += 1
        worked = ToolResult(self._status, "other", explanation="gone") if self.runs >= self._changes else WORKED
        return [ToolResult(Status.ERROR) if call.code == "error" else worked for call in calls]

    async def rollback(self) -> None:
        """Nothing is kept."""


WORKED = ToolResult(Status.OK, "as ever")
HALF_FAILED = [call("fine") + call("error"), call("error"), "It is C."]


@pytest.mark.parametrize("on_unrepaired", [OnUnrepaired.KEEP_ATTEMPTS, OnUnrepaired.KEEP_FIRST])
@asynchronous
async def test_s2_a_fault_while_the_state_is_made_again_ends_the_rollout(on_unrepaired: OnUnrepaired) -> None:
    tools = ForgetfulTools(changes=3, status=Status.FAULT)  # after the turn and an attempt
    purifier = Purifier(config=PurifyConfig(attempts=1, on_unrepaired=on_unrepaired))
    trajectory = await rolled(ScriptedEngine(HALF_FAILED), tool_env=tools, purifier=purifier)
    assert trajectory.stop_reason is StopReason.FAULT
    assert trajectory.info.fault == "gone"


@asynchronous
async def test_a_history_says_what_the_state_was_made_of() -> None:
    tools = ForgetfulTools(changes=3, status=Status.OK)
    purifier = Purifier(config=PurifyConfig(attempts=1))
    trajectory = await rolled(ScriptedEngine(HALF_FAILED), tool_env=tools, purifier=purifier)
    assert trajectory.stop_reason is StopReason.ANSWERED
    (failed, _) = trajectory.turns
    assert [result.output for result in failed.results] == ["other", ""]
    assert failed.observation is not None
    assert "other" in failed.observation.text
    assert (
        next(sampled_turns(trajectory)).turn.results[0] == WORKED
    )  # what was sampled, and what that gave, stays in the ledger


@asynchronous
async def test_a_dropped_rollout_says_so() -> None:
    purifier = Purifier(config=PurifyConfig(on_unrepaired=OnUnrepaired.DROP))
    trajectory = await rolled(ScriptedEngine([call("error")]), purifier=purifier)
    assert trajectory.stop_reason is StopReason.DROPPED
    assert not trajectory.usable


@asynchronous
async def test_s14_no_request_is_longer_than_the_window_whatever_is_tried() -> None:
    replies: list[Reply] = [call("error"), call("fine" * 40), call("error"), call("fine"), "It is C." * 30]
    ended = set()
    start = len(token_model(ScriptedEngine(["C."])).begin(STATELESS.messages(TASK)))
    for window in range(start - 2, start + 700, 13):
        engine = ScriptedEngine(replies)
        trajectory = await rolled(engine, window=window, purifier=SAAR)
        ended.add(trajectory.stop_reason)
        assert all(len(asked.prompt) + asked.max_tokens <= window for asked in engine.asked)
        assert all(asked.max_tokens > 0 for asked in engine.asked)
        assert len(trajectory) <= max(window, start)
    assert ended == {StopReason.FAULT, StopReason.TOKEN_LIMIT, StopReason.ANSWERED}


@asynchronous
async def test_the_response_keeps_its_budget_and_ends_with_a_sampled_token_or_whole() -> None:
    replies: list[Reply] = [call("error"), call("fine"), call("fine"), "It is C."]
    for tokens in range(1, 420, 7):
        for purifier in (None, SAAR):
            trajectory = await rolled(
                ScriptedEngine(replies), budget=RolloutBudget(tokens=tokens, lookahead=150), purifier=purifier
            )
            assert len(trajectory) - len(trajectory.prompt) <= tokens
            if trajectory.stop_reason is StopReason.TOKEN_LIMIT and trajectory.turns:
                last = trajectory.turns[-1]
                assert bool(last.results) or not last.observation


@asynchronous
async def test_a_prompt_that_does_not_fit_is_nobodys_failure() -> None:
    engine = ScriptedEngine(["C."])
    trajectory = await rolled(engine, window=10)
    assert trajectory.stop_reason is StopReason.FAULT
    assert "fills the model's window" in trajectory.info.fault
    assert not engine.asked


@asynchronous
async def test_an_answer_in_time_stays_one_however_long_the_tools_take_to_close() -> None:
    class ClosesLate(StatelessToolEnv):
        @asynccontextmanager
        async def open(self, key: Key) -> AsyncIterator[ToolSession]:
            async with super().open(key) as tool_session:
                yield tool_session
            await asyncio.sleep(1.0)

    tool_env = ClosesLate(FakeSandbox())
    trajectory = await rolled(ScriptedEngine(["C."]), tool_env=tool_env, budget=RolloutBudget(seconds=0.8))
    assert trajectory.stop_reason is StopReason.ANSWERED


@asynchronous
async def test_the_wall_clock_ends_a_request_that_never_answers() -> None:
    engine = ScriptedEngine([call("fine"), None])
    before = tasks_left()
    trajectory = await rolled(engine, budget=RolloutBudget(seconds=0.3))
    assert trajectory.stop_reason is StopReason.TIME_LIMIT
    assert len(trajectory.turns) == 1
    assert engine.waiting == 0
    assert tasks_left() == before


@asynchronous
async def test_s22_a_rollout_leaves_no_task_however_it_ends() -> None:
    async with node() as sandbox:
        before = tasks_left()
        for replies in ([call("print(1)") * 3, "C."], [EngineFaultError("x")], [call("error"), call("print(1)"), "C."]):
            await rolled(ScriptedEngine(replies), sandbox, purifier=SAAR)
        assert tasks_left() == before
        engine = ScriptedEngine([call("import time; time.sleep(60)") * 2])
        task = asyncio.create_task(rolled(engine, sandbox))
        await until(lambda: sandbox.status.busy == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: sandbox.status.busy == 0)
        await until(lambda: tasks_left() <= before)  # the node replaces the slots that it stopped


@asynchronous
async def test_a_cancelled_rollout_gives_its_request_up() -> None:
    engine = ScriptedEngine([None])
    before = tasks_left()
    task = asyncio.create_task(rolled(engine))
    await until(lambda: engine.waiting == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.waiting == 0
    assert tasks_left() == before


@asynchronous
async def test_the_same_seeds_give_the_same_trajectory() -> None:
    def bare(trajectory: Trajectory[TokenSpan]) -> Trajectory[TokenSpan]:
        return replace(trajectory, info=RolloutInfo())

    replies: list[Reply] = [call("error"), call("error"), call("fine"), "C."]
    one, two = [await rolled(ScriptedEngine(replies), purifier=SAAR) for _ in range(2)]
    assert bare(one) == bare(two)
