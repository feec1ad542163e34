"""Rollouts of verl's rows: a scripted policy, and a real sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.rollout import EngineFaultError, RescueTry
from cleaner_rl.tasks import ChoiceGrader, MathGrader, MathPool, Message, Task, load_prompt
from cleaner_rl.tasks.datasets import to_verl
from cleaner_rl.train import Recipe, to_recipe
from cleaner_rl.train.rows import Graded, to_row
from cleaner_rl.train.verl.plan import RunPlan
from cleaner_rl.train.verl.row_rollout import PHASE, ROUND, rescue, rescues, roll
from cleaner_rl.train.verl.runner import runner_of, shared_runner
from cleaner_rl.trajectory import Phase, RepairKind, RepairMode, StopReason, TokenSpan
from tests.rollout.chats import tokenizer
from tests.rollout.scripted import ScriptedEngine, call, node, tasks_left
from tests.train.recipes import values

TASK = Task("sums/1", (Message("user", "What is 1+1?"),), "math", "2", "sums", "train")
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
REPAIRED = [call("print(y)"), call("print(1 + 1)"), "So it is \\boxed{2}."]
"""What the model says: a failing call, the lookahead's correction, the answer."""


def recipe(method: str = "saar", **changes: Any) -> Recipe:
    budget = {"overlong_buffer": 0, **changes.pop("budget", {})}
    return to_recipe(values(method=method, budget=budget, **changes))


def row(phase: Phase = Phase.TRAINING, step: int = 3, again: int = 0, number: int = 0) -> dict[str, Any]:
    """One of verl's rows, as an agent loop gets it."""
    columns = to_verl(TASK, 0, load_prompt("stateless"), "cleaner")
    return {**columns, "global_steps": step, "session_id": number, PHASE: str(phase), ROUND: again}


async def rescued(
    plan: Recipe, engine: ScriptedEngine, columns: dict[str, Any], group: list[Graded]
) -> RescueTry[TokenSpan] | None:
    with MathPool() as pool:
        async with node() as sandbox:
            graders: Any = {"math": MathGrader(pool), "choice": ChoiceGrader()}
            shared = replace(runner_of(plan, tokenizer("qwen3"), engine, sandbox), graders=graders)
            return await rescue(shared, plan, engine, columns, SAMPLING, 20_000, group)


async def rolled(plan: Recipe, engine: ScriptedEngine, columns: dict[str, Any]) -> Graded:
    with MathPool() as pool:
        async with node() as sandbox:
            graders: Any = {"math": MathGrader(pool), "choice": ChoiceGrader()}
            shared = replace(runner_of(plan, tokenizer("qwen3"), engine, sandbox), graders=graders)
            return await roll(shared, plan, engine, columns, SAMPLING, window=20_000)


def run(plan: Recipe, engine: ScriptedEngine, columns: dict[str, Any]) -> Graded:
    return asyncio.run(rolled(plan, engine, columns))


def test_a_row_is_rolled_out_repaired_graded_and_made_a_row() -> None:
    trajectory = run(recipe(), ScriptedEngine(REPAIRED), row())

    assert [edit.kind for _, edit in trajectory.edits] == [RepairKind.GRAFT]
    assert (trajectory.success, trajectory.reward, trajectory.stop_reason) == (True, 1.0, StopReason.ANSWERED)
    assert (trajectory.key.run, trajectory.key.step, trajectory.key.task) == ("example", 3, "sums/1")
    made = to_row(trajectory)
    assert made is not None
    assert made.versions == (4, 4)


def test_the_weights_of_a_recipe_make_the_reward_and_a_repair_leaves_it() -> None:
    tasks = {"train": ["a.parquet"], "graders": {"answer": 1.0, "failed_calls": 0.25}}
    for method in ("saar", "hindsight", "grpo"):
        trajectory = asyncio.run(rolled_with_all_graders(recipe(method, tasks=tasks)))
        assert bool(trajectory.edits) == (method != "grpo")
        assert (trajectory.reward, trajectory.success) == (0.75, True)
        made = to_row(trajectory)
        assert made is not None
        assert made.reward == 0.75


