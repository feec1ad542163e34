"""What other tasks tell of a correction is counted as the formula says, and copies of a task are not other tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recurrence import read_logs, recurrence, tasks_of, text_changes, unpacked
from benchmarks.votes import Change, Votes

HERE, THERE = "here", "there"
SEEN = [
    (1, [Change(HERE, "a")]),
    (1, [Change(HERE, "a")]),  # the same task once more is no second vote
    (2, [Change(HERE, "a")]),
    (3, [Change(HERE, "b"), Change(THERE, "x")]),
    (4, []),
]


def test_votes_are_of_other_tasks_and_the_prior_is_their_agreement() -> None:
    votes = Votes(SEEN)
    assert votes.others(1, Change(HERE, "a")) == (2, 1)
    assert votes.others(3, Change(THERE, "x")) == (0, 0)
    assert votes.agreement == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert votes.prior == pytest.approx((1 + 3.5) / (3 + 5))
    assert votes.kappa(1, Change(HERE, "a")) == pytest.approx((1 + 2 * 0.5625) / 4)
    assert votes.kappa(3, Change(THERE, "x")) == pytest.approx(0.5625)


def test_the_gate_opens_by_the_mean_and_where_nothing_is_surprising() -> None:
    votes = Votes(SEEN)
    assert [votes.opens(*each) for each in SEEN] == [True, True, True, False, True]  # 0.53, 0.53, 0.53, 0.42, –


def test_shares_are_of_corrections_places_and_changes() -> None:
    found = recurrence(SEEN)
    assert (found["tasks"], found["corrections"], found["changes"], found["places"]) == (4, 5, 5, 4)
    assert [found[name][0] for name in ("recur", "some_told", "all_told", "open")] == [0.75, 0.6, 0.6, 0.8]
    assert [found[name][0] for name in ("voted", "open_voted")] == [1, 0.75]
    assert found["kappa"][0] == pytest.approx((3 * 0.53125 + 0.28125 + 0.5625) / 5, abs=1e-3)


@pytest.mark.parametrize(
    ("failed", "now", "change", "span"),
    [
        ("SELECT id FROM pets", "SELECT owner_id FROM pets", (("SELECT", ("id",)), ("owner_id",)), (7, 15)),
        ("print(pi)", "import math\nprint(pi)", ((None, ()), ("import", "math")), (0, 11)),
        ("rm -f x", "rm x", (("rm", ("-", "f")), ()), (3, 4)),
    ],
)
def test_a_change_has_its_place_and_its_characters(failed: str, now: str, change: Any, span: tuple[int, int]) -> None:
    assert text_changes(failed, now) == [(change, span)]


def test_items_that_share_a_key_are_one_task_also_by_way_of_a_third() -> None:
    a, b, c, d = tasks_of([["x"], ["y"], ["x", "y"], ["z"]])
    assert a == b == c != d


def test_copies_count_once_and_a_chain_of_failures_has_one_correction(tmp_path: Path) -> None:
    error = "Traceback (most recent call last):\nNameError: name 'math' is not defined"
    calls = [("print(math.pi)", error), ("print(math.pi )", error), ("import math\nprint(math.pi)", "3.14")]
    for name, question in (("a", "What is pi?"), ("b", "What is pi?"), ("c", "Which number is pi?")):
        folder = tmp_path / "converted" / name
        folder.mkdir(parents=True)
        (folder / "log.jsonl").write_text(json.dumps({"messages": messages(question, calls)}))
    found = read_logs(tmp_path)
    assert {name: count["failed"] for name, count in found.counts.items()} == {f"{each} python": 2 for each in "abc"}
    one, other = found.corrections.values()
    assert len(one.failed) == 2
    assert one.failed[0].code == "print(math.pi)"
    assert one.keys[0] != other.keys[0]
    assert len(set(tasks_of([one.keys, other.keys]))) == 1  # the same corrected call: the same task in other words


def test_a_folder_without_logs_ends_the_program_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"neither the folders raw and converted nor raw\.tar\.xz"):
        unpacked(tmp_path, str(tmp_path))


def messages(question: str, calls: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """A conversation in OpenAI's form."""
    found: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for number, (code, result) in enumerate(calls):
        function = {"name": "python", "arguments": json.dumps({"code": code})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        found.append({"role": "assistant", "content": "", "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return found
