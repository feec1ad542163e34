"""The shell as a tool: its sessions go back, and the same repair as for Python, live, in hindsight, and replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.evaluate.recovery.writing import unwritable
from cleaner_rl.purify import OnUnrepaired, PurifyConfig
from cleaner_rl.replay import ReplaySettings
from cleaner_rl.replay.replayer import Replayer
from cleaner_rl.rollout import ChatRenderer, Purifier, TokenModel, rollout, tool_env_of
from cleaner_rl.tasks import load_prompt
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolSet, call_format, feedback
from cleaner_rl.trajectory import RepairKind, StopReason, TokenSpan, Trajectory
from cleaner_rl.trajectory.store import ParquetWriter, read
from cleaner_sandbox import Node, NodeConfig, Tier
from tests.nodes import asynchronous, needs
from tests.rollout.chats import tokenizer
from tests.rollout.scripted import KEY, SEEDS, TASK, ScriptedEngine

pytestmark = pytest.mark.timeout(300)

PROMPT = load_prompt("shell")
SETUP = "mkdir -p src && cd src && printf 'alpha 1\\nbeta 2\\n' > counts.txt && export WORD=beta"
MISSPELT, RIGHT = "gerp -c alpha counts.txt", "grep -c alpha counts.txt"


def turn(command: str, said: str = "Let me look.\n") -> str:
    return f"{said}<tool_call>\n{json.dumps({'name': 'bash', 'arguments': {'command': command}})}\n</tool_call>"


def call(command: str) -> ToolCall:
    return ToolSet(PROMPT.tool).read("bash", {"command": command}, 0, 0)


async def rolled(replies: list[str], purifier: Purifier | None) -> Trajectory[TokenSpan]:
    needs(Tier.T2)
    chat = ChatRenderer(tokenizer("qwen3"), ToolSet(PROMPT.tool))
    model = TokenModel(ScriptedEngine([*replies, "It is 1."]), chat, call_format("hermes"), window=20_000)
    async with Node(NodeConfig(slots=2)) as node:
        tool_env = tool_env_of(PROMPT, node)
        return await rollout(TASK, KEY, prompt=PROMPT, model=model, tool_env=tool_env, seeds=SEEDS, purifier=purifier)


@asynchronous
async def test_calls_are_of_the_shell_and_share_folder_directory_and_environment() -> None:
    needs(Tier.T2)
    assert call("ls").kind is CallKind.SHELL
    async with Node(NodeConfig(slots=1)) as node, tool_env_of(PROMPT, node).open(KEY) as session:
        first, second = await session.run([call(SETUP), call("pwd; grep $WORD counts.txt")])
        assert (first.status, second.output) == (Status.OK, "/box/run/work/src\nbeta 2\n")
        (failed,) = await session.run([call("cd ..; rm -r src; ls nowhere")])
        assert failed.failed
        assert "ls: cannot access 'nowhere'" in feedback(failed)
        assert "The program exited with code 2." in feedback(failed)
        (kept,) = await session.run([call("cat counts.txt; unset WORD")])
        assert kept.output == "alpha 1\nbeta 2\n"
        await session.rollback()
        (again,) = await session.run([call("echo $WORD")])
        assert again.output == "beta\n"


@asynchronous
async def test_a_wrong_command_is_repaired_live() -> None:
    trajectory = await rolled([turn(SETUP), turn(MISSPELT), turn(RIGHT, "A typo.\n")], Purifier())
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert [each.failed for each in trajectory.turns] == [False, False, False]
    repaired = trajectory.turns[1]
    assert repaired.edit is not None
    assert repaired.edit.kind is RepairKind.GRAFT
    assert (repaired.calls[0].code, repaired.results[0].output) == (RIGHT, "1\n")


@asynchronous
async def test_attempts_run_from_before_the_failure_and_leave_nothing() -> None:
    broken = turn("echo x >> counts.txt; cd /; grep -c alpha counts.txt")
    right = turn("echo x >> counts.txt; grep -c x counts.txt")
    trajectory = await rolled([turn(SETUP), broken, broken, right, turn("wc -l < counts.txt")], Purifier())
    assert trajectory.turns[1].results[0].output == "1\n"
    assert trajectory.turns[2].results[0].output == "3\n", "the next turn sees it once"
    config = PurifyConfig(attempts=2, on_unrepaired=OnUnrepaired.KEEP_ATTEMPTS)
    trajectory = await rolled(
        [turn(SETUP), broken, broken, broken, turn("wc -l < counts.txt")], Purifier(config=config)
    )
    assert trajectory.turns[-2].results[0].output == "2\n", "what never worked was never there"


def test_it_is_repaired_in_hindsight_and_replayed(tmp_path: Path) -> None:
    @asynchronous
    async def recorded() -> None:
        trajectory = await rolled([turn(SETUP), turn(MISSPELT), turn(RIGHT)], None)
        with ParquetWriter(tmp_path / "store") as writer:
            writer.write(trajectory)

    recorded()
    ran = CliRunner().invoke(main, ["purify", str(tmp_path / "store"), "--out", str(tmp_path / "clean"), "--json"])
    assert ran.exit_code == 0, ran.output
    (clean,) = read(tmp_path / "clean" / "store")
    assert [each.failed for each in clean.turns] == [False, False, False]
    assert clean.turns[1].calls[0].code == RIGHT
    with Replayer(ReplaySettings()) as replayer:
        assert [found.verdict for found in replayer.replay_all([clean])] == ["same"]


def test_an_unwarranted_correction_is_left_alone(tmp_path: Path) -> None:
    """The failed command has changed a file, and the next one does something else."""

    @asynchronous
    async def recorded() -> None:
        trajectory = await rolled([turn(SETUP), turn("echo y > other; test -e nowhere"), turn("ls")], None)
        with ParquetWriter(tmp_path / "store") as writer:
            writer.write(trajectory)

    recorded()
    ran = CliRunner().invoke(main, ["purify", str(tmp_path / "store"), "--out", str(tmp_path / "clean"), "--json"])
    assert ran.exit_code == 0, ran.output
    (clean,) = read(tmp_path / "clean" / "store")
    assert [each.edit for each in clean.turns] == [None, None, None, None]


def test_failures_of_python_are_not_injected_into_a_shell() -> None:
    assert "doesn't run Python" in unwritable(PROMPT)
