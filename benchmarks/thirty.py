"""Thirty problems that a model of a hundred million parameters can sometimes solve: `python -m benchmarks.thirty`.

Made here, by a seed, so that nobody has them in a training set and everybody has the same: sums, word problems and
small programs' worth of counting, in three grades of ten. The file lies beside this one; `--check` says whether it is
still what this program makes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

from cleaner_rl.tasks import Message, Task

FILE = Path(__file__).parent / "data" / "thirty.jsonl"
SEED = 31


def problems() -> list[Task]:
    """All thirty."""
    draw = random.Random(SEED)
    made: list[Task] = []
    for grade, makers in {"easy": EASY, "medium": MEDIUM, "hard": HARD}.items():
        for number in range(10):
            question, answer = makers[number % len(makers)](draw)
            name = f"thirty/{len(made) + 1:02}"
            made.append(
                Task(name, (Message("user", question),), "math", str(answer), "thirty", "test", extra={"grade": grade})
            )
    return made


def _sum(draw: random.Random) -> tuple[str, int]:
    a, b = draw.randint(2, 20), draw.randint(2, 20)
    return f"What is {a} + {b}?", a + b


def _difference(draw: random.Random) -> tuple[str, int]:
    a, b = draw.randint(10, 30), draw.randint(2, 9)
    return f"What is {a} - {b}?", a - b


def _apples(draw: random.Random) -> tuple[str, int]:
    a, b = draw.randint(5, 15), draw.randint(2, 4)
    return f"Anna has {a} apples and gives {b} of them to Ben. How many apples does Anna have now?", a - b


def _product(draw: random.Random) -> tuple[str, int]:
    a, b = draw.randint(3, 12), draw.randint(3, 12)
    return f"What is {a} times {b}?", a * b


def _boxes(draw: random.Random) -> tuple[str, int]:
    a, b, c = draw.randint(3, 9), draw.randint(4, 12), draw.randint(2, 9)
    return f"A shop has {a} boxes with {b} pens each, and {c} pens more. How many pens does it have?", a * b + c


def _train(draw: random.Random) -> tuple[str, int]:
    hours, speed = draw.randint(2, 6), 10 * draw.randint(4, 9)
    return (
        f"A train travels {speed} km in one hour. How many kilometres does it travel in {hours} hours?",
        hours * speed,
    )


def _remainder(draw: random.Random) -> tuple[str, int]:
    a, b = draw.randint(1_000, 9_999), draw.randint(7, 37)
    return f"What is the remainder when {a} is divided by {b}?", a % b


def _odd_sum(draw: random.Random) -> tuple[str, int]:
    n = draw.randint(30, 90)
    return f"What is the sum of all odd numbers from 1 to {n}?", sum(range(1, n + 1, 2))


def _divisors(draw: random.Random) -> tuple[str, int]:
    n = draw.choice([36, 48, 60, 84, 96, 120])
    return f"How many positive divisors does {n} have?", sum(n % each == 0 for each in range(1, n + 1))


Maker = Callable[[random.Random], tuple[str, int]]
EASY: list[Maker] = [_sum, _difference, _apples]
MEDIUM: list[Maker] = [_product, _boxes, _train]
HARD: list[Maker] = [_remainder, _odd_sum, _divisors]


def lines() -> str:
    """The file's content."""
    return "".join(json.dumps(task.to_json()) + "\n" for task in problems())


def main() -> None:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say whether the file is still the same")
    if parser.parse_args().check:
        sys.exit(0 if FILE.read_text() == lines() else f"{FILE} differs from what this program makes")
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(lines())


if __name__ == "__main__":
    main()
