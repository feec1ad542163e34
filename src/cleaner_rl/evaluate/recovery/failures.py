"""The failures of the recovery benchmark: for each task the same ones, whatever model is judged.

A failure is a first turn as a model could have written it: a sentence, then a program that works with the task's own
numbers and goes wrong in one way. What comes back is not written down here: the program really runs, so the feedback is
real.

Limits: programs are short and generic, so this measures whether a model gets over an error, not whether it could have
made this one. Each run of the kind `timeout` costs the sandbox its whole time limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleaner_rl.tasks import Task
from cleaner_rl.tools import Status, derive_seed

NUMBER = re.compile(r"(?<![\w.,])\d{1,6}(?![\w.,]*\d)")
MOST_NUMBERS = 5

OPENINGS = (
    "I compute this with Python.\n\n",
    "Let me check the numbers with a short program.\n\n",
    "I will use the tool for the first step.\n\n",
    "Let me start with a small calculation.\n\n",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to fail."""

    programs: tuple[str, ...]
    """`VALUES` stands for the list of the task's numbers, `FIRST` for the first of them."""
    status: Status = Status.ERROR
    exceptions: tuple[str, ...] = ()
    """Those that it may end with."""


KINDS: Mapping[str, Kind] = {
    "syntax": Kind(
        (
            "values = VALUES\nprint(sum(values)\n",
            "values = VALUES\nfor value in values\n    print(value)\n",
            "total = 0\nfor value in VALUES:\ntotal += value\nprint(total)\n",
        ),
        exceptions=("SyntaxError", "IndentationError"),
    ),
    "name": Kind(
        (
            "values = VALUES\ntotal = sum(values)\nprint(totals)\n",
            "for value in VALUES:\n    running = runing + value\nprint(running)\n",
            "print(sqrt(FIRST))\n",
        ),
        exceptions=("NameError",),
    ),
    "type": Kind(
        (
            "values = VALUES\nprint('The sum is ' + sum(values))\n",
            "values = [str(value) for value in VALUES]\nprint(sum(values))\n",
            "values = VALUES\nprint(len(values[0]))\n",
        ),
        exceptions=("TypeError",),
    ),
    "value": Kind(
        (
            "text = 'FIRST units'\nprint(int(text) * 2)\n",
            "values = VALUES\nvalues.remove(-1)\nprint(sum(values))\n",
            "first, second = VALUES + [0, 0]\nprint(first + second)\n",
        ),
        exceptions=("ValueError",),
    ),
    "import": Kind(
        (
            "import maths\nprint(maths.prod(VALUES))\n",
            "import numbertheory\nprint(numbertheory.gcd(VALUES))\n",
            "from itertools import combination\nprint(list(combination(VALUES, 2)))\n",
        ),
        exceptions=("ImportError", "ModuleNotFoundError"),
    ),
    "attribute": Kind(
        (
            "values = VALUES\nprint(values.sum())\n",
            "import math\nprint(math.square(FIRST))\n",
            "number = FIRST\nprint(number.digits())\n",
        ),
        exceptions=("AttributeError",),
    ),
    "index": Kind(
        (
            "values = VALUES\nfor i in range(len(values) + 1):\n    print(values[i])\n",
            "values = VALUES\nprint(values[len(values)] - values[0])\n",
            "digits = str(FIRST)\nprint(digits[len(digits)])\n",
        ),
        exceptions=("IndexError",),
    ),
    "key": Kind(
        (
            "amounts = dict(enumerate(VALUES))\nprint(amounts['total'])\n",
            "counts = {}\nfor value in VALUES:\n    counts[value] += 1\nprint(counts)\n",
        ),
        exceptions=("KeyError",),
    ),
    "arithmetic": Kind(
        (
            "values = VALUES\nrest = values[0] - values[0]\nprint(sum(values) / rest)\n",
            "values = VALUES\nprint(values[0] % (len(values) - len(values)))\n",
        ),
        exceptions=("ZeroDivisionError",),
    ),
    "lost_state": Kind(
        (
            "# with the table from above\nfor row in table:\n    print(row)\n",
            "result = result + FIRST\nprint(result)\n",
            "print(solve(FIRST))\n",
        ),
        exceptions=("NameError",),
    ),
    "timeout": Kind(
        (
            "values = VALUES\ni = 0\ntotal = 0\nwhile i < len(values):\n    total += values[i]\nprint(total)\n",
            "n = FIRST\nwhile n != -1:\n    n = abs(n - 2)\nprint(n)\n",
        ),
        status=Status.TIMEOUT,
    ),
    "malformed": Kind(("values = VALUES\nprint(sum(values))\n",), status=Status.MALFORMED),
}
"""The call of a `malformed` failure can't be read; its program would have run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed first turn, before it runs."""

    kind: str
    opening: str
    program: str

    @property
    def malformed(self) -> bool:
        """Whether the call itself is broken, and not its program."""
        return KINDS[self.kind].status is Status.MALFORMED


def failures(task: Task, count: int, *, seed: int = 0, kinds: Sequence[str] = tuple(KINDS)) -> list[Failure]:
    """The failures of a task: each kind as often as any other, give or take one, in an order of the task's own."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ValueError(f"there is no kind of failure {unknown or 'at all'}; available: {', '.join(KINDS)}")
    order = sorted(kinds, key=lambda kind: derive_seed(seed, "recovery", task.id, kind))
    return [_failure(task, order[number % len(order)], number, seed) for number in range(count)]


def _failure(task: Task, kind: str, number: int, seed: int) -> Failure:
    draw = derive_seed(seed, "recovery", task.id, kind, number)
    programs = KINDS[kind].programs
    values = numbers(task, seed)
    program = programs[draw % len(programs)].replace("VALUES", str(values)).replace("FIRST", str(values[0]))
    return Failure(kind, OPENINGS[draw // len(programs) % len(OPENINGS)], program)


def numbers(task: Task, seed: int = 0) -> list[int]:
    """The whole numbers that a task speaks of, or some of our own where it speaks of none; never less than two."""
    found = [int(digits) for digits in NUMBER.findall(task.question)][:MOST_NUMBERS]
    ours = [2 + derive_seed(seed, "recovery", task.id, "number", place) % 98 for place in range(2)]
    return found if len(found) >= 2 else [*found, *ours]
