"""Seeded questions without end: some numbers, one or two changes to them, and what to give of the result.

Whether a question is for training or held out follows from the question itself (`split_of`), so that no seed and no
count can make the two meet. A question with an empty list on the way is not asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.toy.library import FOLDS, MAPS, OPERATIONS, functions
from cleaner_rl.tasks import Message, Task
from cleaner_rl.tools import derive_seed

TRAIN, TEST = "train", "test"
HELD_OUT = 0.1
"""The share of all questions that nobody trains on."""
HELD_OUT_COMBINATIONS = 0.2
"""The share of all combinations of operations that a world holds out."""
CHANGES = {each.stem for each in MAPS}
"""Operations that give a list."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    numbers: tuple[int, ...]
    stems: tuple[str, ...]
    """The operations in order; the last one gives a number."""
    stepwise: bool = False
    """Whether the changed list is to be shown before the answer is worked out: two calls instead of one."""

    @property
    def text(self) -> str:
        """In words."""
        *changes, asked = (OPERATIONS[stem].words for stem in self.stems)
        first, *rest = [*changes, *(["show the list"] if self.stepwise else []), asked]
        return f"Take {self.listed}. {', then '.join([first.capitalize(), *rest])}."

    @property
    def listed(self) -> str:
        """The numbers as they are written."""
        return " ".join(map(str, self.numbers))

    def steps(self) -> list[list[int]] | None:
        """The list before and after each change; None if it becomes empty."""
        lists = [list(self.numbers)]
        for stem in self.stems:
            if stem in CHANGES:
                lists.append(_functions()[stem](lists[-1]))
            if not lists[-1]:
                return None
        return lists

    @property
    def printed(self) -> str:
        """What the right program prints: the answer, or the changed list where the question asks for no number."""
        if self.stems[-1] not in CHANGES:
            return str(self.answer)
        lists = self.steps()
        assert lists is not None, "a question with an empty list is never asked"
        return " ".join(map(str, lists[-1]))

    @property
    def answer(self) -> int:
        """The right number."""
        lists = self.steps()
        assert lists is not None, "a question with an empty list is never asked"
        return int(_functions()[self.stems[-1]](lists[-1]))


@cache
def _functions() -> dict[str, Callable[[list[int]], Any]]:
    return functions(dict.fromkeys(OPERATIONS, "of"))


def split_of(question: Question) -> str:
    """To which split a question belongs, whoever asks it."""
    place = derive_seed(0, "split", *question.stems, *question.numbers) / 2**63
    return TEST if place < HELD_OUT else TRAIN


def is_held_out(question: Question, world: int) -> bool:
    """Whether a world holds out all questions with these operations: none of them is trained on there."""
    return derive_seed(world, "combination", *question.stems) / 2**63 < HELD_OUT_COMBINATIONS


def questions(
    seed: int, split: str, *, changes: int, stepwise: float = 0.0, largest: int | None = None
) -> Iterator[Question]:
    """Different questions of a split, without end; the same for the same seed. No list has a number above `largest`."""
    draw = random.Random(derive_seed(seed, "questions", split))
    seen = set()
    while True:
        numbers = tuple(draw.randrange(100) for _ in range(draw.randrange(3, 6)))
        stems = (*(draw.choice(MAPS).stem for _ in range(changes)), draw.choice(FOLDS).stem)
        question = Question(numbers, stems, draw.random() < stepwise)
        lists = question.steps()
        if lists is None or split_of(question) != split or question in seen:
            continue
        if largest is not None and max(map(max, lists)) > largest:
            continue
        seen.add(question)
        yield question


def task(question: Question, source: str) -> Task:
    """The question as any other task; its parts travel with it."""
    name = "-".join([*question.stems, *map(str, question.numbers), *(["steps"] if question.stepwise else [])])
    return Task(
        id=f"{source}/{name}",
        prompt=(Message("user", question.text),),
        grader="math",
        truth=str(question.answer),
        source=source,
        split=split_of(question),
        extra={
            "numbers": list(question.numbers),
            "stems": list(question.stems),
            "stepwise": question.stepwise,
        },
    )
