"""What cells of Python sessions may hold beside Python: `await` outside of functions, and commands for bash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cleaner_sandbox import Limits
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver
from tests.test_sessions import Cells


@pytest.fixture
def cells(t2: Driver) -> Iterator[Cells]:
    opened = Cells(t2)
    yield opened
    t2.wait(opened.session.close())


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("await asyncio.sleep(0, 5)", "5\n"),
        ("task = asyncio.create_task(asyncio.sleep(0, 6))\nawait task", "6\n"),
        ("async with asyncio.timeout(9):\n    x = await asyncio.sleep(0, 7)\nx", "7\n"),
        ("[await asyncio.sleep(0, n) for n in range(2)]", "[0, 1]\n"),
        ("await asyncio.sleep(0)\nprint(8)", "8\n"),
        ("from __future__ import annotations\ny: unknown = await asyncio.sleep(0, 9)\ny", "9\n"),
    ],
)
def test_await_needs_no_function(cells: Cells, code: str, output: str) -> None:
    cells.show("import asyncio")
    outcome = cells.run(code)
    assert (outcome.result.status, outcome.result.output) == (RunStatus.OK, output)
    assert outcome.not_checkpointable == ()


def test_an_exception_after_await_has_the_cells_own_frames(cells: Cells) -> None:
    exception = cells.fail(
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1 / 0\nawait f()"
    ).result.exception
    assert exception is not None
    assert (exception.type, exception.line) == ("ZeroDivisionError", 4)
    frames = [line for line in exception.traceback.splitlines() if line.startswith("  File")]
    assert frames == ['  File "cell1.py", line 5, in <module>', '  File "cell1.py", line 4, in f']


def test_tasks_end_with_their_cell(cells: Cells) -> None:
    cells.show("import asyncio\ntask = asyncio.create_task(asyncio.sleep(60))\nawait asyncio.sleep(0)")
    assert cells.show("task.cancelled()") == "True\n"


def test_a_command_runs_in_bash_and_its_output_is_the_cells(cells: Cells) -> None:
    outcome = cells.run("print('before')\n!echo {1..3} $0; echo wrong >&2; exit 3\nprint('after', _exit_code)")
    assert outcome.result.output == "before\n1 2 3 bash\nafter 3\n"
    assert (outcome.result.status, outcome.result.stderr, outcome.committed) == (RunStatus.OK, "wrong\n", True)
    assert cells.show("!kill -9 $$\n_exit_code") == "137\n"
    assert cells.show("!true\n_exit_code") == "0\n"


def test_a_command_sees_the_interpreters_folder_environment_and_input(cells: Cells) -> None:
    cells.show("import os\nos.mkdir('below')\nos.chdir('below')\nos.environ['MODE'] = 'fast'")
    assert cells.show("!echo $MODE; pwd; cd /; echo x > /tmp/x") == "fast\n/box/run/work/below\n"
    assert cells.show("os.getcwd()") == "'/box/run/work/below'\n"
    assert cells.run("!tr a-z A-Z", stdin="given").result.output == "GIVEN"


def test_commands_keep_lines_and_blocks(cells: Cells) -> None:
    assert cells.show("if True:\n    !echo one \\\n    two\n    x = 1\nx") == "one two\n1\n"
    assert cells.show("def f():\n    !echo inside; false\nf()\n_exit_code") == "inside\n1\n"
    exception = cells.fail("!echo \\\n  'it''s'\n\n1 / 0").result.exception
    assert exception is not None
    assert exception.line == 4


@pytest.mark.parametrize(
    "code",
    [
        's = """\n!echo no\n"""',
        "s = '''\n  !echo no \\\n'''\nt = 1",
        "s = (1 # !echo no\n  != 2)",
        "s = 1 \\\n  != 2",
    ],
)
def test_python_is_never_taken_for_a_command(cells: Cells, code: str) -> None:
    assert cells.show(code) == ""
    assert cells.show(f"{code}\n!echo yes") == "yes\n"
    assert cells.show("'_exit_code' in globals(), _exit_code") == "(True, 0)\n"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("!echo no\nx = = 1", 2),
        ("x = = 1\n!echo no", 1),
        ("x = [\n!echo no\n]", 2),
        ("x = !echo no", 1),
        ("if 1: !echo no", 1),
    ],
)
def test_a_cell_that_does_not_parse_runs_nothing(cells: Cells, code: str, line: int) -> None:
    outcome = cells.fail(code)
    assert outcome.result.exception is not None
    assert (outcome.result.exception.type, outcome.result.exception.line) == ("SyntaxError", line)
    assert outcome.result.output == ""


def test_a_command_has_the_limits_of_its_cell_and_is_undone_with_it(cells: Cells) -> None:
    stopped = cells.fail("!echo begun; while :; do :; done", limits=Limits(cpu_seconds=0.3))
    assert (stopped.result.status, stopped.result.output) == (RunStatus.TIMEOUT, "begun\n")
    cells.fail("!echo x > file\n1 / 0")
    assert cells.show("!ls") == ""
    cells.show("!echo x > file")
    assert cells.show("!ls") == "file\n"
    cells.rollback(0)
    assert cells.show("!ls") == ""


@pytest.mark.parametrize("code", ["!echo no", "import asyncio\nawait asyncio.sleep(0)"])
def test_a_run_is_plain_python(box: Driver, code: str) -> None:
    for echo in (True, False):
        exception = box.run(code, echo_last_expression=echo).exception
        assert exception is not None
        assert exception.type == "SyntaxError"


def test_cells_without_echo_may_wait_and_command_too(cells: Cells) -> None:
    code = "import asyncio\n!echo first\nprint(await asyncio.sleep(0, 'second'))\n3"
    assert cells.run(code, echo_last_expression=False).result.output == "first\nsecond\n"
