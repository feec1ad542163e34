"""Grades, rewards, and graders that break."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import cleaner_rl.tasks
from cleaner_rl.tasks import (
    GRADERS,
    ChoiceGrader,
    CodeGrader,
    Grade,
    Grader,
    MathGrader,
    MathPool,
    Outcome,
    RewardScale,
    StateGrader,
    Task,
    grade,
)
from cleaner_rl.tasks.grading import count
from cleaner_rl.tools import PluginError
from tests.tasks.builders import task


@pytest.mark.parametrize(
    ("outcome", "signed", "unit"), [(Outcome.RIGHT, 1.0, 1.0), (Outcome.WRONG, -1.0, 0.0), (Outcome.FAULT, None, None)]
)
def test_the_caller_chooses_the_scale(outcome: Outcome, signed: float | None, unit: float | None) -> None:
    assert Grade(outcome).reward(RewardScale.SIGNED) == signed
    assert Grade(outcome).reward(RewardScale.UNIT) == unit


def test_counting_keeps_faults_apart() -> None:
    counted = count([Grade(Outcome.RIGHT), Grade(Outcome.WRONG), Grade(Outcome.FAULT, None, "down")] * 2)
    assert (counted.right, counted.wrong, dict(counted.faults), counted.share) == (2, 2, {"down": 2}, 0.5)
    assert count([Grade(Outcome.FAULT)]).share is None


def test_our_graders_are_loaded_with_what_they_are_made_of() -> None:
    made = {"choice": {}, "math": {"pool": None}, "code": {"execute": None}, "state": {}}
    found = [type(GRADERS.load(name, **made[name])) for name in GRADERS.ours]
    assert found == [ChoiceGrader, CodeGrader, MathGrader, StateGrader]
    with pytest.raises(PluginError, match=r"'math' of cleaner-rl .*'pool'"):
        GRADERS.load("math")


def test_g1_a_grader_that_raises_is_a_fault_with_its_name() -> None:
    class Broken:
        async def grade(self, problem: Task, text: str) -> Grade:
            raise ZeroDivisionError

    broken: dict[str, Grader] = {"math": Broken()}
    judged = asyncio.run(grade(task(), "\\boxed{5}", broken))
    assert judged.outcome is Outcome.FAULT
    assert "ZeroDivisionError" in str(judged.reason)


@pytest.mark.parametrize(("task_fault", "attempts"), [(False, 3), (True, 1)])
def test_a_fault_is_graded_again_unless_it_is_the_tasks(
    task_fault: bool, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        asked = 0

        async def grade(self, problem: Task, text: str) -> Grade:
            self.asked += 1
            return Grade(Outcome.FAULT, None, "down", task_fault=task_fault)

    class Restarted(Down):
        async def grade(self, problem: Task, text: str) -> Grade:
            judged = await super().grade(problem, text)
            return judged if self.asked < 3 else Grade(Outcome.RIGHT)

    monkeypatch.setattr("cleaner_rl.tasks.grading.PAUSE", 0.0)
    down, restarted = Down(), Restarted()
    assert asyncio.run(grade(task(), "\\boxed{5}", {"math": down})).outcome is Outcome.FAULT
    assert down.asked == attempts
    recovered = asyncio.run(grade(task(), "\\boxed{5}", {"math": restarted})).outcome
    assert recovered is (Outcome.FAULT if task_fault else Outcome.RIGHT)


def test_an_unknown_grader_is_an_error_of_the_setup() -> None:
    with pytest.raises(LookupError, match=r"'math'.*'choice'"):
        asyncio.run(grade(task(), "", {"choice": ChoiceGrader()}))


def test_g1_a_task_without_a_reference_is_a_fault() -> None:
    pool = MathPool()  # no question reaches it, so no process starts
    assert asyncio.run(MathGrader(pool).grade(task(truth=""), "\\boxed{5}")).outcome is Outcome.FAULT
    assert asyncio.run(ChoiceGrader().grade(task("choice", "Z"), "\\boxed{A}")).outcome is Outcome.FAULT
    assert pool._idle == []


def test_an_answer_of_a_thousand_words_is_wrong_without_a_verifier() -> None:
    judged = asyncio.run(MathGrader(MathPool()).grade(task(), "\\boxed{" + "x+" * 5_000 + "5}"))
    assert judged.outcome is Outcome.WRONG
    assert "characters" in judged.reason


def test_g4_no_module_of_the_room_evaluates_text() -> None:
    folder = Path(cleaner_rl.tasks.__file__).parent
    for file in folder.rglob("*.py"):
        called = {
            node.func.id
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert called.isdisjoint({"eval", "exec", "compile", "__import__"}), file


def test_importing_the_room_loads_no_algebra_and_no_data_library() -> None:
    program = "import json, sys, cleaner_rl.tasks; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.split(".")[0] for name in json.loads(ran.stdout)}
    assert loaded.isdisjoint(
        {"sympy", "math_verify", "latex2sympy2_extended", "datasets", "pyarrow", "pandas", "numpy"}
    )
