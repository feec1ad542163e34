from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cleaner_rl.purify import PurifyConfig, PurifyScope
from cleaner_rl.rollout import (
    EngineFaultError,
    Purifier,
    RolloutBudget,
    SessionToolEnv,
    StatelessToolEnv,
    ToolEnv,
    grade_and_purify,
    rollout,
)
from cleaner_rl.rollout.grading import answer
from cleaner_rl.tasks import ChoiceGrader, Grade, Outcome, RewardScale, Task, without_thinking
from cleaner_rl.trajectory import RepairMode, StopReason, TextSpan, TokenSpan, Trajectory, Turn
from cleaner_sandbox import SessionRequest, Tier
from tests.nodes import asynchronous, needs
from tests.rollout.scripted import KEY, SEEDS, STATELESS, TASK, BrokenScores, ScriptedEngine, call, node, token_model
from tests.rollout.test_loop import FakeSandbox, assert_exact

HINDSIGHT = Purifier(mode=RepairMode.HINDSIGHT)
SAAR = Purifier()


class Unable:
    """A grader that can't say."""

    async def grade(self, task: Task, text: str) -> Grade:
        return Grade(Outcome.FAULT, None, "The verifier died.")


async def finished(
    engine: ScriptedEngine, purifier: Purifier | None = None, tool_env: ToolEnv | None = None, **options: Any
) -> Trajectory[TokenSpan]:
    tool_env = tool_env or StatelessToolEnv(FakeSandbox())
    graders = options.pop("graders", {"choice": ChoiceGrader()})
    rewarded = {name: options.pop(name) for name in ("scale", "weights") if name in options}
    model = token_model(engine)
    made = await rollout(
        TASK, KEY, prompt=STATELESS, model=model, tool_env=tool_env, seeds=SEEDS, purifier=purifier, **options
    )
    return await grade_and_purify(
        made, TASK, model=model, tool_env=tool_env, graders=graders, seeds=SEEDS, purifier=purifier, **rewarded
    )


@asynchronous
async def test_the_last_turn_is_graded_without_its_end_of_turn_token() -> None:
    right = await finished(ScriptedEngine([call("fine"), "The answer: C"]))
    assert (right.success, right.reward) == (True, 1.0)
    assert right.info.answer == "C"
    wrong = await finished(ScriptedEngine(["The answer: B"]), scale=RewardScale.UNIT)
    assert (wrong.success, wrong.reward) == (False, 0.0)


@asynchronous
async def test_a_rollout_that_ends_with_a_call_has_no_answer() -> None:
    called = call("fine", "The answer: C\n")
    cut = await finished(ScriptedEngine([called]), budget=RolloutBudget(turns=1))
    assert cut.stop_reason is StopReason.TURN_LIMIT
    assert answer(cut, token_model(ScriptedEngine([]))) == ""
    assert cut.success is False


@asynchronous
async def test_thinking_that_was_cut_off_gets_the_reward_of_a_wrong_answer() -> None:
    cut = await finished(ScriptedEngine(["<think>Maybe the answer: C? No, because"]))
    assert (cut.success, cut.reward, cut.info.answer) == (False, -1.0, None)
    assert "thinking" in (cut.info.grade or "")
    thought = await finished(ScriptedEngine(["Maybe the answer: B?</think>The answer: C"]))
    assert (thought.success, thought.reward) == (True, 1.0)


@pytest.mark.parametrize(
    ("prompt", "text", "read"),
    [
        ("<|im_start|>assistant\n<think>\n", "Maybe \\boxed{C}? No, because", None),
        ("<|im_start|>assistant\n<think>\n", "Maybe A?</think>It is \\boxed{C}.", "It is \\boxed{C}."),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "It is \\boxed{C}.", "It is \\boxed{C}."),
        ("[/INST][THINK]", "Maybe \\boxed{C}? No, because", None),
        ("What does <think> do?<|im_end|>\n<|im_start|>assistant\n", "It is \\boxed{C}.", "It is \\boxed{C}."),
    ],
)
def test_thinking_that_the_template_opened_is_thinking(prompt: str, text: str, read: str | None) -> None:
    class Says:
        def answer(self, turn: Turn[TextSpan]) -> str:
            return turn.text

    rollout = Trajectory(TextSpan(prompt), (Turn(TextSpan(text)),))
    assert without_thinking(answer(rollout, Says())) == read  # type: ignore[arg-type]


