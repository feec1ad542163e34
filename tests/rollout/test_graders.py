"""Programs, graded on a real node."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.tasks import Case, CodeGrader, MathPool, Outcome
from cleaner_sandbox import BARE, Node, NodeConfig
from tests.nodes import asynchronous
from tests.profile import examples
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


ACTS = (
    *WRONG.values(),
    "print(input())",
    "print('x' * 3_000_000, flush=True)",
    "import sys\nsys.stderr.write('fault' * 1_000_000)",
    "import os\nos.close(0), os.close(1), os.close(2)",
    "import os\nfor fd in range(256):\n    try:\n        os.write(fd, b'\\0' * 100)\n    except OSError:\n        pass",
    "import os\nos._exit(0)",
    "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "import signal\nfor n in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU):\n    signal.signal(n, signal.SIG_IGN)",
    "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1, 1))",
    "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))",
    "import sys\nsys.setrecursionlimit(10**9)\ndef f():\n    f()\nf()",
    "import threading, time\nfor _ in range(50):\n    threading.Thread(target=time.sleep, args=(10**6,)).start()",
    "import atexit, time\natexit.register(time.sleep, 10**6)",
    "import socket\nsocket.create_server(('127.0.0.1', 0)).accept()",
    "held = bytes(10**12)",
    "held = [bytes(1 << 20) for _ in range(1 << 14)]",
    "held = b'x' * (1_500 << 20)",
    "open('large', 'wb').write(bytes(300 << 20))",
    "import os, shutil\nos.chmod('.', 0)\nshutil.rmtree('/', ignore_errors=True)",
    "import builtins\nbuiltins.print = builtins.input = None",
    "import sys\nsys.stdout = sys.stdin = None",
    "raise SystemExit('The infrastructure had a fault.')",
    "1 +",
)
"""What a program does that wants no grade, one of these after another, in children and in threads too."""
PLACES = {
    "itself": "exec({act!r})",
    "a child": "import os\nif not os.fork():\n    exec({act!r})",
    "a child that is waited for": "import os\nif not os.fork():\n    exec({act!r})\nelse:\n    os.wait()",
    "a thread": "import threading\nthreading.Thread(target=lambda: exec({act!r}, {{}})).start()",
    "at its end": "import atexit\natexit.register(lambda: exec({act!r}, {{}}))",
    "some cases": "import sys\ntext = sys.stdin.readline()\nprint(text)\nif text > '3':\n    exec({act!r})",
}


@pytest.mark.timeout(900)
def test_an_answer_cannot_turn_itself_into_a_fault() -> None:
    problem = code_task(*(Case(f"{number}\n", f"{number}") for number in range(1, 5)))
    steps = st.tuples(st.sampled_from(sorted(PLACES)), st.sampled_from(ACTS))

    with asyncio.Runner() as runner:
        node = runner.run(Node(NodeConfig(slots=1, environments=(BARE,))).__aenter__())
        grader = code_grader(node)
        grader._seconds = 0.2

        @settings(max_examples=examples(200))
        @given(st.lists(steps, min_size=1, max_size=3), st.booleans())
        def check(taken: list[tuple[str, str]], answers: bool) -> None:
            program = "\n".join(PLACES[place].format(act=act) for place, act in taken)
            program += "\nprint(input())" * answers
            grade = runner.run(grader.grade(problem, fenced(program)))
            assert grade.outcome in (Outcome.RIGHT, Outcome.WRONG), grade.reason

        try:
            check()
            honest = runner.run(grader.grade(problem, fenced("print(input())")))
        finally:
            runner.run(node.__aexit__(None, None, None))
    assert honest.outcome is Outcome.RIGHT
