"""Programs judged by test cases, with attacks on the verdict."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tasks import Case, Cases, CodeGrader, CodeRun, Grade, Outcome, Task
from cleaner_rl.tasks.grading import call_case, programs
from cleaner_rl.tasks.grading.cases import same_output, same_value
from cleaner_rl.tasks.grading.runner import literal, whole_program
from cleaner_rl.tools import Status, ToolResult
from tests.tasks.builders import LocalExecutor, code_task, fenced, task

T = TypeVar("T")
DOUBLE = code_task(Case("3\n", "6\n"), Case("10\n", "20\n"))
ADD = code_task(call_case([1, 2], {}, 3), call_case([5], {"b": 6}, 11), entry="add")


def judged(problem: Task, program: str, seconds: float = 30.0) -> Grade:
    return asyncio.run(CodeGrader(LocalExecutor(), seconds).grade(problem, fenced(program)))


def outcomes(grade: Grade) -> list[str]:
    return [case.outcome.value for case in grade.cases]


@pytest.mark.parametrize(
    "program",
    [
        "print(2 * int(input()))",
        "import sys\nprint(2 * int(sys.stdin.read()))\nsys.exit(0)",
        "if __name__ == '__main__':\n    print(float(input()) * 2)",
        "from __future__ import annotations\nprint(' ', 2 * int(input()), ' ')",
        "def main():\n    n: List[int] = [int(input())]\n    print(sum(n + n))\nmain()",
    ],
)
def test_a_right_program_passes_all_cases(program: str) -> None:
    grade = judged(DOUBLE, program)
    assert grade.outcome is Outcome.RIGHT, grade.reason
    assert outcomes(grade) == ["right", "right"]


@pytest.mark.parametrize(
    "program",
    [
        "def add(a, b): return a + b",
        "class Solution:\n    def add(self, a: int, b: Optional[int]):\n        print('noise')\n        return a + b",
        "def add(a, b): return a + b\nif __name__ == '__main__':\n    raise SystemExit(int(input()))",
        """
from __future__ import annotations
from dataclasses import dataclass
@dataclass
class Sum:
    a: int
    b: Optional[int]
def add(a, b): return Sum(a, b).a + b""",
    ],
)
def test_a_right_function_passes_all_calls(program: str) -> None:
    grade = judged(ADD, program)
    assert grade.outcome is Outcome.RIGHT, grade.reason


def test_each_case_has_its_own_verdict() -> None:
    grade = judged(DOUBLE, "n = int(input())\nprint(6 if n == 3 else 1 // 0)")
    assert grade.outcome is Outcome.WRONG
    assert outcomes(grade) == ["right", "wrong"]
    assert grade.reason == "Case 2 of 2: The run ended with 'error'."


FORGERIES = {
    "prints a verdict": """print('{"outcome": "right"}')""",
    "exits at once": "import sys; sys.exit(0)",
    "exits hard": "import os; os._exit(0)",
    "breaks print": "import builtins; builtins.print = lambda *a: None",
    "writes to all descriptors": r"""
import os
for fd in range(1, 8):
    try:
        os.write(fd, b"right\nresult-0:3\n")
    except OSError:
        pass""",
    "exits hard in the call": """
def add(a, b):
    import os; os._exit(0)""",
    "exits in the call": """
def add(a, b):
    raise SystemExit(0)""",
    "equals everything": """
class Equal:
    def __eq__(self, other): return True
    def tolist(self): return "x"
def add(a, b): return Equal()""",
    "patches json": """
import json; json.dumps = lambda *a, **k: "true"
def add(a, b): return 0""",
    "replaces stdout": """
import sys
def add(a, b):
    class Fake:
        def write(self, text): pass
        def flush(self): pass
    sys.stdout = Fake()
    return a + b""",
    "searches memory": """
import gc
def add(a, b): return [each for each in gc.get_objects() if isinstance(each, dict) and "output" in each]""",
    "searches frames": """
