"""`cleaner verify` and `cleaner purify --verify`: real programs, really run again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.purify import RepairConfig, hindsight
from cleaner_rl.sandbox import Node, NodeConfig, Tier
from cleaner_rl.tools import ToolResult, feedback
from cleaner_rl.trajectory import Key, RolloutInfo, TextSpan, Trajectory, Turn
from cleaner_rl.trajectory.store import ParquetWriter, read
from tests.builders import drafted_text, observed_text, written
from tests.logs.cases import Case, Step, py
from tests.logs.rendering import openai
from tests.sandbox.conftest import needs

STEADY = ("x = 2", "print(x + y)", "y = 3\nprint(x + y)", "[i ** 2 for i in range(x)]")
"""The second fails, the third mends it."""
CLOCK = ("import time\nprint(time.perf_counter_ns())",)
UNREPEATABLE = ("import os, time\npipe = os.pipe()\nprint(time.perf_counter_ns())", "1 / 0")
"""After the second, the state of the first can't be had."""


@pytest.fixture(scope="module", autouse=True)
def sessions() -> None:
    needs(Tier.T2)


def recorded(*conversations: Sequence[str]) -> list[list[ToolResult]]:
    """What a session really gives for these cells."""

    async def run() -> list[list[ToolResult]]:
        async with Node(NodeConfig(slots=2)) as node:
            results = []
            for cells in conversations:
                session = await node.open_session()
                results.append([(await session.run(cell)).result for cell in cells])
                await session.close()
            return results

    return asyncio.run(run())


def rollout(cells: Sequence[str], results: Sequence[ToolResult], number: int = 0) -> Trajectory[TextSpan]:
    turns: list[Turn[TextSpan]] = [
        observed_text(drafted_text(written(cell)), result) for cell, result in zip(cells, results, strict=True)
    ]
    return Trajectory(TextSpan("?"), tuple(turns), Key("run", 1, "task", number), info=RolloutInfo(stateful=True))


COUNTED = "print({}(0, 3, 4, len(y)))"


def store(path: Path, *trajectories: Trajectory[TextSpan]) -> Path:
    with ParquetWriter(path) as writer:
        for trajectory in trajectories:
            writer.write(trajectory)
    return path


def verified(*arguments: str | Path, exit_code: int = 0) -> Any:
    ran = CliRunner().invoke(main, ["verify", *map(str, arguments), "--json"])
    assert ran.exit_code == exit_code, ran.output
    return json.loads(ran.stdout)


def test_what_sessions_gave_they_give_again_and_tampering_is_caught(tmp_path: Path) -> None:
    steady, clock = recorded(STEADY, CLOCK)
    raw = rollout(STEADY, steady)
    assert [turn.failed for turn in raw.turns] == [False, True, False, False]
    clean = hindsight(raw, RepairConfig()).trajectory
    assert len(clean.edits) == 1
    found = verified(store(tmp_path / "a", raw, clean, rollout(CLOCK, clock)))
    assert found["verdicts"] == {"same": 2, "nondeterministic": 1}

    last = clean.turns[-1]
    output = replace(last.results[0], output="[0, 2]\n")
    in_result = replace(last, results=(output,))
    in_both = observed_text(replace(last, observation=None), output)
    in_text = replace(last, observation=TextSpan("\n<obs>[0, 2]</obs>\n"))
    in_code = replace(last, calls=(replace(last.calls[0], code="[i ** 3 for i in range(x)]"),))
    for number, tampered in enumerate((in_result, in_both, in_text)):
        changed = replace(clean, turns=(*clean.turns[:-1], tampered))
        found = verified(store(tmp_path / f"t{number}", changed), exit_code=1)
        assert found["verdicts"] == {"different": 1}, number
    assert feedback(last.results[0]) == "[0, 1]"
    changed = replace(clean, turns=(*clean.turns[:-1], in_code))
    found = verified(store(tmp_path / "code", changed), exit_code=1)
    assert found["different"][0]["why"] == "the text of turn 2 is not what its calls and results say"
    other = observed_text(drafted_text(written("[i ** 3 for i in range(x + 1)]")), last.results[0])
    found = verified(store(tmp_path / "other", replace(clean, turns=(*clean.turns[:-1], other))), exit_code=1)
    (one,) = found["different"]
    assert one["replayed"]["output"] == "[0, 1, 8]\n"
    assert (one["key"], one["turn"], one["call"]) == ("run/training/1/task/0", 2, 0)


