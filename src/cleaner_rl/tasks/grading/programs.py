"""Programs, judged by test cases in somebody else's sandbox.

Each case is a run of its own: one case can't see or disturb another, and how a run ended is the executor's word, not
the program's. What should come out never leaves this process. So there is nothing for a program to forge: to pass a
case it has to give the output, from an input alone. The first case that a program fails settles its grade, and the
cases after it are not run.

Whatever a program does to its own run (exit early, sleep, exhaust a limit, print verdicts) is its failure. A fault is
only what the executor calls one, an executor that raises or gives no answer to anybody, or that cut an output which
could have been right, or stopped one that was right so far.

Limits: as safe as the executor. Outputs are compared line by line, so a problem with several right outputs needs its
own grader. Values returned by calls are compared as JSON: a tuple is a list, keys are strings, a set is nothing that
could be wanted.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice

from cleaner_rl.tasks.grading.cases import Case, Cases, check_cases, same_output, same_value
from cleaner_rl.tasks.grading.extraction import program
from cleaner_rl.tasks.grading.grades import CaseVerdict, Grade, Outcome
from cleaner_rl.tasks.grading.runner import one_call, whole_program
from cleaner_rl.tasks.task import Task
from cleaner_rl.tools import Status, ToolResult

LEAST_OUTPUT = 1_048_576
"""Bytes that a program may print, however short the output wanted: it may print other things on its way to a result."""

MOST_BYTES_OF_A_CHARACTER = 4
WALL_FACTOR = 2.5
"""Seconds that a program may take, for each second of CPU time that it may use."""
AT_ONCE = 8
"""Cases of a program that run at the same time: some will have been in vain if it fails one before them."""


@dataclass(frozen=True, slots=True)
class CodeRun:
    """One program to run, with its own stdin."""

    program: str
    stdin: str
    seconds: float
    """Time limit, in CPU time if possible: with wall time, verdicts depend on the machine's load."""
    output_bytes: int = LEAST_OUTPUT
    """What it may print, all of which has to come back: a part of an output is never right."""

    @property
    def wall_seconds(self) -> float:
        """Limit of elapsed time, which stops a program that sleeps; time spent waiting for a CPU shouldn't count."""
        return WALL_FACTOR * self.seconds


Execute = Callable[[CodeRun], Awaitable[ToolResult]]
"""Runs one program, isolated from all others."""


