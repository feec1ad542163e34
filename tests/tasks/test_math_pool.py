"""Verifier processes: deadlines, deaths, threads, event loops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_rl.tasks import MathGrader, MathPool, Outcome, grade
from cleaner_rl.tasks.grading import math_pool
from tests.tasks.builders import task

COSTLY = "(1+\\sqrt{2})^{10^9}"
HANGS = f"\\boxed{{{COSTLY}}}"


@pytest.fixture(scope="module")
def pool() -> Iterator[MathPool]:
    with MathPool(workers=1, seconds=60) as made:
        assert made.ask(["\\frac{1}{2}"], "0.5").equal
        yield made


@pytest.fixture
def hasty(pool: MathPool, monkeypatch: pytest.MonkeyPatch) -> MathPool:
    """The same warm process, with a limit that an expensive answer meets soon."""
    monkeypatch.setattr(pool, "seconds", 0.5)
    return pool


def test_an_answer_that_the_verifier_cannot_finish_is_wrong(hasty: MathPool) -> None:
    grader = {"math": MathGrader(hasty)}
    before = (hasty.asked_again, hasty.killed)
    bomb = asyncio.run(grade(task(truth="1/3"), HANGS, grader))
    assert bomb.outcome is Outcome.WRONG
    assert "2 s of CPU time, twice" in bomb.reason
    assert (hasty.asked_again, hasty.killed) == (before[0] + 1, before[1] + 2)
    again = asyncio.run(grade(task(truth="1/3"), HANGS, grader))
    assert again == bomb
    assert hasty.asked_again == before[0] + 1, "the same comparison was paid for twice"


@pytest.mark.parametrize("truth", ["\\frac{1}{3}", "9^{9^{9}}+3", "9^{9^{9^{8}}}", "x^{2}+1"])
def test_finding_powers_of_powers_are_compared_as_they_are_written(pool: MathPool, truth: str) -> None:
    before = (pool.asked_again, pool.killed)
    for answer in (
        *("9^{9^{9}}", "9^{9^{9}}+2", "2-9^{9^{9}}", "9^{9^{9^{9}}}", "9^{9^{9}+1}", "\\sqrt{2}^{9^{9}}"),
        *(
            "\\sqrt{9^{9^{9}}}",
            "\\sin(9^{9^{9}})",
            "\\log(10^{10^{10}})",
            "(\\frac{3}{2})^{9^{9}}",
            "0.5^{9^{9^{9}}}",
            "e^{9^{9^{9}}}",
        ),
        *("(1+9^{9^{9}})^{9^{9^{9}}}", "x^{9^{9^{9}}}", "(9^{9^{9}})!", "\\binom{9^{9^{9}}}{3}"),
    ):
        assert pool.ask([truth], answer).equal is False, answer
        assert pool.ask([answer], answer).equal is True, answer
    assert pool.ask(["9^{9^{9}}+2"], "2+9^{9^{9}}").equal is True
    assert pool.ask(["\\frac{1}{2}"], "9^{9^{9}}-9^{9^{9}}+\\frac{1}{2}").equal is True
    assert (pool.asked_again, pool.killed) == before


def test_more_time_alone_settles_what_is_only_slow(pool: MathPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(worker: object, truths: object, answer: str, seconds: float) -> math_pool.MathVerdict:
        if seconds < 60 * math_pool.MORE_TIME:
            raise math_pool._CostError("ran out of CPU time")
        return math_pool.MathVerdict(True, "The answer equals the reference.")

    monkeypatch.setattr(math_pool._Worker, "ask", slow)
    assert pool.ask(["1/3"], "2/6").equal is True


def test_a_reference_that_the_verifier_cannot_finish_is_the_tasks_fault(hasty: MathPool) -> None:
    judged = asyncio.run(grade(task(truth=COSTLY), "\\boxed{1/3}", {"math": MathGrader(hasty)}))
    assert judged.outcome is Outcome.FAULT
    assert judged.task_fault
    assert "own reference" in judged.reason


def test_memory_and_depth_are_costs_of_the_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = Path(math_pool.WORKER).read_text()
    broken = program.replace(
        "        given = _parse(answer)\n",
        "        if answer == 'memory': raise MemoryError\n"
        "        if answer == 'depth': raise RecursionError\n"
        "        if answer == 'stack': os.kill(os.getpid(), signal.SIGSEGV)\n"
        "        given = _parse(answer)\n",
    )
    assert broken != program
    (tmp_path / "worker.py").write_text(broken)
    monkeypatch.setattr(math_pool, "WORKER", tmp_path / "worker.py")
    with MathPool(workers=1, seconds=60) as made:
        for answer, reason in (("memory", "GiB"), ("depth", "deep"), ("stack", "stack")):
            verdict = made.ask(["1/3"], answer)
            assert verdict.equal is False
            assert reason in verdict.reason


def test_what_a_verifier_remembers_is_bounded(pool: MathPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def costly(self: MathPool, truths: object, answer: str) -> math_pool.MathVerdict:
        if answer in ("1/3", "1"):
            return math_pool.MathVerdict(answer == "1/3", "")
        raise math_pool._CostError("ran out")

    monkeypatch.setattr(MathPool, "_once", costly)
    monkeypatch.setattr(math_pool, "REMEMBERED", 3)
    for number in range(9):
        assert pool._again(["1/3"], f"bomb {number}").equal is False
    assert len(pool._remembered) <= 3


def test_g1_a_verifier_that_is_killed_is_a_fault_and_the_answer_is_graded_again(pool: MathPool) -> None:
    assert pool.ask(["1/2"], "0.5").equal
    (worker,) = pool._idle
    os.kill(worker._process.pid, signal.SIGKILL)
    assert pool.ask(["1/3"], "0.5").equal is None
    assert pool.ask(["1/3"], "2/6").equal is True
    (worker,) = pool._idle
    os.kill(worker._process.pid, signal.SIGKILL)
    judged = asyncio.run(grade(task(truth="x+1"), "\\boxed{1+x}", {"math": MathGrader(pool)}))
    assert judged.outcome is Outcome.RIGHT


def test_g1_the_deadline_is_the_graders_own_and_waiting_for_a_process_is_not_part_of_it(pool: MathPool) -> None:
    """Eight answers share one process whose deadline is shorter than all of them together."""

    async def together() -> list[Outcome]:
        grader = MathGrader(pool)
        grades = await asyncio.gather(*[grader.grade(task(truth="x+3"), f"\\boxed{{{n}+x}}") for n in range(1, 9)])
        return [each.outcome for each in grades]

    outcomes = asyncio.run(together())
    assert [place for place, outcome in enumerate(outcomes, 1) if outcome is Outcome.RIGHT] == [3]
    assert Outcome.FAULT not in outcomes


def test_g3_a_hanging_answer_is_stopped_from_another_thread(hasty: MathPool) -> None:
    heard: list[math_pool.MathVerdict] = []
    thread = threading.Thread(target=lambda: heard.append(hasty.ask(["1"], "(2+\\sqrt{2})^{10^9}")))
    thread.start()
    thread.join(100)
    assert [verdict.equal for verdict in heard] == [False], heard


def test_g3_an_event_loop_in_another_thread_goes_on_while_an_answer_hangs(hasty: MathPool) -> None:
    ticks = 0

    async def main() -> Outcome:
        nonlocal ticks
        grading = asyncio.create_task(MathGrader(hasty).grade(task(truth="1/3"), "\\boxed{(3+\\sqrt{2})^{10^9}}"))
        while not grading.done():
            ticks += 1
            await asyncio.sleep(0.01)
        return grading.result().outcome

    heard: list[Outcome] = []
    thread = threading.Thread(target=lambda: heard.append(asyncio.run(main())))
    thread.start()
    thread.join(60)
    assert heard == [Outcome.WRONG]
    assert ticks > 10


def test_g3_a_verifier_whose_parent_is_gone_ends_by_itself() -> None:
    worker = subprocess.Popen([sys.executable, "-P", math_pool.WORKER], stdin=-1, stdout=-1)
    assert worker.stdin
    assert worker.stdout
    assert b"ready" in worker.stdout.readline()
    worker.stdin.write(b'{"truths": ["1"], "answer": "(1+\\\\sqrt{2})^{10^9}", "seconds": 0.3}\n')
    worker.stdin.close()
    assert worker.wait(timeout=60) == -signal.SIGPROF
    worker.stdout.close()


def test_g4_text_is_never_run(pool: MathPool, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    for attempt in (
        f"__import__('os').system('touch {witness}')",
        f"\\text{{__import__('pathlib').Path('{witness}').touch()}}",
        f"exec(\"open('{witness}','w')\")",
        f"[x for x in [open('{witness}','w')]]",
    ):
        assert pool.ask(["5"], attempt).equal is False
        assert pool.ask([attempt], "5").equal is not True
    assert not witness.exists()


def test_g4_the_verifier_never_gets_to_the_parser_that_evaluates() -> None:
    """sympy's `parse_expr` evaluates; with it broken, the worker must not notice."""
    program = "\n".join(
        [
            "import math_verify.parser, runpy",
            "def refuse(text, **options): raise SystemExit(f'evaluated {text}')",
            "math_verify.parser.parse_expr = refuse",
            f"judge = runpy.run_path({str(math_pool.WORKER)!r})['judge']",
            "for answer in ['1/2', '0.5', '2/4', 'x+1', 'abs(5)', '5 cm', '1e3', '(1+2)*3']:",
            "    judge(['1/2'], answer)",
        ]
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_a_closed_pool_says_so_and_leaves_no_process() -> None:
    with MathPool(workers=1, seconds=60) as made:
        assert made.ask(["1/2"], "0.5").equal
        (worker,) = made._idle
    assert worker._process.returncode is not None
    with pytest.raises(RuntimeError, match="new"):
        made.ask(["1/2"], "0.5")


def test_a_pool_without_time_or_workers_is_refused() -> None:
    for workers, seconds in ((0, 1.0), (1, 0.0)):
        with pytest.raises(ValueError, match="worker"):
            MathPool(workers, seconds)


def test_a_missing_verifier_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_pool, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"cleaner-rl\[eval\]"):
        MathPool()


def test_a_reference_that_means_nothing_is_a_fault(pool: MathPool) -> None:
    assert pool.ask(["\\frac{1}{0}"], "\\frac{1}{2}").equal is None


def test_g1_a_verifier_that_cannot_start_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with MathPool(workers=1, seconds=60) as made:
        monkeypatch.setattr(math_pool, "WORKER", tmp_path / "missing.py")
        verdict = made.ask(["1/2"], "0.5")
        assert verdict.equal is None
        assert verdict.reason

        def refuse(*_args: object, **_options: object) -> None:
            raise OSError("no more processes")

        monkeypatch.setattr(subprocess, "Popen", refuse)
        assert made.ask(["1/2"], "0.5").equal is None
