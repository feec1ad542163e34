from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.evaluate import maj_at_k
from cleaner_rl.evaluate.scores import score
from tests.evaluate.builders import sample

VOTES = st.lists(st.sampled_from(["7", "8", "9", "10", None]), min_size=1, max_size=9)


def by_hand(answers: list[str | None], right: str, k: int) -> float:
    """All subsets, one by one; the winner of a tie is drawn by lot."""
    chosen = list(combinations(answers, k))
    total = 0.0
    for some in chosen:
        votes = Counter(answer for answer in some if answer is not None)
        first = [answer for answer, count in votes.items() if count == max(votes.values())]
        total += first.count(right) / len(first) if first else 0
    return total / len(chosen)


@given(VOTES, st.integers(1, 9))
def test_every_subset_counts_once(answers: list[str | None], k: int) -> None:
    k = min(k, len(answers))
    found = maj_at_k(answers, [answer == "7" for answer in answers], k)
    assert found == pytest.approx(by_hand(answers, "7", k))


def test_a_majority_of_many_samples_is_counted_fast_and_exactly() -> None:
    answers = ["7"] * 40 + ["8"] * 30 + [str(100 + n) for n in range(58)]
    found = maj_at_k(answers, [answer == "7" for answer in answers], 128)
    assert found == pytest.approx(1.0)


def test_two_samples_for_a_majority_of_three_are_refused() -> None:
    with pytest.raises(ValueError, match="maj@3"):
        maj_at_k(["7", "7"], [True, True], 3)


def test_scores_have_a_majority_where_answers_are_known() -> None:
    seven = [sample("a", n, True, answer="7") for n in range(3)]
    eight = [sample("a", 3, False, answer="8"), *(sample("b", n, False, answer=str(n)) for n in range(4))]
    run = score([*seven, *eight])
    assert run.figures["maj@4"].value == 0.5
    assert run.figures["maj@4"].problems == 2
    assert "maj@2" not in run.figures, "it says what pass@1 says"
    unknown = score([sample("a", n, True) for n in range(4)])
    assert not [name for name in unknown.figures if name.startswith("maj@")]
