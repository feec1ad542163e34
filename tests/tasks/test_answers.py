"""The graders on every pair of `answers.txt`, through the real verifier processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_rl.tasks import ChoiceGrader, Grader, MathGrader, MathPool, Message, Task, grade

LINES = (Path(__file__).parent / "answers.txt").read_text().splitlines()
PAIRS = [tuple(line.split("|")) for line in LINES if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def graders() -> Iterator[dict[str, Grader]]:
    # Far more time than a comparison takes: these pairs are about verdicts, on however busy a machine.
    with MathPool(workers=1, seconds=60) as pool:
        yield {"math": MathGrader(pool), "choice": ChoiceGrader()}


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 200
    assert len(set(PAIRS)) == len(PAIRS)


@pytest.mark.parametrize(("grader", "truth", "text", "wanted"), PAIRS)
def test_a_pair(grader: str, truth: str, text: str, wanted: str, graders: dict[str, Grader]) -> None:
    task = Task("pair", (Message("user", "?"),), grader, truth.replace("⏎", "\n"))
    assert asyncio.run(grade(task, text.replace("¶", "\n"), graders)).outcome == wanted
