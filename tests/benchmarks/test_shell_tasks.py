"""The tasks in a shell: each is solved by its solution, each mistake fails, and nothing is right by doing nothing."""

from __future__ import annotations

import random
import re
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.shell.lessons import DONE, LESSONS, PROMPT, Shown, call, vocabulary
from benchmarks.shell.local import METHODS, recipe
from benchmarks.shell.tasks import KINDS, WORDS, ShellTask, shell_tasks
from cleaner_rl.rollout import ChatRenderer, ToolEnv, tool_env_of
from cleaner_rl.rollout.tool_env import prepared_for
from cleaner_rl.tasks import Outcome, StateGrader, read_verl
from cleaner_rl.tools import ToolCall, ToolResult, ToolSet
from cleaner_rl.trajectory import Key
from cleaner_sandbox import Node, NodeConfig, Tier
from tests.nodes import asynchronous, needs

pytestmark = pytest.mark.timeout(300)
TASKS = [*islice(shell_tasks(0), 2 * len(KINDS))]


def read(command: str) -> ToolCall:
    return ToolSet(PROMPT.tool).read("bash", {"command": command}, 0, 0)


async def after(task: ShellTask, tools: ToolEnv, *commands: str) -> tuple[list[ToolResult], Outcome]:
    made = task.task("test")
    async with prepared_for(made, tools).open(Key("test", 0, "", 0)) as session:
        results = await session.run([read(command) for command in commands])
        (checked,) = await session.run([read(made.check)])
    return results, (await StateGrader().grade(made, checked.output)).outcome


@asynchronous
async def test_each_is_solved_by_its_solution_and_not_by_its_mistakes() -> None:
    needs(Tier.T2)
    async with Node(NodeConfig(slots=2)) as node:
        tools = tool_env_of(PROMPT, node)
        for task in TASKS:
            failed, outcome = await after(task, tools, *task.mistakes)
            assert all(each.failed for each in failed), (task.kind, failed)
            assert outcome is Outcome.WRONG, task.kind
            (result,), outcome = await after(task, tools, task.solution)
            assert not result.failed, (task.kind, result)
            assert outcome is Outcome.RIGHT, (task.kind, result)


def test_a_seed_gives_the_same_tasks_and_another_one_others() -> None:
    assert [*islice(shell_tasks(0), len(TASKS))] == TASKS
    assert {each.asked for each in islice(shell_tasks(1), 80)}.isdisjoint(each.asked for each in TASKS)
    assert len({each.asked for each in islice(shell_tasks(2), 80)}) > 70


def shown(task: ShellTask) -> Shown:
    return Shown(task.asked, (call(task.solution), DONE), ("",))


def test_other_names_are_put_everywhere_and_no_other_word_changes() -> None:
    count = next(each for each in TASKS if each.kind == "count")
    before, after_ = shown(count), shown(count).renamed(random.Random(0))
    assert after_.asked != before.asked
    assert "write the number into" in after_.asked  # it ends with a name
    other = dict(zip(re.findall(r"\w+", before.asked), re.findall(r"\w+", after_.asked), strict=True))
    assert re.sub(r"\w+", lambda word: other.get(word[0], word[0]), before.turns[0]) == after_.turns[0]


def test_each_name_is_one_token_and_the_prompt_few() -> None:
    made = [shown(each) for each in islice(shell_tasks(0), 10 * len(KINDS))]
    tokenizer = vocabulary(made, LESSONS)
    assert [tokenizer.tokenize(f"./{word}.txt")[1] for word in WORDS] == WORDS
    assert len(ChatRenderer(tokenizer, ToolSet(PROMPT.tool)).prompt(made[0].prompt).ids) < 64


@pytest.mark.parametrize("method", METHODS)
def test_the_recipe_of_a_method_has_other_tasks_in_training_than_in_evaluation(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEANER_LAB", str(tmp_path))
    made = recipe(tmp_path / "model", method, 2)
    assert made.method == method
    train, held_out = ([*read_verl(file)] for (file,) in (made.tasks.train, made.tasks.held_out))
    assert {each.source for each in (*train, *held_out)} == {"shell"}
    assert all(each.check for each in (*train, *held_out))
    assert {each.id for each in train}.isdisjoint(each.id for each in held_out)
