"""Pieces of benchmarks in training tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tasks import Match, decontaminate
from cleaner_rl.tasks.contamination import words
from tests.tasks.builders import task

ITEM = (
    "Every morning Aya goes for a $9$-kilometer-long walk and stops at a coffee shop afterwards. "
    "When she walks at a constant speed of $s$ kilometers per hour, the walk takes her $4$ hours."
)
AIME = {"aime24": [task(name="aime24/1", question=ITEM)]}


def found(question: str, n: int = 13) -> Match | None:
    result = decontaminate([task(name="train/1", question=question)], AIME, n)
    assert len(result.clean) + len(result.matches) == 1
    return result.matches[0] if result.matches else None


@pytest.mark.parametrize(
    "question",
    [
        ITEM,
        ITEM.upper(),
        ITEM.replace("$", "").replace(",", " ,").replace("-", " - "),
        f"Solve it. {ITEM} Explain.",
        "Note that every morning Aya goes for a 9-kilometer-long walk and stops at a shop.",
        ITEM.replace("$9$", "\\left( 9 \\right)").replace(" walk", " \\text{walk}"),
    ],
)
def test_a_copy_is_found_in_whatever_dress(question: str) -> None:
    match = found(question)
    assert match is not None
    assert (match.task, match.benchmark, match.item) == ("train/1", "aime24", "aime24/1")
    assert len(match.ngram.split()) == 13
    assert match.ngram in " ".join(words(ITEM))


@pytest.mark.parametrize("question", ["Aya goes for a walk.", "What is 1 + 1?", " ".join(reversed(ITEM.split()))])
def test_another_problem_stays(question: str) -> None:
    assert found(question) is None


def test_a_phrase_of_many_items_is_no_trace() -> None:
    phrase = "can be written as m over n where m and n are relatively prime positive integers find m plus n"
    items = [task(name=f"aime/{n}", question=f"Problem {chr(97 + n)} {phrase}") for n in range(3)]
    other = task(name="train/1", question=f"Another one {phrase}")
    assert decontaminate([other], {"aime": items}).clean == (other,)
    assert decontaminate([other], {"aime": items[:2]}).clean == ()


def test_the_same_item_in_three_benchmarks_is_still_found() -> None:
    benchmarks = {name: [task(name=name, question=ITEM)] for name in ("a", "b", "c")}
    (match,) = decontaminate([task(question=ITEM)], benchmarks).matches
    assert match.benchmark == "a"


def test_a_short_item_counts_as_a_whole() -> None:
    short = {"b": [task(name="b/1", question="Find the largest prime below ninety")]}
    assert decontaminate([task(question="So find the largest prime below ninety!")], short).matches
    assert not decontaminate([task(question="Find the largest prime")], short).matches
    assert not decontaminate([task(question="Find x")], {"b": [task(question="Find x")]}).matches


def test_characters_of_chinese_are_words() -> None:
    item = {"b": [task(question="求所有满足条件的正整数的个数并说明理由")]}
    assert decontaminate([task(question="请求所有满足条件的正整数的个数")], item).matches


def test_too_short_grams_are_refused() -> None:
    with pytest.raises(ValueError, match="chance"):
        decontaminate([], {}, n=2)


@given(st.text(), st.text())
def test_words_are_the_same_in_either_case(one: str, other: str) -> None:
    text = f"{one} {other}"
    assert words(words_joined := " ".join(words(text))) == words(words_joined.casefold())
    assert all(word == word.casefold() and not word.isspace() for word in words(text))
