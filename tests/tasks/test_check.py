"""What can't be graded is found before anything is generated."""

from __future__ import annotations

import pytest

from cleaner_rl.tasks import (
    GRADERS,
    Case,
    Cases,
    ChoiceGrader,
    Grade,
    Grader,
    Outcome,
    Task,
    UngradableError,
    check_gradable,
)
from cleaner_rl.tasks.grading import call_case, check
from tests.tasks.builders import code_task, task

NAMES = GRADERS.names()


def test_good_tasks_pass() -> None:
    good = [task(), task("choice", "J"), code_task(Case("1", "2")), code_task(call_case([1], {}, 2), entry="f")]
    check_gradable(good, NAMES)


def test_one_error_names_all_problems() -> None:
    bad = [
        task("maths", name="made/1"),
        task("maths", name="made/2"),
        task("nothing-like-it", name="made/3"),
        task("choice", "Z", name="made/4"),
        task("math", " ", name="made/5"),
        task("code", "no JSON", name="made/6"),
    ]
    with pytest.raises(UngradableError) as raised:
        check_gradable([*bad, task()], NAMES)
    said = str(raised.value)
    assert said.startswith("6 tasks can't be graded:")
    for part in (
        "did you mean 'math'? (tasks 'made/1', 'made/2')",
        "'nothing-like-it'; available: 'choice', 'code', 'math'",
        "'Z' is none of ABCDEFGHIJ",
        "truth is empty",
        "test cases",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        (Cases(()), "no test cases"),
        (Cases((Case("1", "2"),), "not a name"), "no name of a function"),
        (Cases((Case("1", "2"),), "f"), "no call"),
        (Cases((Case('{"args": [], "kwargs": {}}', "{"),), "f"), "no call"),
        (Cases((Case('{"args": 1, "kwargs": {}}', "1"),), "f"), "no call"),
    ],
)
def test_broken_test_cases_are_named(cases: Cases, said: str) -> None:
    with pytest.raises(UngradableError, match=said):
        check_gradable([task("code", cases.dumps())], NAMES)


def test_a_letter_beyond_the_options_is_named() -> None:
    question = "Which?\nA) one\nB) two\nC) three"
    with pytest.raises(UngradableError, match="none of ABC;"):
        check_gradable([task("choice", "D", question=question)], {"choice": ChoiceGrader()})


def test_a_missing_package_is_named_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "available", lambda: False)
    check_gradable([task("choice", "A")], NAMES)
    with pytest.raises(UngradableError, match=r"cleaner-rl\[eval\]"):
        check_gradable([task()], NAMES)


class Own:
    """A grader of somebody else's that checks its tasks."""

    def check(self, problem: Task) -> str | None:
        return None if problem.truth == "good" else "the truth is not good"

    async def grade(self, problem: Task, text: str) -> Grade:
        return Grade(Outcome.WRONG)


def test_graders_of_others_take_part() -> None:
    graders: dict[str, Grader] = {"own": Own()}
    check_gradable([task("own", "good")], graders)
    with pytest.raises(UngradableError, match="not good"):
        check_gradable([task("own", "bad")], graders)


def test_many_tasks_are_not_all_listed() -> None:
    with pytest.raises(UngradableError, match=r"'made/4' and 4 more\)"):
        check_gradable([task("x", name=f"made/{number}") for number in range(9)], NAMES)