@asynchronous
async def test_faults_and_wall_time_are_not_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.tasks.grading.PAUSE", 0.0)
    broken = await finished(ScriptedEngine([EngineFaultError("gone")]))
    late = await finished(ScriptedEngine([None]), budget=RolloutBudget(seconds=0.1))
    unjudged = await finished(ScriptedEngine(["C"]), graders={"choice": Unable()})
    assert [each.stop_reason for each in (broken, late, unjudged)] == [
        StopReason.FAULT,
        StopReason.TIME_LIMIT,
        StopReason.FAULT,
    ]
    assert all(each.success is None and each.reward is None for each in (broken, late, unjudged))
    assert unjudged.info.fault == "grader: The verifier died."
    assert not unjudged.usable


@asynchronous
async def test_hindsight_collapses_and_scores_all_behind_the_first_edit_in_one_request() -> None:
    engine = ScriptedEngine([call("fine"), call("error"), call("errors"), call("fine"), "The answer: C"])
    trajectory = await finished(engine, HINDSIGHT)
    assert len(trajectory.edits) == 1
    assert len(trajectory.turns) == 4
    assert_exact(trajectory)
    ((prefix, suffix),) = engine.scored
    assert prefix + suffix == trajectory.ids().tolist()


@asynchronous
async def test_only_successes_are_purified_where_the_policy_says_so() -> None:
    replies = [call("error"), call("errors"), "The answer: B"]
    purifier = Purifier(mode=RepairMode.HINDSIGHT, config=PurifyConfig(scope=PurifyScope.SUCCESSFUL))
    assert not (await finished(ScriptedEngine(replies), purifier)).edits
    live = replace(purifier, mode=RepairMode.SAAR)
    cut = await finished(ScriptedEngine(replies), live)
    assert len(cut.turns) == 1
    assert cut.turns[0].failed
    assert_exact(cut)


@asynchronous
async def test_an_engine_that_breaks_while_it_scores_is_a_fault() -> None:
    replies = [call("error"), call("errors"), "The answer: C"]
    for purifier in (HINDSIGHT, SAAR):
        trajectory = await finished(BrokenScores(replies), purifier)
        assert trajectory.stop_reason is StopReason.FAULT
        assert trajectory.info.fault == "the engine is gone"
        assert trajectory.success is None


@asynchronous
async def test_without_re_scoring_moved_tokens_have_no_log_prob() -> None:
    engine = ScriptedEngine([call("error"), call("errors"), "The answer: C"])
    trajectory = await finished(engine, Purifier(rescore=False))
    assert not engine.scored
    assert np.isnan(trajectory.logprobs()).any()


@asynchronous
async def test_an_edit_that_loses_too_much_is_refused() -> None:
    replies = [call("error"), call("errors"), "The answer: C"]
    for mode in RepairMode:
        kept = await finished(ScriptedEngine(replies), Purifier(mode, PurifyConfig(max_logprob_gap=10.0)))
        assert any(edit.commits for _, edit in kept.edits)
        refused = await finished(ScriptedEngine(replies), Purifier(mode, PurifyConfig(max_logprob_gap=-10.0)))
        assert not any(edit.commits for _, edit in refused.edits)


@asynchronous
async def test_hindsight_on_a_session_is_proven_by_replay() -> None:
    needs(Tier.T2)
    repaired = [call("x = 1") + call("print(y)", ""), call("x = 1") + call("print(x)", ""), "The answer: C"]
    async with node() as sandbox:
        tool_env = SessionToolEnv(sandbox, SessionRequest(environment="bare"))
        proven = await finished(ScriptedEngine(repaired), HINDSIGHT, tool_env)
        assert proven.info.replay == "same"
        assert len(proven.edits) == 1
        timed = [call("print(y)"), call("import time\nprint(time.time_ns())"), "The answer: C"]
        undone = await finished(ScriptedEngine(timed), HINDSIGHT, tool_env)
        assert undone.info.replay == "nondeterministic"
        assert not undone.edits
        assert sandbox.status.sessions == 0


@pytest.mark.parametrize("mode", list(RepairMode))
@asynchronous
async def test_in_evaluation_nothing_is_purified_unless_asked(mode: RepairMode) -> None:
    from cleaner_rl.trajectory import Phase

    replies = [call("error"), call("errors"), "The answer: C"]
    quiet = Purifier(mode=mode, phase=Phase.EVALUATION)
    assert not (await finished(ScriptedEngine(replies), quiet)).edits
    asked = replace(quiet, config=PurifyConfig(in_evaluation=True))
    assert (await finished(ScriptedEngine(replies), asked)).edits