class CodeGrader:
    """Grades the program in a text by the task's cases: it is right if it passes them all."""

    def __init__(self, execute: Execute, seconds: float = 6.0, patience: float = 900.0) -> None:
        self._execute = execute
        self._seconds = seconds
        """For one case; LiveCodeBench's limit."""
        self._patience = patience
        """Without any answer of the executor, to any case. The grader's own limit: running into it is a fault. As long
        as others are answered, a case that isn't waits in the executor's queue, behind programs that take long."""
        self._asked = 0
        """Cases that the executor has not answered yet."""
        self._heard = 0.0
        """When the executor last answered, or began to be asked."""

    def check(self, task: Task) -> str | None:
        """Return what is wrong with a task's test cases; None if nothing is."""
        return check_cases(task)

    async def grade(self, task: Task, text: str) -> Grade:
        """Grade as right if the last fenced program passes all cases."""
        try:
            cases = Cases.loads(task.truth)
        except ValueError as error:
            return Grade(Outcome.FAULT, None, str(error), task_fault=True)
        if not cases.cases:
            return Grade(Outcome.FAULT, None, "The task has no test cases.", task_fault=True)
        solution = program(text)
        if solution is None:
            return Grade(Outcome.WRONG, None, "There is no fenced program in the final turn.")
        marker = f"result-{secrets.token_hex(8)}:"
        code = whole_program(solution) if cases.entry is None else one_call(solution, cases.entry, marker)
        verdicts = await self._verdicts(cases.cases, code, None if cases.entry is None else marker)
        return _summary(solution, verdicts, len(cases.cases))

    async def _verdicts(self, cases: tuple[Case, ...], code: str, marker: str | None) -> tuple[CaseVerdict, ...]:
        """Judge the cases in their order, up to the first wrong one. After a fault no more are begun."""
        left = iter(cases)
        running: deque[asyncio.Task[CaseVerdict]] = deque()
        verdicts: list[CaseVerdict] = []
        try:
            while not verdicts or verdicts[-1].outcome is not Outcome.WRONG:
                if all(verdict.outcome is Outcome.RIGHT for verdict in verdicts):
                    more = islice(left, AT_ONCE - len(running))
                    running.extend(asyncio.create_task(self._verdict(case, code, marker)) for case in more)
                if not running:
                    break
                verdicts.append(await running[0])
                running.popleft()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return tuple(verdicts)

    async def _verdict(self, case: Case, code: str, marker: str | None) -> CaseVerdict:
        """Run one case and judge it."""
        try:
            result = await self._answer(CodeRun(code, case.input, self._seconds, _output_bytes(case)))
        except Exception as error:  # of whatever executor was plugged in
            return CaseVerdict(Outcome.FAULT, f"The executor raised {type(error).__name__}.")
        if result is None:
            return CaseVerdict(Outcome.FAULT, f"The executor answered nothing for {self._patience:g} s.")
        # In a thread: an output of many lines takes seconds to compare, and the event loop has others to serve.
        return await asyncio.to_thread(_judge, case, result, marker)

    async def _answer(self, run: CodeRun) -> ToolResult | None:
        """Return the executor's answer; None if it has given none, to any case, for as long as `patience`."""
        clock = asyncio.get_running_loop().time
        running = asyncio.ensure_future(self._execute(run))
        if not self._asked:
            self._heard = clock()
        self._asked += 1
        try:
            while not running.done() and (left := self._heard + self._patience - clock()) > 0:
                await asyncio.wait((running,), timeout=left)
            if not running.done():
                return None
            self._heard = clock()
            return running.result()
        finally:
            self._asked -= 1
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _summary(solution: str, verdicts: tuple[CaseVerdict, ...], cases: int) -> Grade:
    """One failed case settles it, whatever became of the others; only then does a fault count."""
    for outcome in (Outcome.WRONG, Outcome.FAULT):
        for number, verdict in enumerate(verdicts, 1):
            if verdict.outcome is outcome:
                return Grade(outcome, solution, f"Case {number} of {cases}: {verdict.reason}", verdicts)
    return Grade(Outcome.RIGHT, solution, f"All {cases} cases passed.", verdicts)


def _judge(case: Case, result: ToolResult, marker: str | None) -> CaseVerdict:
    if result.faulty:
        return CaseVerdict(Outcome.FAULT, "The executor had a fault.")
    if result.status is Status.OUTPUT_LIMIT and _right_so_far(result.output, marker, case.output):
        return CaseVerdict(Outcome.FAULT, "The executor stopped an output that was right so far; let it print more.")
    if result.status is not Status.OK:
        raised = f" ({result.exception.type})" if result.exception else ""
        return CaseVerdict(Outcome.WRONG, f"The run ended with '{result.status}'{raised}.")
    length = len(result.output) if result.output_length is None else result.output_length
    if len(result.output) < length <= _longest_right(case):
        return CaseVerdict(Outcome.FAULT, "The executor cut an output that could have been right; let it keep more.")
    right = same_output(result.output, case.output) if marker is None else _returned(result.output, marker, case.output)
    if right and len(result.output) == length:
        return CaseVerdict(Outcome.RIGHT)
    return CaseVerdict(Outcome.WRONG, "The output is not the one wanted.")


def _returned(output: str, marker: str, wanted: str) -> bool:
    """Whether the call's result, the last line with the marker, is the value wanted."""
    _, found, rest = output.rpartition("\n" + marker)
    if not found:
        return False
    try:
        value: object = json.loads(rest.partition("\n")[0])
        return same_value(value, json.loads(wanted))
    except (ValueError, RecursionError):
        return False


def _right_so_far(output: str, marker: str | None, wanted: str) -> bool:
    """Whether the output has a long beginning of the one wanted, and not yet all of it."""
    # So long that nobody gets there without solving the case, only to end in a fault by printing errors without end.
    begun = output if marker is None else output.rpartition("\n" + marker)[2]
    return LEAST_OUTPUT <= len(begun) < len(wanted) and wanted.startswith(begun[:LEAST_OUTPUT])


def _longest_right(case: Case) -> int:
    """Characters of an output that could be right, with some more blank ones."""
    # A program that prints far more than is wanted is wrong however it was cut; it can't make itself a fault that way.
    return 2 * len(case.output) + 1_000


def _output_bytes(case: Case) -> int:
    return max(LEAST_OUTPUT, MOST_BYTES_OF_A_CHARACTER * _longest_right(case))