def test_verls_custom_reward_function_takes_the_place_of_the_graders(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info, most=1):\n"
        "    assert '<|im_end|>' not in solution_str and 'NameError' in solution_str\n"
        "    known = (data_source, ground_truth, extra_info['num_turns']) == ('sums', '2', 3)\n"
        "    return {'score': most * float(known), 'acc': 1}\n"
    )
    own = {"path": str(file), "name": "compute_score", "reward_kwargs": {"most": 0.5}}
    plan = recipe("hindsight", verl={"reward": {"custom_reward_function": own}})
    trajectory = asyncio.run(rolled_with_all_graders(plan))
    assert (trajectory.reward, trajectory.success) == (0.5, False), "a success is 1, unless the task has a threshold"
    assert not trajectory.edits


async def rolled_with_all_graders(plan: Recipe) -> Graded:
    async with node() as sandbox:
        engine = ScriptedEngine(REPAIRED)
        shared = runner_of(plan, tokenizer("qwen3"), engine, sandbox)
        return await roll(shared, plan, engine, row(), SAMPLING, window=20_000)


WRONG = [call("print(y)"), "So it is \\boxed{3}."]


def test_a_group_that_is_all_wrong_is_rescued_as_one_more_rollout_of_its_row() -> None:
    plan = recipe("hindsight", batch={"rollouts": 4}, rescue={"share": 1.0})
    group = [run(plan, ScriptedEngine(WRONG), row(number=number)) for number in range(plan.sampled)]
    tried = asyncio.run(rescued(plan, ScriptedEngine(REPAIRED[1:]), row(number=4), group))

    assert tried is not None
    assert tried.rescued is not None
    found = tried.rescued
    assert (found.success, found.reward, found.key) == (True, 1.0, replace(group[0].key, rollout=4))
    assert [edit.mode for _, edit in found.edits] == [RepairMode.SAAR]
    assert tried.tokens <= sum(each.info.sampled or 0 for each in group)
    assert to_row(found) is not None


def test_s18_groups_of_an_evaluation_and_of_recipes_without_rescue_are_not_rescued() -> None:
    plan = recipe("hindsight", rescue={})
    assert rescues(plan, row())
    assert not rescues(plan, row(Phase.EVALUATION))
    assert not rescues(recipe("hindsight"), row())
    group = [run(plan, ScriptedEngine(WRONG), row(Phase.EVALUATION, number=number)) for number in range(2)]
    assert asyncio.run(rescued(plan, ScriptedEngine(REPAIRED[1:]), row(Phase.EVALUATION), group)) is None


def test_s18_an_evaluation_is_never_repaired_and_draws_alike_at_every_step() -> None:
    early, late = ScriptedEngine(REPAIRED), ScriptedEngine(REPAIRED)
    first = run(recipe(), early, row(Phase.EVALUATION, step=0))
    run(recipe(), late, row(Phase.EVALUATION, step=50))

    assert not first.edits
    assert (first.key.run, first.key.phase) == ("example", Phase.EVALUATION)
    assert [each.seed for each in early.asked] == [each.seed for each in late.asked]


@pytest.mark.parametrize("changed", [{"step": 4}, {"again": 1}, {"number": 1}])
def test_another_look_at_a_task_draws_anew(changed: dict[str, int]) -> None:
    one, other = ScriptedEngine(["\\boxed{2}"]), ScriptedEngine(["\\boxed{2}"])
    run(recipe("grpo"), one, row())
    run(recipe("grpo"), other, row(**changed))  # type: ignore[arg-type]
    assert one.asked[0].seed != other.asked[0].seed


def test_s18_the_coin_is_the_seeds() -> None:
    half = recipe(purify={"probability": 0.5})
    drawn = [bool(run(half, ScriptedEngine(REPAIRED), row(number=number)).edits) for number in range(6)]
    again = [bool(run(half, ScriptedEngine(REPAIRED), row(number=number)).edits) for number in range(6)]
    assert drawn == again
    assert set(drawn) == {True, False}


