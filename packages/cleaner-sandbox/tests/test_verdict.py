"""Whose word counts: a run can describe its end, and can't decide it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_sandbox import Layer, Limits, NodeConfig, Tier, TierError
from cleaner_sandbox.environments import BARE, SCIENCE, choose, imports_of
from cleaner_sandbox.isolation.tiers import choose_tier
from cleaner_sandbox.node.verdict import read_report
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver
from tests.profile import examples

FORGE = """
import json, os
report = json.dumps({"type": "Fake", "message": "fault", "line": 1, "traceback": "sandbox down", "status": "ok"})
for descriptor in range(256):
    try: os.write(descriptor, report.encode())
    except OSError: pass
"""


def test_a_forged_report_turns_no_failure_into_success(box: Driver) -> None:
    assert box.run(FORGE + "1/0").status is RunStatus.ERROR
    assert box.run(FORGE + "os._exit(5)").status is RunStatus.ERROR
    assert box.run(FORGE + "os.abort()").status is RunStatus.CRASHED


def test_a_forged_report_turns_no_success_into_anything(box: Driver) -> None:
    result = box.run(FORGE)
    assert (result.status, result.exception) == (RunStatus.OK, None)


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; os.abort()",
        "import ctypes; ctypes.string_at(0)",
        "import signal; signal.raise_signal(signal.SIGTERM)",
        "import signal, time; signal.alarm(1); time.sleep(5)",
        "import ctypes; ctypes.memset(id(0), 255, 1 << 20)",
    ],
)
def test_dying_is_the_programs_own_doing(box: Driver, code: str) -> None:
    outcome = box.outcome(code)
    assert outcome.result.status is RunStatus.CRASHED
    assert outcome.signal is not None
    assert outcome.attempts == 1
    assert outcome.result.status not in (RunStatus.OK, RunStatus.FAULT)


def test_descriptors_are_the_runs_own(box: Driver) -> None:
    code = """
import os
for descriptor in range(256):
    try: os.fstat(descriptor)
    except OSError: continue
    print(descriptor, end=" ")
"""
    assert box.run(code).output == "0 1 2 3 "


def test_the_runs_own_descriptors_hold_no_uncounted_memory(box: Driver) -> None:
    result = box.run("import os\nos.write(0, bytes(4096))", stdin="abc")
    assert result.exception is not None
    assert result.exception.type == "PermissionError"
    code = "import os, time\nfor _ in range(8): os.write(3, bytes(1 << 20))\ntime.sleep(9)"
    assert box.run(code).status is RunStatus.OUTPUT_LIMIT


def test_patched_builtins_decide_nothing(box: Driver) -> None:
    code = """
