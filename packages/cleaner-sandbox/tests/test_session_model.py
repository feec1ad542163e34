"""Any session, against a model: its committed cells, run one after the other by a plain interpreter.

The model knows nothing of the sandbox. Whatever was run, failed and rolled back, the session must have shown what the
plain interpreter shows for the cells that stayed, and end with the same namespace, files and generators.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cleaner_sandbox import Cell, Limits, SessionRequest
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver
from tests.profile import examples

pytestmark = pytest.mark.timeout(300)

SEED = 3
MODEL = """
import contextlib, io, json, random, sys
cells = json.load(sys.stdin)
namespace = {"__name__": "__main__"}
shown = []
random.seed(SEED)
for cell in cells:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(cell, "cell", "exec"), namespace)
    shown.append(output.getvalue())
print(json.dumps(shown))
""".replace("SEED", str(SEED))

SETUP = """
import os, random, subprocess, threading
def count(start):
    total = start
    while True:
        total += (yield total) or 1
x, l, g, b = 0, [], iter(range(10**6)), count(5)
next(b)
e, w, c, s = threading.Event(), None, None, ""
f = open("log", "w"); r = open("log"); a = open("lines", "a+")
"""
STATEMENTS = [
    "x = x + 1",
    "l.append(x)",
    "l = l + [list(l)[-2:]]",
    "print(random.random(), random.choice('abcdef'))",
    "random.seed(x)",
    "print(random.sample(range(1000), 3))",
    "print(next(g))",
    "print(b.send(x))",
    "f.write(f'{x} '); f.flush()",
    "f.write('unflushed')",
    "f.seek(0)",
    "f.truncate()",
    "print(open('log').read())",
    "print(r.read(2))",
    "r.seek(1)",
    "a.write(f'line {x}\\n'); a.flush()",
    "a.seek(0); print(a.readlines())",
    "open(f'file{x}', 'w').write('data')",
    "open('file0', 'a').write('more')",
    "os.rename('file0', 'file1')",
    "print(sorted(os.listdir('.')))",
    "[os.remove(n) for n in os.listdir('.') if n.startswith('file')]",
    "x += 10; os.mkdir(f'dir{x}')",
    "s = os.path.basename(os.getcwd()) if s else ''; os.makedirs('deep/er', exist_ok=True)",
    "t = threading.Thread(target=l.append, args=(x,)); t.start(); t.join()",
    "w = threading.Thread(target=e.wait); w.start()",
    "e.set(); w.join()",
    "print(subprocess.run(['echo', str(x)], capture_output=True, text=True).stdout)",
    "c = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)",
    "c.stdin.write(f'{x}\\n'); c.stdin.flush(); print(c.stdout.readline())",
    "c.communicate(); c = None",
    "import decimal; x += int(decimal.Decimal(2) ** 3)",
    "print(x, l)",
    "del l[:]",
    "y = {x: l}; print(len(y))",
    "print(sorted(k for k in globals() if len(k) == 1))",
]
FAILURES = [
    "1/0",
    "raise SystemExit(3)",
    "os._exit(4)",
    "os.kill(os.getpid(), 9)",
    "no_such_name",
    "assert not x + 10**9",
]
FINAL = """
e.set()
if c is not None: c.kill(); c.wait(); c.stdin.close(); c.stdout.close()
f.flush()
plain = {k: v for k, v in globals().items() if type(v) in (int, str, list, dict, tuple) and not k.startswith("__")}
print(sorted(plain.items()), next(g), next(b), random.getstate()[1][-1], random.random(), f.tell(), r.tell(), r.read())
print([(n, os.path.isdir(n) or open(n).read()) for n in sorted(os.listdir("."))])
"""
"""What is left: names and values, generators, the state of `random`, open files and their offsets, all files."""

OPERATION = st.one_of(
    st.tuples(st.just("run"), st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4)),
    st.tuples(st.just("run"), st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4)),
    st.tuples(
        st.just("run"),
        st.builds(
            lambda statements, failure: [*statements, failure],
            st.lists(st.sampled_from(STATEMENTS), max_size=3),
            st.sampled_from(FAILURES),
        ),
    ),
    st.tuples(st.just("back"), st.integers(0, 10)),
)


def model(cells: list[str]) -> list[str]:
    """What a plain interpreter in an empty folder shows for these cells."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", MODEL],
            input=json.dumps(cells),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    shown: list[str] = json.loads(done.stdout)
    return shown


@settings(
    max_examples=examples(15, short=3), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(OPERATION, min_size=2, max_size=9))
@example([("run", ["f.write('unflushed')"]), ("run", ["x = x + 1", "1/0"]), ("run", ["print(open('log').read())"])])
@example([("run", [STATEMENTS[28]]), ("run", [STATEMENTS[29], "os._exit(4)"]), ("run", [STATEMENTS[29]])])
@example([("run", [STATEMENTS[25]]), ("run", ["print(random.random(), random.choice('abcdef'))"]), ("back", 0)])
def test_any_session_is_its_committed_cells_run_by_a_plain_interpreter(
    t2: Driver, operations: list[tuple[str, list[str] | int]]
) -> None:
    session = t2.wait(t2.node.open_session(SessionRequest("bare", Limits(processes=64), seed=SEED)))
    committed: list[tuple[str, str]] = []

    def run(code: str) -> bool:
        outcome = t2.wait(session.run(Cell(code, echo_last_expression=False)))
        assert outcome.committed == (outcome.result.status is RunStatus.OK), outcome
        if outcome.committed:
            committed.append((code, outcome.result.output))
        assert outcome.checkpoint == len(committed)
        return outcome.committed

    assert run(SETUP)
    for _, what in operations:
        if isinstance(what, list):
            run("\n".join(what))
        else:
            del committed[max(1, len(committed) - what % 4) :]
            assert t2.wait(session.rollback(len(committed))) == len(committed)
    assert run(FINAL)
    t2.wait(session.close())
    assert [shown for _, shown in committed] == model([code for code, _ in committed])