def test_what_the_coin_leaves_out_can_be_collapsed_afterwards() -> None:
    later = recipe(purify={"schedule": [(3, 1.0), (4, 0.0)], "fallback": "hindsight"})
    live, afterwards = (run(later, ScriptedEngine(REPAIRED), row(step=step)) for step in (3, 4))

    assert [edit.mode for _, edit in live.edits] == [RepairMode.SAAR]
    assert [edit.mode for _, edit in afterwards.edits] == [RepairMode.HINDSIGHT]
    assert not run(later, ScriptedEngine(REPAIRED), row(Phase.EVALUATION)).edits


@pytest.mark.parametrize("method", ["hindsight", "hindsight+roc", "two-views", "two-views+rescue"])
def test_hindsight_leaves_wrong_rollouts_raw_unless_the_recipe_says_otherwise(method: str) -> None:
    wrong = [call("print(y)"), call("print(1 + 1)"), "So it is \\boxed{3}."]
    assert not run(recipe(method), ScriptedEngine(wrong), row()).edits
    assert run(recipe(method), ScriptedEngine(REPAIRED[:1] + wrong[1:2] + ["\\boxed{2}"]), row()).edits
    assert run(recipe(method, purify={"scope": "all"}), ScriptedEngine(wrong), row()).edits


def test_so_does_hindsight_on_what_the_coin_leaves_out() -> None:
    wrong = [call("print(y)"), call("print(1 + 1)"), "So it is \\boxed{3}."]
    left_out = {"probability": 0.0, "fallback": "hindsight"}
    assert not run(recipe(purify=left_out), ScriptedEngine(wrong), row()).edits
    assert run(recipe(purify={**left_out, "scope": "all"}), ScriptedEngine(wrong), row()).edits


def test_all_that_was_sampled_is_counted_whatever_is_trained_on() -> None:
    wrong = [call("print(y)"), call("print(1 + 1)"), "So it is \\boxed{3}."]
    raw = run(recipe("grpo"), ScriptedEngine(wrong), row())
    cut = run(recipe(purify={"scope": "successful"}), ScriptedEngine(wrong), row())

    assert len(cut.turns) == 1  # up to the first failure
    assert raw.info.sampled == cut.info.sampled == raw.loss_mask().sum()


def test_without_tools_a_call_is_talk_and_nothing_is_said_of_any() -> None:
    trajectory = run(recipe("no-tools"), ScriptedEngine([f"{call('print(2)')} \\boxed{{2}}", "never asked"]), row())

    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.success) == (1, StopReason.ANSWERED, True)
    assert not trajectory.turns[0].calls
    assert trajectory.info.tools == []
    assert "ython" not in trajectory.prompt.text


def test_an_evaluation_can_have_fewer_turns_than_training() -> None:
    plan = recipe("grpo", budget={"turns": 3, "evaluation_turns": 2})
    assert len(run(plan, ScriptedEngine(REPAIRED), row()).turns) == 3
    assert len(run(plan, ScriptedEngine(REPAIRED), row(Phase.EVALUATION)).turns) == 2


def test_s2_an_engine_that_breaks_makes_no_row() -> None:
    trajectory = run(recipe(), ScriptedEngine([EngineFaultError("gone")]), row())
    assert trajectory.stop_reason is StopReason.FAULT
    assert to_row(trajectory) is None


def test_s22_a_process_has_one_runner_and_many_rollouts_leave_no_task() -> None:
    async def many() -> None:
        plan = RunPlan(recipe(), ("http://127.0.0.1:1",), None)  # type: ignore[arg-type]
        engine = ScriptedEngine([])
        runners = await asyncio.gather(*[shared_runner(plan, tokenizer("qwen3"), engine) for _ in range(100)])
        assert len(set(map(id, runners))) == 1
        assert not tasks_left()
        await runners[0].tool_env._sandbox.__aexit__(None, None, None)  # type: ignore[attr-defined]

    asyncio.run(many())
