"""Programs, graded on a real node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.tasks import Case, CodeGrader, MathPool, Outcome
from cleaner_sandbox import BARE, Node, NodeConfig
from tests.nodes import asynchronous
from tests.tasks.builders import code_task, fenced

LINES = 200_000


def code_grader(node: Node) -> CodeGrader:
    grader = standard_graders(node, MathPool())["code"]
    assert isinstance(grader, CodeGrader)
    return grader


@asynchronous
async def test_a_right_output_is_right_however_long_it_is() -> None:
    wanted = "\n".join(map(str, range(LINES)))
    problem = code_task(Case(str(LINES), wanted))
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        grader = code_grader(node)
        right = await grader.grade(problem, fenced("print(*range(int(input())), sep='\\n')"))
        wrong = await grader.grade(problem, fenced("print(*range(int(input()) - 1), sep='\\n')"))
        longer = await grader.grade(code_task(Case("", wanted[:65_536])), fenced(f"print(*range({LINES}), sep='\\n')"))
    assert [right.outcome, wrong.outcome, longer.outcome] == [Outcome.RIGHT, Outcome.WRONG, Outcome.WRONG]


@asynchronous
async def test_programs_that_are_graded_have_the_memory_that_contests_give() -> None:
    problem = code_task(Case("700", "700"))
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        grader = code_grader(node)
        table = await grader.grade(problem, fenced("n = int(input())\ntable = bytes(n << 20)\nprint(len(table) >> 20)"))
    assert table.outcome is Outcome.RIGHT, table.reason


@asynchronous
async def test_an_output_that_no_run_may_print_is_a_fault() -> None:
    wanted = "x" * 3_000_000
    config = NodeConfig(slots=1, environments=(BARE,))
    config = replace(config, maxima=replace(config.maxima, output_bytes=2_000_000))
    async with Node(config) as node:
        grader = code_grader(node)
        right = await grader.grade(code_task(Case("", wanted)), fenced("print('x' * 3_000_000)"))
        wrong = await grader.grade(code_task(Case("", wanted)), fenced("print('y' * 3_000_000)"))
        noisy = await grader.grade(
            code_task(Case("", wanted)), fenced("import sys\nprint('x')\nsys.stderr.write('x' * 3_000_000)")
        )
    assert [right.outcome, wrong.outcome, noisy.outcome] == [Outcome.FAULT, Outcome.WRONG, Outcome.WRONG]


WRONG = {
    "sleeps": "import time\ntime.sleep(10**6)",
    "sleeps after some cases": "import time\nn = int(input())\ntime.sleep(10**6 if n > 3 else 0)\nprint(n)",
    "sleeps in a child": "import os\nif os.fork():\n    os.wait()\nimport time\ntime.sleep(10**6)",
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "waits for more input": "import sys\nwhile True:\n    sys.stdin.read()",
    "waits for a pipe": "import os\nos.read(os.pipe()[0], 1)",
    "leaves a process": "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(10**6)",
    "forks without end": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    "prints without end": "while True:\n    print('x' * 10_000)",
    "kills all": "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGKILL)",
    "dies": "import ctypes\nctypes.string_at(0)",
}


@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
@asynchronous
async def test_finding_whatever_a_wrong_program_does_its_grade_is_wrong(program: str) -> None:
    problem = code_task(*(Case(f"{number}\n", f"{number}") for number in range(1, 41)))
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        grader = code_grader(node)
        assert isinstance(grader, CodeGrader)
        grader._seconds = 0.2
        grade = await grader.grade(problem, fenced(program))
    assert grade.outcome is Outcome.WRONG, grade.reason