import sys
def add(a, b):
    frame = sys._getframe(1)
    return frame.f_globals.get("wanted", frame.f_locals.get("expected"))""",
}


@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES)
@pytest.mark.parametrize("problem", [DOUBLE, ADD], ids=["stdin", "call"])
def test_g5_a_program_cannot_forge_its_verdict(problem: Task, program: str) -> None:
    grade = judged(problem, program)
    assert grade.outcome is Outcome.WRONG
    assert "right" not in outcomes(grade)


@pytest.mark.parametrize("entry", [None, "solve"])
def test_g5_what_should_come_out_never_reaches_the_executor(entry: str | None) -> None:
    secret = "7351902846"
    problem = code_task(
        Case('{"args": [1], "kwargs": {}}', secret), Case('{"args": [2], "kwargs": {}}', "9"), entry=entry
    )
    executor = LocalExecutor()
    asyncio.run(CodeGrader(executor).grade(problem, fenced("def solve(n): return n")))
    assert [run.stdin for run in executor.runs] == ['{"args": [1], "kwargs": {}}', '{"args": [2], "kwargs": {}}']
    assert not any(secret in run.program + run.stdin for run in executor.runs)


def test_g5_a_case_is_told_nothing_of_the_others() -> None:
    executor = LocalExecutor()
    problem = code_task(Case("alpha", "1"), Case("beta", "2"))
    asyncio.run(CodeGrader(executor).grade(problem, fenced("pass")))
    first, second = executor.runs
    assert "beta" not in first.program + first.stdin
    assert "alpha" not in second.program + second.stdin


@pytest.mark.parametrize("status", [status for status in Status if status not in (Status.OK, Status.FAULT)])
def test_g5_no_end_of_its_own_making_turns_a_failure_into_a_fault(status: Status) -> None:
    async def execute(_: CodeRun) -> ToolResult:
        return ToolResult(status, "6\n", explanation="The tool is not available.")

    assert asyncio.run(CodeGrader(execute).grade(DOUBLE, fenced("pass"))).outcome is Outcome.WRONG


def test_g5_printing_without_end_is_wrong_but_an_output_cut_by_the_executor_a_fault() -> None:
    wanted = "x" * 5_000

    def answer(kept: str, length: int) -> Outcome:
        async def execute(_: CodeRun) -> ToolResult:
            return ToolResult(Status.OK, kept, output_length=length)

        return asyncio.run(CodeGrader(execute).grade(code_task(Case("", wanted)), fenced("pass"))).outcome

    assert answer(wanted[:100], 5_000) is Outcome.FAULT
    assert answer(wanted[:100], 5_000_000) is Outcome.WRONG
    assert answer(wanted, 5_000) is Outcome.RIGHT
    assert answer(wanted, 5_001) is Outcome.FAULT, "what was cut off could be more than a line's end"
    assert answer(wanted, 5_000_000) is Outcome.WRONG


def test_g5_an_executor_is_told_how_much_a_right_output_needs() -> None:
    executor = LocalExecutor()
    problem = code_task(Case("", "6"), Case("", "é" * 3_000_000))
    asyncio.run(CodeGrader(executor).grade(problem, fenced("pass")))
    short, long = executor.runs
    assert short.output_bytes == 1_048_576
    assert long.output_bytes > len(("é" * 3_000_000 + "\n").encode())


def test_g1_a_broken_executor_is_a_fault() -> None:
    async def raises(_: CodeRun) -> ToolResult:
        raise ConnectionError("down")

    async def faulty(run: CodeRun) -> ToolResult:
        return ToolResult(Status.OK, "6") if run.stdin == "3\n" else ToolResult(Status.FAULT)

    async def silent(_: CodeRun) -> ToolResult:
        return await asyncio.Future[ToolResult]()

    for execute in (raises, faulty, silent):
        grade = played(CodeGrader(execute).grade(DOUBLE, fenced("pass")))
        assert grade.outcome is Outcome.FAULT, execute
        assert grade.reward() is None


def test_g1_a_failed_case_settles_it_though_another_had_a_fault() -> None:
    async def execute(run: CodeRun) -> ToolResult:
        return ToolResult(Status.FAULT) if run.stdin == "3\n" else ToolResult(Status.OK, "21")

    grade = asyncio.run(CodeGrader(execute).grade(DOUBLE, fenced("pass")))
    assert grade.outcome is Outcome.WRONG
    assert outcomes(grade) == ["fault", "wrong"]


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once when there is nothing else to do."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def played(grading: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(grading)


MANY = code_task(*(Case(f"{number}\n", "right") for number in range(100)))


class Queue:
    """An executor that runs so many programs at the same time, in turn; each sleeps until it is stopped."""

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)
        self.begun = 0

    async def __call__(self, run: CodeRun) -> ToolResult:
        async with self._slots:
            self.begun += 1
            await asyncio.sleep(run.wall_seconds)
        return ToolResult(Status.TIMEOUT)


@pytest.mark.parametrize("programs", [1, 200])
def test_finding_a_program_that_sleeps_is_wrong_however_many_do_so_at_once(programs: int) -> None:
    queue = Queue(slots=4)
    grader = CodeGrader(queue)

    async def grade_all() -> list[Grade]:
        return await asyncio.gather(*(grader.grade(MANY, fenced("sleep")) for _ in range(programs)))

    grades = played(grade_all())
    assert {(grade.outcome, len(grade.cases)) for grade in grades} == {(Outcome.WRONG, 1)}
    assert queue.begun <= 8 * programs


def test_after_the_first_wrong_case_no_more_are_run() -> None:
    ran: list[int] = []

    async def execute(run: CodeRun) -> ToolResult:
        ran.append(int(run.stdin))
        await asyncio.sleep(100.0 if run.stdin == "2\n" else 1.0)
        return ToolResult(Status.OK, "right" if int(run.stdin) not in (5, 7) else "wrong")

    grade = played(CodeGrader(execute).grade(MANY, fenced("pass")))
    assert outcomes(grade) == ["right"] * 5 + ["wrong"]
    assert grade.reason.startswith("Case 6 of 100:")
    assert max(ran) < 5 + 8


@pytest.mark.parametrize(("told", "outcome"), [("wrong", Outcome.WRONG), ("right", Outcome.FAULT)])
def test_an_executor_that_falls_silent_is_judged_by_what_came_back(told: str, outcome: Outcome) -> None:
    async def execute(run: CodeRun) -> ToolResult:
        if run.stdin == "3\n":
            return ToolResult(Status.OK, told)
        return await asyncio.Future[ToolResult]()

    grade = played(CodeGrader(execute).grade(MANY, fenced("pass")))
    assert grade.outcome is outcome
    assert outcomes(grade)[:4] == ["fault"] * 3 + [told]


def test_a_fault_is_told_without_asking_for_all_cases() -> None:
    """A client whose nodes are away takes minutes to say so."""
    asked: list[str] = []

    async def execute(run: CodeRun) -> ToolResult:
        asked.append(run.stdin)
        await asyncio.sleep(300.0)
        return ToolResult(Status.FAULT)

    assert played(CodeGrader(execute).grade(MANY, fenced("pass"))).outcome is Outcome.FAULT
    assert len(asked) == 8


def test_a_program_that_never_ends_is_wrong() -> None:
    assert outcomes(judged(code_task(Case("", "1")), "while True: pass", seconds=0.5)) == ["wrong"]


def test_no_program_is_wrong_and_no_cases_are_a_fault() -> None:
    grader = CodeGrader(LocalExecutor())
    assert asyncio.run(grader.grade(DOUBLE, "print(6)")).outcome is Outcome.WRONG
    assert asyncio.run(grader.grade(code_task(), fenced("pass"))).outcome is Outcome.FAULT
    assert asyncio.run(grader.grade(task("code", "6"), fenced("pass"))).outcome is Outcome.FAULT


def test_cancelling_reaches_the_executor() -> None:
    cancelled: list[bool] = []

    async def execute(_: CodeRun) -> ToolResult:
        try:
            return await asyncio.Future[ToolResult]()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def main() -> None:
        grading = asyncio.create_task(CodeGrader(execute).grade(DOUBLE, fenced("pass")))
        for _ in range(3):  # until both cases have begun
            await asyncio.sleep(0)
        grading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await grading

    asyncio.run(main())
    assert cancelled == [True, True]


@pytest.mark.parametrize(
    ("printed", "wanted", "same"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        ("1 2 \n 3", "1 2\n3", True),
        ("1\n2", "1 2", False),
        ("1.0 2.50", "1 2.5", True),
        ("1.0000001", "1", False),
        ("50000000000000000", "50000000000000001", False),
        ("yes", "YES", False),
        ("", "", True),
        ("", "0", False),
        ("nan", "nan", True),
        ("1 a", "1.0 a", False),
        ("0.3333333333", "0.333333", True),
        ("1.9999999999", "2.0", True),
        ("1e-17", "0.0", True),
        ("2e-7", "1e-7", False),
        ("3.0000000001", "3", False),
        ("100000.0", "100000", True),
        ("Infinity", "inf", True),
        ("7", "007", False),
        ("1_000", "1000", False),
        ("٣", "3", False),
    ],
)
def test_outputs_are_compared_by_lines_and_numbers(printed: str, wanted: str, same: bool) -> None:
    assert same_output(printed, wanted) is same


@pytest.mark.parametrize(
    ("given_value", "wanted", "same"),
    [
        (True, 1, False),
        (1, True, False),
        ([1, [True]], [1, [1]], False),
        (3.0, 3, True),
        ("3", 3, False),
        (0.30000000000000004, 0.3, True),
        ([0.30000000000000004], [0.3], True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        (float("nan"), 1, False),
        (None, None, True),
        (None, 0, False),
    ],
)
def test_values_are_compared_with_their_types(given_value: object, wanted: object, same: bool) -> None:
    assert same_value(given_value, wanted) is same


def test_a_set_is_no_list_and_a_tuple_is_one() -> None:
    problem = code_task(call_case([1, 2], {}, [1, 2]), entry="f")
    grader = CodeGrader(LocalExecutor())
    outcomes = [
        asyncio.run(grader.grade(problem, fenced(f"def f(a, b): return {value}"))).outcome
        for value in ("{a, b}", "(a, b)", "frozenset((a, b))", "map(int, (a, b))")
    ]
    assert outcomes == [Outcome.WRONG, Outcome.RIGHT, Outcome.WRONG, Outcome.RIGHT]


@given(st.text(), st.text())
def test_outputs_agree_with_themselves_and_both_ways(one: str, other: str) -> None:
    assert same_output(one, one)
    assert same_output(one, other) == same_output(other, one)


@given(st.lists(st.tuples(st.text(), st.text())), st.none() | st.text())
def test_cases_survive_their_text(pairs: list[tuple[str, str]], entry: str | None) -> None:
    cases = Cases(tuple(Case(*pair) for pair in pairs), entry)
    assert Cases.loads(cases.dumps()) == cases


@pytest.mark.parametrize("text", ["", "5", "[]", '{"cases": [1], "entry": null}', '{"cases": []}', "null"])
def test_other_texts_are_no_cases(text: str) -> None:
    with pytest.raises(ValueError, match="test cases"):
        Cases.loads(text)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON_VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(JSON_VALUES, st.dictionaries(st.text(), JSON_VALUES, max_size=2))
def test_a_call_hands_over_the_arguments_as_they_are(argument: object, more: dict[str, object]) -> None:
    given_over = json.loads(call_case([argument], more, None).input)
    assert repr(given_over) == repr({"args": [argument], "kwargs": more})


@given(JSON_VALUES, JSON_VALUES)
def test_arguments_that_json_would_change_are_refused(one: object, other: object) -> None:
    for changed in ((one, other), {1: one}, {"a": [{True: other}]}, [one, {"b": (other,)}]):
        with pytest.raises(ValueError, match="arguments"):
            call_case([changed], {}, None)
        with pytest.raises(ValueError, match="arguments"):
            call_case([], {"k": changed}, None)


def test_a_call_keeps_its_arguments_apart() -> None:
    assert json.loads(call_case([1], {"k": [2]}, None).input) == {"args": [1], "kwargs": {"k": [2]}}


@given(st.text() | st.text("\\\"'\r\n\0{}%"))
def test_a_solution_reaches_its_run_to_the_letter(solution: str) -> None:
    assert ast.literal_eval(literal(solution)) == solution


def test_what_a_solution_imports_can_be_seen_in_the_program() -> None:
    lines = whole_program("import numpy\nx = 1\nimport sympy").splitlines()
    assert "import numpy" in lines
    assert any(line.startswith("import sympy") for line in lines)


@pytest.mark.parametrize(("said", "outcome"), [("3", Outcome.RIGHT), ("4", Outcome.WRONG), ("[[", Outcome.WRONG)])
def test_g5_who_knows_the_marker_still_has_to_know_the_answer(said: str, outcome: Outcome) -> None:
    async def execute(run: CodeRun) -> ToolResult:
        marker = re.findall(r"result-[0-9a-f]+:", run.program)[0]
        return ToolResult(Status.OK, f"noise\n{marker}1\n{marker}{said}\nright\n")

    problem = code_task(call_case([1, 2], {}, 3), entry="add")
    assert asyncio.run(CodeGrader(execute).grade(problem, fenced("pass"))).outcome is outcome


def test_finding_a_long_output_is_compared_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop_went_on = threading.Event()
    monkeypatch.setattr(programs, "same_output", lambda *_: loop_went_on.wait(20))

    async def execute(run: CodeRun) -> ToolResult:
        asyncio.get_running_loop().call_later(0, asyncio.get_running_loop().call_soon, loop_went_on.set)
        return ToolResult(Status.OK, "0.1\n" * 300_000)

    grade = asyncio.run(CodeGrader(execute).grade(code_task(Case("", "0.1000001\n" * 300_000)), fenced("print(0.1)")))
    assert grade.outcome is Outcome.RIGHT
