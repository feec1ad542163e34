"""What a repair may take away: nothing that a call which worked had printed, and nothing that it had set."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.purify.coverage import covers
from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import TextSpan, Turn
from tests.builders import error

State = dict[str, int]
SETS = st.builds("{} = {}".format, st.sampled_from("ab"), st.integers(0, 2))
SHOWS = st.sampled_from(["show a", "show b"])
SETS_AND_SHOWS = SETS.map(lambda code: f"{code}; show {code[0]}")
PROGRAMS = st.lists(SETS | SHOWS | SETS_AND_SHOWS, min_size=1, max_size=4)


def run(code: str, state: State) -> ToolResult:
    """A tool with two variables. A program that fails sets nothing."""
    changed, printed = dict(state), ""
    for statement in code.split("; "):
        name, _, value = statement.partition(" = ")
        if value:
            changed[name] = int(value)
        elif statement[-1] in changed:
            printed += f"{statement[-1]} is {changed[statement[-1]]}\n"
        else:
            return error()
    state.update(changed)
    return ToolResult(Status.OK, printed)


def turn(codes: list[str], state: State) -> Turn[TextSpan]:
    calls = tuple(ToolCall("python", {}, code, 0, 0) for code in codes)
    return Turn(TextSpan(""), TextSpan(""), TextSpan(""), calls, tuple(run(code, state) for code in codes))


def printed(*turns: Turn[TextSpan]) -> set[str]:
    return {
        line
        for each in turns
        for result in each.results
        if result.status is Status.OK
        for line in result.output.splitlines()
    }


@given(PROGRAMS, PROGRAMS, st.booleans(), st.dictionaries(st.sampled_from("ab"), st.integers(3, 4)))
def test_nothing_is_lost_with_a_turn_that_is_covered(
    first: list[str], second: list[str], rolled_back: bool, before: State
) -> None:
    after_first = dict(before)
    removed = turn(first, after_first)
    correction = turn(second, dict(before) if rolled_back else dict(after_first))
    if not correction.verified or not covers(correction, removed, rolled_back=rolled_back):
        return
    silent = {
        call.code[0]
        for call, result in zip(removed.calls, removed.results, strict=True)
        if result.status is Status.OK and not result.output
    }
    state = dict(before)
    again = turn(second, state)
    if rolled_back:
        assert printed(removed) <= printed(again)
        assert silent <= state.keys()
    elif again.verified:
        assert after_first.keys() <= state.keys(), "what the removed calls had set is set"


@given(PROGRAMS, PROGRAMS, st.booleans())
def test_the_same_calls_cover_a_turn_whatever_stands_beside_them(
    first: list[str], more: list[str], rolled_back: bool
) -> None:
    removed = turn(first, {})
    assert covers(turn([*more, *first], {"a": 1, "b": 1}), removed, rolled_back=rolled_back)


@given(PROGRAMS, PROGRAMS)
def test_hindsight_asks_for_no_less_than_saar(first: list[str], second: list[str]) -> None:
    state: State = {}
    removed = turn(first, state)
    correction = turn(second, state)
    assert covers(correction, removed, rolled_back=True) or not covers(correction, removed, rolled_back=False)


@given(PROGRAMS)
def test_a_turn_in_which_nothing_worked_is_covered_by_any(codes: list[str]) -> None:
    removed = turn(codes, {})
    removed = replace(removed, results=tuple(error() for _ in codes))
    assert covers(turn(["a = 1"], {}), removed, rolled_back=False)


@pytest.mark.parametrize(
    ("first", "second", "saar", "in_hindsight"),
    [
        (["a = 1; show a"], ["a = 1; show a"], True, True),
        (["a = 1; show a"], ["b = 1; a = 1; show a"], True, False),
        (["a = 1"], ["show a"], False, False),
        (["a = 1"], ["a = 1; show a"], False, False),
        (["a = 1", "a = 1"], ["a = 1"], False, False),
        (["a = 1; show a"], ["b = 1; show b"], False, False),
    ],
)
def test_the_two_ways_to_be_covered(first: list[str], second: list[str], saar: bool, in_hindsight: bool) -> None:
    removed, correction = turn(first, {}), turn(second, {"a": 1})
    assert covers(correction, removed, rolled_back=True) is saar
    assert covers(correction, removed, rolled_back=False) is in_hindsight


def test_a_call_of_another_tool_is_another_call() -> None:
    removed, correction = turn(["a = 1"], {}), turn(["a = 1"], {})
    other = replace(correction, calls=(replace(correction.calls[0], name="shell"),))
    assert covers(correction, removed, rolled_back=False)
    assert not covers(other, removed, rolled_back=False)


def test_what_went_to_stderr_was_printed_too() -> None:
    warned = ToolResult(Status.OK, stderr="deprecated\n")
    removed = replace(turn(["a = 1"], {}), results=(warned,))
    correction = turn(["b = 1"], {})
    assert not covers(correction, removed, rolled_back=True)
    assert covers(replace(correction, results=(warned,)), removed, rolled_back=True)