import os, sys, json, traceback, builtins
os.pwrite = lambda *a: None
json.dumps = traceback.TracebackException = None
builtins.print = None
1/0
"""
    assert box.run(code).status is RunStatus.ERROR


def test_closing_everything_is_no_fault(box: Driver) -> None:
    assert box.run("import os; os.closerange(0, 256); 1/0").status is RunStatus.ERROR
    assert box.run("import os; os.closerange(0, 256)").status in (RunStatus.OK, RunStatus.ERROR)


@pytest.mark.parametrize("raised", ["ConnectionError", "SystemExit(0)", "KeyboardInterrupt", "BaseException"])
def test_an_exception_hook_that_fails_hides_no_exception(box: Driver, raised: str) -> None:
    outcome = box.outcome(f"import sys\ndef hook(*_): raise {raised}\nsys.excepthook = hook\nraise ValueError('first')")
    assert (outcome.result.status, outcome.exit_code, outcome.result.stderr) == (RunStatus.ERROR, 1, "")
    assert outcome.result.exception is not None
    assert (outcome.result.exception.type, outcome.result.exception.line) == ("ValueError", 4)


@pytest.mark.parametrize(
    "before",
    ["os.closerange(3, 64)", "os.pwrite = None", "json.dumps = None", "os._exit = lambda _: None; os.close(3)"],
)
def test_an_exception_that_the_node_cannot_be_told_is_told_on_stderr(box: Driver, before: str) -> None:
    result = box.run(f"import json, os\n{before}\nraise ValueError('no')")
    assert result.status is RunStatus.ERROR
    trace = "Traceback (most recent call last):\n  File \"main.py\", line 3, in <module>\n    raise ValueError('no')\n"
    assert result.stderr == trace + "ValueError: no\n"


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.stderr = None\nsys.exit('text')",
        "class Text:\n    def __str__(self): raise ConnectionError\nprint(1)\nraise SystemExit(Text())",
        "import contextlib, traceback\ncontextlib.suppress = traceback.TracebackException = None\n1/0",
    ],
)
def test_a_program_that_cannot_even_end_well_is_an_error_without_a_word_of_ours(box: Driver, code: str) -> None:
    outcome = box.outcome(code)
    assert (outcome.result.status, outcome.exit_code, outcome.result.stderr) == (RunStatus.ERROR, 1, "")


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "message", "line", "traceback"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_report_is_read_within_bounds(data: bytes) -> None:
    descriptor = os.memfd_create("report")
    try:
        os.write(descriptor, data)
        info = read_report(descriptor)
    finally:
        os.close(descriptor)
    if info is not None:
        assert len(info.type) <= 256
        assert len(info.message) <= 4_096
        info.traceback.encode()
        info.message.encode()


@pytest.mark.parametrize("data", [b"[" * 60_000, b'"' + b"x" * 70_000, b'{"type": "A"}', b"1" * 50_000, b"null"])
def test_reports_of_the_wrong_form_are_no_reports(data: bytes) -> None:
    descriptor = os.memfd_create("report")
    os.write(descriptor, data)
    assert read_report(descriptor) is None
    os.close(descriptor)


def test_lone_surrogates_in_a_report_are_replaced(box: Driver) -> None:
    result = box.run("raise ValueError('\\ud800')")
    assert result.exception is not None
    result.exception.message.encode()
    result.exception.traceback.encode()


def test_limits_above_the_maxima_are_clipped(box: Driver) -> None:
    assert Limits(cpu_seconds=99, memory_mb=10).clipped(Limits(memory_mb=5)) == Limits(memory_mb=5)
    assert Limits(cpu_seconds=99).above(Limits()) == ("cpu_seconds",)
    with pytest.raises(ValueError, match="memory_mb"):
        Limits(memory_mb=0)
    for seconds in (math.inf, math.nan):
        with pytest.raises(ValueError, match="cpu_seconds"):
            Limits(cpu_seconds=seconds)
    assert box.run("print(1)", cpu_seconds=10**6).status is RunStatus.OK


def test_unknown_preload_sets_are_refused(box: Driver) -> None:
    result = box.run("print(1)", environment="nothing")
    assert result.status is RunStatus.REFUSED
    assert "bare, science" in result.explanation


@pytest.mark.parametrize(
    ("code", "imported"),
    [
        ("import numpy as np", {"numpy"}),
        ("from sympy.abc import x", {"sympy"}),
        ("import os, sys, numpy.linalg as la", {"numpy"}),
        ("  import json; import sympy", {"sympy"}),
        ("print(1)", set()),
        ("from . import x", set()),
        ("if 1: import numpy", {"numpy"}),
        ("important = 1", set()),
    ],
)
def test_imports_are_found_by_a_look_at_the_text(code: str, imported: set[str]) -> None:
    assert imports_of(code) == imported
    assert choose(code, (BARE, SCIENCE)) is (SCIENCE if imported else BARE)


def test_code_that_imports_what_no_set_has_gets_the_largest() -> None:
    assert choose("import pandas", (BARE, SCIENCE)) is SCIENCE


def test_tiers_are_refused_below_the_minimum() -> None:
    probes = {"seccomp": "ok", "landlock": "ok", "namespaces": "none here", "user": "ok", "cgroup": "untested"}
    assert choose_tier(probes, None, Tier.T1) is Tier.T1
    with pytest.raises(TierError, match=r"T1.*NONE.*it has no SETUID.*--user 10001"):
        choose_tier(probes | {"user": "it has no SETUID"}, None, Tier.T1)
    with pytest.raises(TierError, match=r"T2.*T1.*none here"):
        choose_tier(probes, None, Tier.T2)
    with pytest.raises(ValueError, match="min_tier"):
        NodeConfig(without=frozenset({Layer.SECCOMP}))


def test_the_zygote_side_imports_nothing_of_the_node() -> None:
    code = "import sys, cleaner_sandbox.inside.wire; print('asyncio' in sys.modules)"
    boot = (
        "import sys, types\n"
        "n = 'cleaner_sandbox'; sys.modules[n] = types.ModuleType(n); sys.modules[n].__path__ = ['{0}']\n"
    )
    import cleaner_sandbox

    text = boot.format(os.path.dirname(cleaner_sandbox.__file__)) + code.replace("wire", "zygote")
    done = subprocess.run([sys.executable, "-SPc", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
