"""Test cases of a program, as the text that a task carries.

A case is an input and the output it should give. Without an `entry` the input is what the program reads from stdin and
the output what it prints. With one, the program defines a function, or a class `Solution` with a method, of that name;
the input is `{"args": [...], "kwargs": {...}}` and the output the value that the call returns, both as JSON.

Floats may differ by a part in 100,000. LiveCodeBench's runner (`lcb_runner`'s `testing_util`) compares the decimals of
a line exactly, so that there 0.3333333333 fails where 0.333333 is wanted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from cleaner_rl.tasks.task import Task

TOLERANCE = 1e-5
"""Between two floats, relative to the larger one."""
ZERO = 1e-8
"""What may be printed for a zero that is written as a float."""
_FLOAT = re.compile(
    r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?|[+-]?(?:inf|infinity)|nan", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Case:
    """One test case of a program."""

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class Cases:
    """All test cases of one program."""

    cases: tuple[Case, ...]
    entry: str | None = None
    """The function to call; None: the program reads stdin and prints."""

    def dumps(self) -> str:
        """Return the cases as a task's `truth`."""
        values = {"entry": self.entry, "cases": [[case.input, case.output] for case in self.cases]}
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def loads(cls, truth: str) -> Cases:
        """Read the cases of a task's `truth`; raise `ValueError` if it isn't one of ours."""
        try:
            values = json.loads(truth)
            return cls(tuple(Case(str(given), str(wanted)) for given, wanted in values["cases"]), values["entry"])
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError("the text doesn't hold test cases; write them with Cases(...).dumps()") from error


def check_cases(task: Task) -> str | None:
    """Return what is wrong with the test cases of a task; None if nothing is."""
    try:
        cases = Cases.loads(task.truth)
    except ValueError as error:
        return str(error)
    if not cases.cases:
        return "the task has no test cases; add one at least"
    if cases.entry is None:
        return None
    if not str(cases.entry).isidentifier():
        return f"the entry '{cases.entry}' is no name of a function"
    return next((wrong for case in cases.cases if (wrong := _wrong_call(case))), None)


def _wrong_call(case: Case) -> str | None:
    try:
        call = json.loads(case.input)
        json.loads(case.output)
        if isinstance(call["args"], list) and isinstance(call["kwargs"], dict):
            return None
    except (TypeError, KeyError, ValueError):
        pass
    return "a test case is no call with its result; write it with call_case(...)"


def call_case(args: Sequence[object], kwargs: Mapping[str, object], output: object) -> Case:
    """Make a case that calls a function; raise `ValueError` if JSON would change its arguments, such as tuples to
    lists.
    """
    given = {"args": list(args), "kwargs": dict(kwargs)}
    written = json.dumps(given)
    # As text, in which 1, 1.0, "1" and True differ, and so do a list and a tuple.
    if repr(json.loads(written)) != repr(given):
        raise ValueError("JSON can't carry the arguments as they are, such as tuples and keys that are numbers")
    return Case(written, json.dumps(output))


def same_output(printed: str, wanted: str) -> bool:
    """Whether two outputs agree line by line: as text without outer spaces, or as the same numbers.

    `1.0` is `1`, and floats may differ by `TOLERANCE`. What programs don't print as a number, such as `007`, is text.
    """
    given_lines, wanted_lines = printed.strip().split("\n"), wanted.strip().split("\n")
    return len(given_lines) == len(wanted_lines) and all(map(_same_line, given_lines, wanted_lines))


def _same_line(given: str, wanted: str) -> bool:
    if given.strip() == wanted.strip():
        return True
    ours, theirs = given.split(), wanted.split()
    return len(ours) == len(theirs) and all(map(_same_word, ours, theirs))


def _same_word(given: str, wanted: str) -> bool:
    if not _FLOAT.fullmatch(given) or not _FLOAT.fullmatch(wanted):
        return False
    one, other = Decimal(given), Decimal(wanted)
    if one == other or (one.is_nan() and other.is_nan()):
        return True
    return _as_float(given) and _as_float(wanted) and same_float(float(one), float(other))


def _as_float(word: str) -> bool:
    return "." in word or "e" in word.lower()


def same_float(one: float, other: float) -> bool:
    """Whether two floats agree but for rounding."""
    if one == 0 or other == 0:
        return abs(one - other) <= ZERO
    return math.isclose(one, other, rel_tol=TOLERANCE) or (math.isnan(one) and math.isnan(other))


def same_value(given: object, wanted: object) -> bool:
    """Whether two JSON values are equal. Types count (`True` is not 1), but for 3.0 and 3; floats may be rounded."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, float) and isinstance(wanted, float):
        return given == wanted or same_float(given, wanted)
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(same_value, given, wanted))
    if isinstance(given, dict) and isinstance(wanted, dict):
        return given.keys() == wanted.keys() and all(same_value(given[key], wanted[key]) for key in wanted)
    return given == wanted
