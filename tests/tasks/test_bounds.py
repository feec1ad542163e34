"""Grading takes bounded time and memory, whatever the text: the limits are the kernel's, and the counts the pool's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleaner_rl.tasks import Grade, MathGrader, MathPool, Outcome, grade
from cleaner_rl.tasks.grading import math_pool
from cleaner_rl.tasks.grading.mathematics import LONGEST, compare
from tests.tasks.builders import task

PIECES = st.sampled_from(
    [
        "9^{",
        "}",
        "!",
        "{",
        "(",
        ")",
        "\\frac{1}{",
        "\\sqrt{",
        "\\boxed{",
        "x",
        "9",
        "10^{10}",
        "\\sum_{k=1}^{",
        "\\int",
        "e^",
        ",",
    ]
)
TEXTS = st.lists(PIECES, max_size=60).map("".join)


@pytest.fixture(scope="module")
def pool() -> Iterator[MathPool]:
    with MathPool(workers=1, seconds=0.3) as made:
        yield made


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(answer=TEXTS)
def test_no_answer_is_a_fault_or_takes_more_than_its_limits(answer: str, pool: MathPool) -> None:
    before = pool.killed
    judged = asyncio.run(grade(task(truth="\\frac{1}{7}"), f"\\boxed{{{answer}}}", {"math": MathGrader(pool)}))
    assert judged.outcome is not Outcome.FAULT, judged.reason
    # Asked once, asked again alone: no answer costs more processes than that.
    assert pool.killed - before <= 2
    assert len(pool._idle) <= 1


@given(st.text(max_size=30), st.integers(LONGEST, 10**5))
def test_an_answer_longer_than_any_answer_needs_no_process(piece: str, times: int) -> None:
    text = f"7{piece}" * times
    settled = compare(["\\frac{1}{7}"], text[: 10**6])
    assert isinstance(settled, Grade)
    assert settled.outcome is Outcome.WRONG


def test_a_verifier_has_limits_that_its_answers_cannot_lift() -> None:
    """The worker tells its own limits, as the kernel has them."""
    program = f"""
import json, resource, runpy, signal, sys
worker = runpy.run_path({str(math_pool.WORKER)!r})
def judge(truths, answer):
    timer = signal.getitimer(signal.ITIMER_PROF)[0]
    return {{"memory": resource.getrlimit(resource.RLIMIT_AS)[0], "left": timer,
             "handled": signal.getsignal(signal.SIGPROF) is not signal.SIG_DFL}}
worker["main"].__globals__["judge"] = judge
worker["main"]()
"""
    question = json.dumps({"truths": ["1"], "answer": "1", "seconds": 3})
    ran = subprocess.run(
        [sys.executable, "-c", program], input=question + "\n", capture_output=True, text=True, check=True, timeout=100
    )
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["memory"] == 4 << 30
    assert 0 < said["left"] < 3.1  # the kernel rounds to its ticks
    assert not said["handled"]
