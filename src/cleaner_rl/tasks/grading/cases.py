"""Test cases of a program, as the text that a task carries.

A case is an input and the output it should give. Without an `entry` the input is what the program reads from stdin and
the output what it prints. With one, the program defines a function, or a class `Solution` with a method, of that name;
the input is `{"args": [...], "kwargs": {...}}` and the output the value that the call returns, both as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation


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
    """Whether two outputs agree line by line: as text without outer spaces, or as the same numbers (`1.0`, `1`)."""
    given_lines, wanted_lines = printed.strip().split("\n"), wanted.strip().split("\n")
    return len(given_lines) == len(wanted_lines) and all(map(_same_line, given_lines, wanted_lines))


def _same_line(given: str, wanted: str) -> bool:
    if given.strip() == wanted.strip():
        return True
    try:
        return [Decimal(each) for each in given.split()] == [Decimal(each) for each in wanted.split()]
    except InvalidOperation:
        return False
