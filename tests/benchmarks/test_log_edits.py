"""The labelled failures are what they say they are, and the rules make no wrong edit on them."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from benchmarks.log_edits import DATA, SETS, Outcome, counted, outcomes, purified, records, upper_bound

THERE = [name for name in SETS if (DATA / f"{name}.jsonl").exists()]


@pytest.mark.parametrize("name", THERE)
def test_every_label_names_calls_of_its_record_and_every_id_is_there_once(name: str) -> None:
    some = records(name)
    assert max(Counter(record["id"] for record in some).values()) == 1
    for record in some:
        ids = [call["id"] for message in record["messages"] for call in message.get("tool_calls") or ()]
        answered = [message["tool_call_id"] for message in record["messages"] if message["role"] == "tool"]
        assert ids == answered
        for failure in record["failures"]:
            assert failure["call_id"] in ids
            assert (failure["label"], failure["correction"] in ids) in {("repair", True), ("keep", False)}
            assert failure["why"]


def test_half_of_the_development_set_is_to_be_repaired() -> None:
    labels = Counter((record["tool"], each["label"]) for record in records("dev") for each in record["failures"])
    for tool in ("python", "shell", "edit", "sql", "mcp"):
        repairs, keeps = labels[tool, "repair"], labels[tool, "keep"]
        assert 0.4 <= repairs / (repairs + keeps) <= 0.6, tool


@pytest.mark.parametrize(("name", "repaired"), [("dev", 97), ("review", 20)])
def test_no_edit_that_the_rules_make_is_wrong(name: str, repaired: int) -> None:
    found = [each for one in purified(records(name), sandbox=False) for each in outcomes(one)]
    assert [each.name for each in found if each.edited and not each.right] == []
    assert counted(found)["right"] == repaired


def test_a_failure_that_later_words_refer_to_is_left_alone() -> None:
    found = [each for one in purified(records("blind"), sandbox=False) for each in outcomes(one)]
    assert [each.name for each in found if each.edited and not each.right] == []
    assert sum(each.reason == "mentioned" for each in found) == 1


def test_an_edit_of_a_call_that_had_worked_is_wrong() -> None:
    found = counted([Outcome("a", "shell", "openai", "ok", True, False, "", "")])
    assert (found["edits"], found["wrong"], found["failures"]) == (1, 1, 0)


@pytest.mark.parametrize("edits", [1, 20, 300])
def test_the_bound_without_a_wrong_edit_is_the_one_that_can_be_computed(edits: int) -> None:
    assert upper_bound(0, edits) == pytest.approx(1 - math.pow(0.05, 1 / edits))
