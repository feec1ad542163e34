"""`cleaner verify` and the replay of `cleaner purify`: real programs, really run again."""

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
from cleaner_rl.rollout import tool_result
from cleaner_rl.tools import ToolResult, feedback
from cleaner_rl.trajectory import Key, RolloutInfo, TextSpan, Trajectory, Turn
from cleaner_rl.trajectory.store import ParquetWriter, read
from cleaner_sandbox import Node, NodeConfig, Tier
from tests.builders import drafted_text, observed_text, written
from tests.logs.cases import UNREAD, Case, Step, py
from tests.logs.rendering import openai
from tests.nodes import needs

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
                results.append([tool_result((await session.run(cell)).result) for cell in cells])
                await session.close()
            return results

    return asyncio.run(run())


def rollout(cells: Sequence[str], results: Sequence[ToolResult], number: int = 0) -> Trajectory[TextSpan]:
    turns: list[Turn[TextSpan]] = [
        observed_text(drafted_text(written(cell)), result) for cell, result in zip(cells, results, strict=True)
    ]
    return Trajectory(TextSpan("?"), tuple(turns), Key("run", 1, "task", number), info=RolloutInfo(stateful=True))


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


def raised(last: str, line: int = 1) -> str:
    return f'Traceback (most recent call last):\n  File "<cell>", line {line}, in <module>\n{last}'


FINE = (
    Step("I add.", (py("print(1 + )", UNREAD),)),
    Step("Right.", (py("print(1 + 1)", "2"),)),
)
COUNTED = "n = globals().get('n', 0) + 1\nprint({}(n, 1))"
NEEDED = (
    Step("I count.", (py(COUNTED.format("Max"), raised("NameError: name 'Max' is not defined", 2)),)),
    Step("I count.", (py(COUNTED.format("max"), "2"),)),
)
"""The correction needs what the failed cell did before it raised, which a notebook keeps."""
REPLAYED = {
    "same": FINE,
    "undone": NEEDED,
    "nondeterministic": (*FINE, Step("The time.", (py("import time; print(time.perf_counter_ns())", "12345"),))),
    "different": (*FINE, Step("I read.", (py("print(open('/data/rows.csv').read())", "1,2"),))),
    "not_replayable": (*FINE, Step("I set.", (py("q = 1", ""),))),
    "": (Step("I lie.", (py("print(3)", "4"),)),),
}
"""By verdict; the last one has no repair."""


def purified(out: Path, *options: str) -> Any:
    logs = out.with_suffix(".jsonl")
    cases = (Case(name, steps, ()) for name, steps in REPLAYED.items())
    logs.write_text("".join(json.dumps({**openai(case), "id": case.name}) + "\n" for case in cases))
    ran = CliRunner().invoke(main, ["purify", str(logs), "--out", str(out), "--session", "--json", *options])
    assert ran.exit_code == 0, ran.output
    assert "run again in a sandbox here, isolated and without network" in ran.stderr
    return json.loads(ran.stdout)


def test_repairs_are_replayed_by_default_and_undone_if_they_change_a_result(tmp_path: Path) -> None:
    found = purified(tmp_path / "out", "--same")
    verdicts = REPLAYED.keys() - {""}
    assert found["replayed"] == dict.fromkeys(verdicts, 1), "nothing without a repair is replayed"
    stored: list[Trajectory[Any]] = list(read(tmp_path / "out/store"))
    assert [each.info.replay for each in stored] == list(REPLAYED)
    # Where a replay says nothing, a repair is made as without a sandbox.
    assert [len(each.edits) for each in stored] == [1, 0, 1, 1, 1, 0]
    assert found["edited"] == sum(found["edits"].values()) == 4, "what a replay undid is no edit"
    assert (found["failed_turns"], found["repaired_turns"], found["left_alone"]) == (5, 4, {"undone": 1})
    assert found["trajectories"] == len((tmp_path / "out/same/out.jsonl").read_text().splitlines()) == 6


def test_only_what_a_replay_proves_is_repaired_on_request(tmp_path: Path) -> None:
    found = purified(tmp_path / "out", "--only-proven")
    assert [len(each.edits) for each in read(tmp_path / "out/store")] == [1, 0, 0, 0, 0, 0]
    assert found["left_alone"] == {"undone": 1, "unproven": 3}


def test_a_failure_that_was_left_alone_keeps_its_reason_if_a_repair_is_undone(tmp_path: Path) -> None:
    uncorrected = Step("I divide.", (py("1 / 0", raised("ZeroDivisionError: division by zero")),), then="Go on.")
    (tmp_path / "a.jsonl").write_text(json.dumps(openai(Case("two", (uncorrected, *NEEDED), ()))) + "\n")
    arguments = ["purify", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "out"), "--session", "--json"]
    found = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert found["left_alone"] == {"uncorrected": 1, "undone": 1}


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
    ran = CliRunner().invoke(main, ["purify", str(logs), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
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
