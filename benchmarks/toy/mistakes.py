"""The right program of a question, and what ten kinds of mistakes make of it.

Most kinds have a *near* form, a slip whose correction is nearly the same program, and a *far* one, a wrong approach
whose correction is a different program, so that grafts and replacements both occur. Each mistake
raises its own exception or runs into its own limit, in any Python; nothing is simulated.

A failed call's kind is told from its result (`kind_of`), never from what was intended.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from enum import StrEnum

from benchmarks.toy.library import MODULE, SUFFIXES, Names, called
from benchmarks.toy.questions import CHANGES, Question
from cleaner_rl.tools import Status, ToolResult


class Kind(StrEnum):
    """What a failed call did wrong."""

    SYNTAX = "syntax"
    NAME = "name"
    TYPE = "type"
    VALUE = "value"
    IMPORT = "import"
    ATTRIBUTE = "attribute"
    INDEX = "index"
    STATE = "state"
    """An earlier cell ran well, and left behind what breaks this one."""
    TIMEOUT = "timeout"
    MALFORMED = "malformed"
    OTHER = "other"
    """None of these: no demonstration shows it."""


DEMONSTRATED = tuple(kind for kind in Kind if kind is not Kind.OTHER)
EXCEPTIONS = {
    "SyntaxError": Kind.SYNTAX,
    "IndentationError": Kind.SYNTAX,
    "NameError": Kind.NAME,
    "TypeError": Kind.TYPE,
    "ValueError": Kind.VALUE,
    "ImportError": Kind.IMPORT,
    "ModuleNotFoundError": Kind.IMPORT,
    "AttributeError": Kind.ATTRIBUTE,
    "IndexError": Kind.INDEX,
}
LEFT_BEHIND = ("name 'x' is not defined", "'list' object has no attribute")
"""What a cell meets where an earlier one deleted the list, or gave it the library's name."""


def kind_of(result: ToolResult, earlier: bool) -> Kind:
    """What kind of mistake a failed call made. `earlier`: whether a cell before it ran well, in the same session."""
    if result.status in (Status.TIMEOUT, Status.MALFORMED):
        return Kind(result.status.value)
    if (exception := result.exception) is None:
        return Kind.OTHER
    if earlier and exception.message.startswith(LEFT_BEHIND):
        return Kind.STATE
    return EXCEPTIONS.get(exception.type, Kind.OTHER)