def test_a_collapse_that_needs_what_a_failed_cell_left_is_undone(tmp_path: Path) -> None:
    """A notebook keeps what a cell did before it raised."""
    fine = Case(
        "fine",
        (
            Step("I add.", (py("print(1 + y)", _raised("NameError: name 'y' is not defined")),)),
            Step("Right.", (py("print(1 + 1)", "2"),)),
        ),
        (),
    )
    needed = Case(
        "needed",
        (
            Step(
                "I set.",
                (py(f"y = list()\n{COUNTED.format('Max')}", _raised("NameError: name 'Max' is not defined", 2)),),
            ),
            Step("I print.", (py(COUNTED.format("max"), "4"),)),
        ),
        (),
    )
    wrong = Case("wrong", (Step("I lie.", (py("print(3)", "4"),)),), ())
    clock = Case("clock", (Step("The time.", (py("import time; print(time.perf_counter_ns())", "12345"),)),), ())
    other = Case("other", (*fine.steps, Step("I set.", (py("q = 1", ""),))), ())
    logs = tmp_path / "logs.jsonl"
    logs.write_text("".join(json.dumps(openai(case)) + "\n" for case in (fine, needed, wrong, clock, other)))
    out = tmp_path / "out"
    arguments = ["purify", str(logs), "--out", str(out), "--verify", "--session", "--same", "--json"]
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["replayed"] == {"same": 1, "undone": 1, "different": 1, "nondeterministic": 1, "not_replayable": 1}
    kept = {each.info.replay: each for each in read(out / "store")}
    assert sorted(map(str, kept)) == ["different", "nondeterministic", "not_replayable", "same", "undone"]
    assert len(kept["same"].edits) == 1
    assert not kept["undone"].edits
    assert found["edited"] == sum(found["edits"].values()) == 2, "what a replay undid is no edit"
    assert (found["failed_turns"], found["repaired_turns"], found["left_alone"]) == (3, 2, {"undone": 1})
    assert found["kept"] == len((out / "same/logs.jsonl").read_text().splitlines()) == 5
    # What was kept says the truth of itself; the clock is the clock.
    assert verified(out / "store", "--session", exit_code=1)["verdicts"] == {
        "same": 2, "nondeterministic": 1, "not_replayable": 1, "different": 1
    }  # fmt: skip
    proven = CliRunner().invoke(
        main, ["purify", str(logs), "--out", str(tmp_path / "proven"), *arguments[4:], "--only-proven"]
    )
    assert proven.exit_code == 0, proven.output
    found = json.loads(proven.stdout)
    assert (found["edited"], found["left_alone"]) == (1, {"undone": 1, "unproven": 1})


def test_a_session_that_its_own_cells_lose_is_nondeterministic_and_the_next_one_is_replayed(tmp_path: Path) -> None:
    lost, steady = recorded(UNREPEATABLE, STEADY)
    last = "print('more')"
    results = [*lost, replace(lost[0], output="more\n")]
    made = store(tmp_path / "a", rollout((*UNREPEATABLE, last), results), rollout(STEADY, steady, 1))
    assert verified(made)["verdicts"] == {"nondeterministic": 1, "same": 1}


def test_a_log_is_different_only_if_it_is_so_with_and_without_state(tmp_path: Path) -> None:
    stateful = Case("state", (Step("I set.", (py("x = 2\nprint(x)", "2"),)), Step("I add.", (py("x + 1", "3"),))), ())
    # In one interpreter the second call would find `x`.
    stateless = Case(
        "fresh",
        (
            Step("I set.", (py("x = 2\nprint(x)", "2"),)),
            Step("I look.", (py("print('x' in globals())", "False"),)),
        ),
        (),
    )
    wrong = Case("wrong", (Step("I lie.", (py("print(3)", "4"),)),), ())
    logs = tmp_path / "logs.jsonl"
    logs.write_text("".join(json.dumps(openai(case)) + "\n" for case in (stateful, stateless, wrong)))
    ran = CliRunner().invoke(main, ["purify", str(logs), "--out", str(tmp_path / "out"), "--verify"])
    assert ran.exit_code == 0, ran.output
    assert "replayed     2 same, 1 different" in ran.stdout
    assert "not proven   1 " in ran.stdout
    assert verified(tmp_path / "out/store", exit_code=1)["verdicts"] == {"same": 2, "different": 1}
    assert verified(tmp_path / "out/store", "--fresh", exit_code=1)["verdicts"] == {"same": 1, "different": 2}
    assert verified(tmp_path / "out/store", "--session", exit_code=1)["verdicts"] == {"same": 1, "different": 2}


def test_a_log_s_text_that_was_changed_behind_its_calls_is_caught(tmp_path: Path) -> None:
    case = Case("one", (Step("I add.", (py("print(1 + 1)", "2"),)), Step("It is 2.")), ())
    (tmp_path / "logs.jsonl").write_text(json.dumps(openai(case)) + "\n")
    arguments = ["purify", str(tmp_path / "logs.jsonl"), "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert verified(tmp_path / "out/store", "--fresh")["verdicts"] == {"same": 1}
    stored: Trajectory[Any] = next(iter(read(tmp_path / "out/store")))
    first = stored.turns[0]
    assert first.action is not None
    assert first.observation is not None
    for number, tampered in enumerate(
        (
            replace(first, action=TextSpan(first.action.text.replace("1 + 1", "0 + 2"))),
            replace(first, observation=TextSpan(first.observation.text.replace("2", "3"))),
        )
    ):
        changed = replace(stored, turns=(tampered, *stored.turns[1:]))
        path = store(tmp_path / f"tampered-{number}", changed)
        (found,) = verified(path, "--fresh", exit_code=1)["different"]
        assert found["why"] == "the text of turn 0 is not what its calls and results say"


def _raised(last: str, line: int = 1) -> str:
    return f'Traceback (most recent call last):\n  File "<cell>", line {line}, in <module>\n{last}'
