from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.evaluate.recovery import KINDS, Failure, failures, recovered, score_recovery, unwritable, written
from cleaner_rl.evaluate.recovery.failures import numbers
from cleaner_rl.evaluate.recovery.scoring import DID_NOT_FAIL
from cleaner_rl.evaluate.recovery.writing import WRITERS
from cleaner_rl.rollout import tool_result
from cleaner_rl.tasks import Message, Task, load_prompt, prompt_names
from cleaner_rl.tools import Status, ToolResult, ToolSet, call_format, python_tool
from cleaner_rl.trajectory import AnyTrajectory, RolloutInfo, StopReason
from cleaner_sandbox import Limits, Node, NodeConfig, RunRequest
from tests.builders import FAULT, answered, drafted, error, failed, observed, trajectory, worked
from tests.builders import written as fenced

TOOL = python_tool()


def task(question: str = "Anna has 12 apples and gives 5 of them away.", name: str = "set/1") -> Task:
    return Task(name, (Message("user", question),), "math", "7")


def every_program() -> list[tuple[str, Failure]]:
    """Each program of each kind, with a task's numbers in it."""
    found = {}
    for number in range(400):
        for each in failures(task(name=f"set/{number}"), len(KINDS)):
            found[each.kind, each.program] = each
    assert len(found) == sum(len(kind.programs) for kind in KINDS.values())
    return [(kind, failure) for (kind, _), failure in found.items()]


def test_every_program_really_fails_in_the_way_it_is_meant_to() -> None:
    async def run() -> list[tuple[str, Failure, ToolResult]]:
        programs = [(kind, failure) for kind, failure in every_program() if not failure.malformed]
        async with Node(NodeConfig(slots=2)) as node:
            limits = Limits(cpu_seconds=1.0)
            return [
                (k, f, tool_result((await node.run(RunRequest(f.program, limits=limits))).result)) for k, f in programs
            ]

    for kind, failure, result in asyncio.run(run()):
        meant = KINDS[kind]
        assert result.status is meant.status, (failure.program, result)
        if meant.exceptions:
            assert result.exception is not None
            assert result.exception.type in meant.exceptions, failure.program


@pytest.mark.parametrize("name", WRITERS)
def test_a_written_failure_is_read_as_one_call_and_only_the_malformed_one_is_refused(name: str) -> None:
    for kind, failure in every_program():
        text = written(failure, name, TOOL)
        (call,) = call_format(name).parse(text, ToolSet(TOOL)).calls
        assert text.startswith(failure.opening)
        assert (call.problem is not None) == (kind == "malformed"), text
        assert call.code.strip() == failure.program.strip() or kind == "malformed"


def test_another_format_is_refused() -> None:
    (failure,) = failures(task(), 1)
    with pytest.raises(ValueError, match="hermes"):
        written(failure, "morse", TOOL)


@pytest.mark.parametrize("name", prompt_names())
def test_failures_are_put_in_where_a_tool_runs_python_and_only_there(name: str) -> None:
    assert bool(unwritable(load_prompt(name))) == (name in ("no-tool", "shell", "sql"))


def test_under_a_format_of_another_package_nothing_is_put_in() -> None:
    assert "morse" in unwritable(replace(load_prompt("stateless"), call_format="morse"))


def test_a_thinking_block_that_the_prompt_opened_is_closed_before_the_call() -> None:
    (failure,) = failures(task(), 1)
    text = written(failure, "hermes", TOOL, prompt="…<|im_start|>assistant\n<think>\n")
    assert text.index("</think>") < text.index("<tool_call>")
    (call,) = call_format("hermes").parse(text, ToolSet(TOOL)).calls
    assert call.start > text.index("</think>")


@given(st.text(max_size=40), st.integers(1, 40), st.integers(0, 5))
def test_the_set_is_fixed_by_task_and_seed_and_kinds_are_equally_often(name: str, count: int, seed: int) -> None:
    made = failures(task(name=f"set/{name}"), count, seed=seed)
    assert made == failures(task(name=f"set/{name}"), count, seed=seed)
    often = Counter(each.kind for each in made)
    assert max(often.values()) - min(often[kind] for kind in KINDS) <= 1


def test_more_failures_of_a_task_begin_with_the_fewer() -> None:
    assert failures(task(), 20)[:5] == failures(task(), 5)


def test_tasks_begin_with_different_kinds() -> None:
    firsts = Counter(failures(task(name=f"set/{n}"), 1)[0].kind for n in range(300))
    assert set(firsts) == set(KINDS)
    assert max(firsts.values()) < 60


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="syntax"):
        failures(task(), 1, kinds=["spelling"])


def test_programs_hold_the_tasks_own_numbers() -> None:
    assert numbers(task()) == [12, 5]
    assert numbers(task("A price of 3.50 for 4 pens and 10 books, 1,000 in all")) == [4, 10]
    assert len(numbers(task("Which of these is blue?"))) == 2


def began(kind: str, *turns: object, success: bool | None = True, name: str = "p") -> AnyTrajectory:
    made = trajectory(*turns, success=success)  # type: ignore[arg-type]
    return replace(
        made, key=replace(made.key, task=name), info=RolloutInfo(injected=kind), stop_reason=StopReason.ANSWERED
    )


def test_what_followed_the_failure() -> None:
    at_once = recovered(began("name", failed(), worked(), answered()))
    assert (at_once.retried, at_once.ran_next, at_once.recovered) == (True, True, True)
    later = recovered(began("name", failed(), failed(), worked(), answered()))
    assert (later.retried, later.ran_next, later.recovered) == (True, False, True)
    gave_up = recovered(began("name", failed(), answered()))
    assert (gave_up.retried, gave_up.ran_next, gave_up.recovered) == (False, False, False)


def test_the_turn_that_was_put_in_is_not_the_models_doing() -> None:
    found = recovered(began("name", failed(), worked(), answered())).sample
    assert (found.turns, found.calls, found.failed_first) == (2, 1, 0)


def test_a_failure_that_did_not_fail_or_broke_the_sandbox_says_nothing() -> None:
    ran = recovered(began("name", worked(), answered()))
    assert (ran.sample.right, ran.sample.fault) == (None, DID_NOT_FAIL)
    broke = recovered(began("name", observed(drafted(fenced("print(1)")), FAULT), success=None))
    assert (broke.sample.right, broke.sample.fault) == (None, "no node answered")


def test_figures_by_kind_and_over_all() -> None:
    result = score_recovery(
        [
            recovered(began("name", failed(), worked(), answered(), name="a")),
            recovered(began("name", failed(), answered(), success=False, name="b")),
            recovered(began("type", failed(result=error("TypeError")), failed(), worked(), answered(), name="a")),
            recovered(began("type", worked(), answered(), name="b")),
        ]
    )
    values = {kind: {name: each.value for name, each in run.figures.items()} for kind, run in result.kinds.items()}
    assert values["name"] == {"retried": 0.5, "ran_next": 0.5, "recovery": 0.5, "pass@1": 0.5}
    assert values["type"] == {"retried": 1.0, "ran_next": 0.0, "recovery": 1.0, "pass@1": 1.0}
    assert result.kinds["type"].faults == {DID_NOT_FAIL: 1}
    assert result.overall.repaired["a"].right == 2
    assert result.overall.figures["recovery"].value == 0.5, "a: 2 of 2, b: 0 of 1"


def test_status_of_every_kind_is_the_models_failure() -> None:
    assert all(ToolResult(kind.status).failed for kind in KINDS.values())
    assert KINDS["timeout"].status is Status.TIMEOUT