class Program:
    """The cells that answer a question, right or with one mistake. `names` are what the writer believes of the library.

    A question that is worked out stepwise has two cells, any other has one. `spoilt` says how the first cell has
    spoilt the state that the second one meets: "named" gives the list the library's name, "lost" deletes it.
    """

    def __init__(self, question: Question, names: Names, cell: int = 0, spoilt: str = "") -> None:
        self.question, self.names, self.cell, self.spoilt = question, names, cell, spoilt

    @property
    def last(self) -> bool:
        """Whether this cell gives the answer."""
        return self.cell == 1 or not self.question.stepwise

    def right(self) -> str:
        """The program without a mistake."""
        if self.cell == 1:
            return _lines(*self._repaired_state(), self._fold())
        end = self._fold() if self.last else "print(x)"
        return _lines(f"import {MODULE}", *self._made(), end)

    def spoiling(self, how: str) -> str:
        """The first cell, which runs well and spoils the state for the second."""
        *before, change = self._made()
        if how == "named":
            return _lines(f"import {MODULE}", *before, MODULE + change.removeprefix("x"), f"print({MODULE})")
        return _lines(f"import {MODULE}", *before, change, "print(x)", "del x")

    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of mistakes that can be made here."""
        anywhere = (Kind.SYNTAX, Kind.NAME, Kind.ATTRIBUTE, Kind.TIMEOUT, Kind.MALFORMED)
        if self.cell == 1:
            return (*((Kind.STATE,) if self.spoilt else ()), *anywhere, *self._index())
        separated = (Kind.VALUE,) if len(self.question.numbers) > 1 else ()
        return (*anywhere, Kind.TYPE, *separated, Kind.IMPORT, *self._index())

    def wrong(self, kind: Kind, draw: random.Random, far: float) -> str:
        """The program with a mistake; `far` is how often it is a wrong approach, where the kind has one."""
        approaches = self._approaches(kind) if self.cell == 0 else []
        if approaches and draw.random() < far:
            return draw.choice(approaches)
        return draw.choice(self._slips(kind, draw))

    def _slips(self, kind: Kind, draw: random.Random) -> list[str]:
        right = self.right()
        swap: Callable[[str, str], str] = right.replace
        if kind is Kind.SYNTAX:
            return [right[:-1]] if self.cell == 1 else [right[:-1], swap('")', '"')]
        if kind is Kind.NAME:
            return [swap("(x))", "(y))") if self.last else swap("print(x)", "print(y)")]
        if kind is Kind.TYPE:
            return [swap(f'{MODULE}.ints("{self.question.listed}")', f'"{self.question.listed}".split()')]
        if kind is Kind.VALUE:
            return [swap(self.question.listed, self.question.listed.replace(" ", ", "))]
        if kind is Kind.IMPORT:
            return [swap(f"import {MODULE}", f"import {MODULE}s")]
        if kind is Kind.ATTRIBUTE:
            stem = draw.choice(self.question.stems if self.cell == 0 and self.last else self.question.stems[-1:])
            if not self.last:
                stem = draw.choice(self.question.stems[:-1])
            others = [each for each in SUFFIXES if each != self.names[stem]]
            return [swap(called(stem, self.names), f"{stem}_{draw.choice(others)}")]
        if kind is Kind.INDEX:
            return [swap(self._fold(), "print(x[len(x)])")]
        if kind is Kind.STATE:
            return [self._fold()]
        if kind is Kind.TIMEOUT:
            end = right.splitlines()[-1]
            return [swap(end, f"while x:pass\n{end}")]
        raise ValueError(f"{kind} is no mistake in a program")

    def _approaches(self, kind: Kind) -> list[str]:
        stem, listed = called(self.question.stems[-1 if self.last else 0], self.names), self.question.listed
        numbers = listed.replace(" ", ",")
        return {
            Kind.TYPE: [f'print(sum("{listed}"))'],
            Kind.VALUE: [f'print(int("{listed}"))'],
            Kind.IMPORT: [f"import numpy\nprint(numpy.{stem}([{numbers}]))"],
            Kind.ATTRIBUTE: [f"print([{numbers}].{stem}())"],
            Kind.INDEX: [f'print("{listed}".split()[9])'],
            Kind.TIMEOUT: ["n=1\nwhile n:n=n+1\nprint(n)"],
        }.get(kind, [])

    def _made(self) -> list[str]:
        """The list, and its changes."""
        changes = (f"x={MODULE}.{called(stem, self.names)}(x)" for stem in self.question.stems[:-1])
        return [f'x={MODULE}.ints("{self.question.listed}")', *changes]

    def _fold(self) -> str:
        """The line that prints the answer, or the changed list where the question asks for no number."""
        found = f"{MODULE}.{called(self.question.stems[-1], self.names)}(x)"
        return f"print(*{found})" if self.question.stems[-1] in CHANGES else f"print({found})"

    def _repaired_state(self) -> list[str]:
        """What the second cell has to do first, after what the first has done."""
        return {"": [], "named": [f"x={MODULE}", f"import {MODULE}"], "lost": self._made()}[self.spoilt]

    def _index(self) -> tuple[Kind, ...]:
        picks = self.last and self.question.stems[-1] in ("first", "last", "middle", "largest", "smallest")
        return (Kind.INDEX,) if picks else ()


def call(code: str) -> str:
    """A call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': 'python', 'arguments': {'code': code}})}\n</tool_call>"


def malformed(code: str, draw: random.Random) -> str:
    """The same call, so written that nobody can run it."""
    right = call(code)
    return draw.choice(
        [
            right.replace("}}\n", "}\n"),
            right.replace('"}}', "}}"),
            right.replace('"python"', '"run"'),
            right.replace('"code"', '"text"'),
            right.removesuffix("\n</tool_call>"),
        ]
    )


def _lines(*lines: str) -> str:
    return "\n".join(lines)
