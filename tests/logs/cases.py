"""Twenty conversations with known right answers, told once; `rendering` writes each in every format.

A step is what the agent said, the calls it made, and what each gave. `expected` is what must become of the turns:

    "keep"     the turn as it was
    "graft"    one turn in place of a failure (or more) and its correction: the first reasoning, the last action
    "replace"  the same with the correction's reasoning

A case whose `expected` is all "keep" must come out untouched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    name: str = "python"
    arguments: Any = None
    text: str = ""
    """What came back."""
    error: str | None = None
    """A type of error, for formats that have a field for it."""


@dataclass(frozen=True)
class Step:
    said: str
    calls: tuple[Call, ...] = ()
    then: str | None = None
    """What a person says after it."""


@dataclass(frozen=True)
class Case:
    name: str
    steps: tuple[Step, ...]
    expected: tuple[str, ...]
    collapsed: tuple[int, ...] = ()
    """How many steps each edit stands for."""
    reward: float = 1.0


def py(code: str, text: str = "", **options: Any) -> Call:
    return Call("python", {"code": code}, text, **options)


def raised(last: str, line: int = 1, before: str = "") -> str:
    return f'{before}Traceback (most recent call last):\n  File "<stdin>", line {line}, in <module>\n{last}'


NAME = raised("NameError: name 'y' is not defined")
UNREAD = '  File "<stdin>", line 1\n    print(1 + )\n              ^\nSyntaxError: invalid syntax'
ANSWER = Step("The answer is 2.")
SLIP = Step("I add.", (py("print(1 + )", UNREAD),))
FIX = Step("Now right.", (py("print(1 + 1)", "2"),))
OTHER = Step("Another way.", (py("import math\nfor i in range(3):\n    print(math.factorial(i))", "1\n1\n2"),))
OPEN = Step("I add three.", (py("print(alpha + beta + gamma)\nalpha = 1 +\nbeta, gamma = 2, 3", UNREAD),))
CLOSED = Step("In order.", (py("beta, gamma = 2, 3\nalpha = 1\nprint(alpha + beta + gamma)", "6"),))
SLIP_AGAIN = Step("Again.", (py("print(1 + ))", UNREAD.replace("+ )", "+ ))")),))
SYNTAX = """\
  File "<stdin>", line 1
    for i in range(3) print(i)
                      ^^^^^
SyntaxError: expected ':'"""
HANDLED = "print('start')\ntry:\n    dict()['a']\nexcept KeyError:\n    print(1 + {})"
SIGNS = UNREAD.replace("line 1", "line 2")

CASES = (
    Case("a slip and its correction, alike", (SLIP, FIX, ANSWER), ("graft", "keep"), (2,)),
    Case("a slip and a correction that is written otherwise", (OPEN, CLOSED, ANSWER), ("replace", "keep"), (2,)),
    Case("a chain of failures", (SLIP, SLIP_AGAIN, FIX, ANSWER), ("graft", "keep"), (3,)),
    Case("two slips, each mended", (SLIP, FIX, SLIP_AGAIN, FIX, ANSWER), ("graft", "graft", "keep"), (2, 2)),
    Case("nothing failed", (FIX, OTHER, ANSWER), ("keep",) * 3),
    Case("no call at all", (ANSWER,), ("keep",)),
    Case("a failure that nobody mended", (SLIP, ANSWER), ("keep",) * 2, reward=0.0),
    Case("a failure at the end", (FIX, SLIP), ("keep",) * 2, reward=0.0),
    Case(
        "a person speaks in between",
        (Step("I add.", SLIP.calls, then="Use 1 after the plus."), FIX, ANSWER),
        ("keep",) * 3,
    ),
    Case(
        "another tool after the failure",
        (SLIP, Step("I search.", (Call("search", {"query": "sum"}, "A sum is what adding gives."),)), ANSWER),
        ("keep",) * 3,
    ),
    Case(
        "it prints an error and goes on",
        (Step("I try.", (py("…", raised("ValueError: x") + "\nrecovered, going on: 3"),)), FIX, ANSWER),
        ("keep",) * 3,
    ),
    Case(
        "the word error is only printed",
        (Step("I print.", (py("print(…)", "no error found\n0 errors"),)), FIX),
        ("keep",) * 2,
    ),
    Case(
        "an error's line without a traceback",
        (Step("I print.", (py("print(e)", "ValueError: x"),)), FIX),
        ("keep",) * 2,
    ),
    Case("nothing was printed", (Step("I set.", (py("x = 1", ""),)), FIX, ANSWER), ("keep",) * 3),
    Case("the correction prints nothing", (SLIP, Step("I set.", (py("y = 1", ""),)), ANSWER), ("keep",) * 3),
    Case(
        "of two calls one failed, and the correction leaves the other out",
        (Step("Both.", (py("print(5)", "5"), *SLIP.calls)), FIX, ANSWER),
        ("keep",) * 3,
    ),
    Case(
        "of two calls one failed, and the correction repeats both",
        (
            Step("Both.", (py("print(5)", "5"), *SLIP.calls)),
            Step("Both again.", (py("print(5)", "5"), py("print(1 + 1)", "2"))),
            ANSWER,
        ),
        ("graft", "keep"),
        (2,),
    ),
    Case(
        "a chained exception after some output: a part of it ran",
        (
            Step(
                "I look it up.",
                (
                    py(
                        HANDLED.format("y"),
                        raised("KeyError: 'a'", 3, before="start\n")
                        + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
                        + raised("NameError: name 'y' is not defined", 5),
                    ),
                ),
            ),
            Step("With a number.", (py(HANDLED.format("1"), "start\n2"),)),
        ),
        ("keep",) * 2,
    ),
    Case(
        "a syntax error",
        (
            Step("I loop.", (py("for i in range(3) print(i)", SYNTAX),)),
            Step("With a colon.", (py("for i in range(3): print(i)", "0\n1\n2"),)),
            ANSWER,
        ),
        ("graft", "keep"),
        (2,),
    ),
    Case(
        "text of many scripts and signs",
        (
            Step('Ça va → 好 «"\\n"» </tool_call> {', (py("print('é\\n✓')\nprint(1 + )", SIGNS),)),
            Step("Мы снова.", (py("print('é\\n✓')\nprint(1 + 1)", "é\n✓\n2"),)),
            ANSWER,
        ),
        ("graft", "keep"),
        (2,),
    ),
)
