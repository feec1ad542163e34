"""Tasks with a setup and a check: sessions begin with the one, and what the other prints is graded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner_rl.purify import PurifyConfig
from cleaner_rl.replay import ReplaySettings
from cleaner_rl.replay.replayer import Replayer
from cleaner_rl.rollout import (
    ChatRenderer,
    Purifier,
    RolloutRunner,
    SessionToolEnv,
    StatelessToolEnv,
    TokenModel,
    rollout,
    tool_env_of,
)
from cleaner_rl.tasks import Grader, Message, StateGrader, Task, UngradableError, check_gradable, load_prompt
from cleaner_rl.tools import ToolSet, call_format
from cleaner_rl.trajectory import RepairMode, StopReason, TokenSpan, Trajectory
from cleaner_sandbox import BARE, Language, Node, NodeConfig, SessionRequest, Tier, build_environment
from tests.nodes import asynchronous, needs
from tests.rollout.chats import tokenizer
from tests.rollout.scripted import KEY, SEEDS, ScriptedEngine

pytestmark = pytest.mark.timeout(300)

PROMPT = load_prompt("shell")
ADD = Task(
    "test/add",
    (Message("user", "Correct add.sh: it should print the sum of its two arguments."),),
    grader="state",
    truth="42\n97\n",
    extra={"setup": "echo 'echo $(($1 - $2))' > add.sh", "check": "bash add.sh 17 25; bash add.sh 100 -3"},
)
LOOK, FIX = "cat add.sh", "sed -i 's/-/+/' add.sh && bash add.sh 1 2"
TYPO = "sed -i 's/-/+/' ad.sh && bash add.sh 1 2"


def turn(command: str) -> str:
    return f"So.\n<tool_call>\n{json.dumps({'name': 'bash', 'arguments': {'command': command}})}\n</tool_call>"


def model(replies: Sequence[str]) -> TokenModel:
    chat = ChatRenderer(tokenizer("qwen3"), ToolSet(PROMPT.tool))
    return TokenModel(ScriptedEngine([*replies, "It is done."]), chat, call_format("hermes"), window=20_000)


async def graded(task: Task, replies: Sequence[str], purifier: Purifier | None = None) -> Trajectory[TokenSpan]:
    needs(Tier.T2)
    graders: dict[str, Grader] = {"state": StateGrader()}
    async with Node(NodeConfig(slots=2)) as node:
        tool_env = tool_env_of(PROMPT, node)
        return await RolloutRunner(model(replies), tool_env, PROMPT, graders, purifier=purifier).run_one(task, KEY)


@asynchronous
async def test_what_the_calls_left_is_graded_and_not_what_the_model_says() -> None:
    done = await graded(ADD, [turn(LOOK), turn(FIX)])
    assert done.turns[0].results[0].output == "echo $(($1 - $2))\n"
    assert (done.success, done.reward, done.info.checked) == (True, 1.0, "42\n97\n")
    idle = await graded(ADD, [turn(LOOK)])
    assert (idle.success, idle.reward, idle.info.checked) == (False, -1.0, "-8\n103\n")


@asynchronous
async def test_the_check_sees_what_a_repair_left() -> None:
    live = await graded(ADD, [turn(TYPO), turn(FIX)], Purifier())
    assert [each.failed for each in live.turns] == [False, False]
    assert live.success
    later = Purifier(mode=RepairMode.HINDSIGHT, config=PurifyConfig(), rescore=False)
    purified = await graded(ADD, [turn(TYPO), turn(FIX)], later)
    assert (purified.success, purified.info.replay) == (True, "same"), "it was replayed on the same setup"
    assert len(purified.turns) == 2


def test_it_is_replayed_from_its_setup_on() -> None:
    made: list[Trajectory[TokenSpan]] = []

    @asynchronous
    async def recorded() -> None:
        made.append(await graded(ADD, [turn(LOOK), turn(FIX)]))

    recorded()
    with Replayer(ReplaySettings()) as replayer:
        assert [found.verdict for found in replayer.replay_all(made)] == ["same"]


@asynchronous
async def test_a_setup_that_fails_is_a_fault_and_not_the_models() -> None:
    broken = Task("test/broken", ADD.prompt, "state", "1", extra={"setup": "cat nowhere", "check": "echo 1"})
    needs(Tier.T2)
    async with Node(NodeConfig(slots=1)) as node:
        tools = SessionToolEnv(node, SessionRequest(language=Language.BASH))
        made = await rollout(broken, KEY, prompt=PROMPT, model=model([turn("ls")]), tool_env=tools, seeds=SEEDS)
    assert made.stop_reason is StopReason.FAULT
    assert "the task's setup failed" in made.info.fault
    assert "nowhere" in made.info.fault


@asynchronous
async def test_a_rollout_that_never_ends_is_not_checked() -> None:
    done = await graded(ADD, [turn(FIX)] * 40)
    assert (done.stop_reason, done.info.checked, done.success) == (StopReason.TURN_LIMIT, None, False)


@asynchronous
async def test_a_tool_without_sessions_refuses_them() -> None:
    async with Node(NodeConfig(slots=1)) as node:
        with pytest.raises(ValueError, match="must have a session's tool"):
            await rollout(ADD, KEY, prompt=PROMPT, model=model([]), tool_env=StatelessToolEnv(node), seeds=SEEDS)


def test_tasks_without_a_check_are_named_before_anything_is_sampled() -> None:
    bare = Task("test/bare", ADD.prompt, "state", "1")
    empty = Task("test/empty", ADD.prompt, "state", " \n", extra={"check": "true"})
    with pytest.raises(UngradableError, match="there is no check") as raised:
        check_gradable([bare, empty, ADD], ["state"])
    assert "the truth is empty" in str(raised.value)
    assert "test/add" not in str(raised.value)


@asynchronous
async def test_a_task_can_name_the_environment_of_its_session(tmp_path: Path) -> None:
    needs(Tier.T2)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "add.sh").write_text("echo $(($1 - $2))\n")
    task = replace(ADD, extra={"environment": "repo", "check": ADD.check})
    repo = build_environment("repo", base=tmp_path / "source", folder=tmp_path)
    async with Node(NodeConfig(slots=2, environments=(BARE, repo))) as node:
        runner = RolloutRunner(
            model([turn(LOOK), turn(FIX)]), tool_env_of(PROMPT, node), PROMPT, {"state": StateGrader()}
        )
        done = await runner.run_one(task, KEY)
        assert (done.success, done.info.checked) == (True, "42\n97\n")
        assert done.info.tool == {"kind": "shell", "options": {}, "environment": "repo"}
