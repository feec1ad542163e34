"""A failure that the agent's later words refer to is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.logs.warrant import Surroundings, Unwarranted, Warrant
from cleaner_rl.logs.warrant.mentions import LaterWords, Lost
from cleaner_rl.logs.warrant.words import ATTEMPT, CLAIM
from cleaner_rl.purify import RepairConfig, hindsight
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import TextSpan, Trajectory, Turn

SED = "sed: -e expression #1, char 9: unknown option to `s'"
RANGE = "Invalid `view_range`: [80, 140]. It should be within the range of lines of the file: [1, 62]"
FORMAT = "TypeError: unsupported format string passed to Fraction.__format__"
COLUMN = "ERROR: column 'aeg' does not exist"


def turn(
    code: str, output: str, status: Status = Status.OK, said: str = "", kind: CallKind = CallKind.SHELL
) -> Turn[TextSpan]:
    call = ToolCall("bash", {"command": code}, code, 0, 0, None, kind)
    return Turn(TextSpan(said), TextSpan(code), TextSpan(output), (call,), (ToolResult(status, output),))


def says(text: str) -> Turn[TextSpan]:
    return Turn(TextSpan(text))


def mentioned(
    told: str, *later: Turn[TextSpan], failed: str = "a", correction: str = "b", shown: str = "ok", task: str = "Do it."
) -> bool:
    turns = (turn(failed, told, Status.ERROR), turn(correction, shown), *later)
    return LaterWords(Trajectory(TextSpan(task), turns)).mention(Lost(told, failed, 0, 1))


@pytest.mark.parametrize(
    "text",
    [
        "first edit missed because the file uses <-",
        "My first attempt failed on a typo.",
        "The initial query had a typo in a column.",
        "It failed the first time, as the flag is new.",
        "At first it didn't match.",
        "Initially, the command failed.",
        "I first tried the old name.",
        "I misspelt the path.",
        "I had to retry with the full path.",
        "It worked on the second try.",
        "It took two attempts.",
        "Done, after a failed attempt.",
        "The gap comes from my typo.",
    ],
)
def test_words_that_speak_of_a_failed_attempt(text: str) -> None:
    assert ATTEMPT.search(text)
    assert mentioned("bash: lss: command not found", says(text))


@pytest.mark.parametrize(
    "text",
    [
        "The client gives up after three attempts.",
        "Each call is retried twice.",
        "The first call is cached; the first query could be faster.",
        "The original code didn't close the file.",
        "run.sh stops on errors and unset variables now.",
        "37 rows have the status failed.",
        "my error handler logs it",
    ],
)
def test_words_about_the_work_speak_of_no_attempt(text: str) -> None:
    assert not ATTEMPT.search(text)
    assert not mentioned("bash: lss: command not found", says(text))


@pytest.mark.parametrize(
    "text", ["can't", "doesn’t", "fails", "is not", "no such", "unsupported", "Wrongly", "missing"]
)
def test_words_of_failure(text: str) -> None:
    assert CLAIM.search(text)


@pytest.mark.parametrize("text", ["works", "notes", "another", "northern", "done", "cant", "dismissed"])
def test_other_words_are_none_of_failure(text: str) -> None:
    assert not CLAIM.search(text)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (SED, "I noted that '/' fails with \"unknown option to `s'\"."),
        (FORMAT, "(Python 3.11 can't format a Fraction directly.)"),
        (COLUMN, "There is no aeg in this table."),
        (RANGE, "It has nothing outside of the range that view takes."),
    ],
)
def test_a_sentence_of_failure_with_words_of_the_error_refers_to_it(told: str, text: str) -> None:
    assert mentioned(told, says(text))
    assert not mentioned(told, says("All is done."))


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (SED, "I chose this option."),
        (SED, "No other option is set."),
        (COLUMN, "The aeg is 5."),
        (COLUMN, "It is done. Nothing else. The column is there. It does exist."),
        ("NameError: name 'hit' is not defined", "The root isn't defined for numbers below zero."),
    ],
)
def test_one_plain_word_of_the_error_is_not_enough(told: str, text: str) -> None:
    assert not mentioned(told, says(text))


@pytest.mark.parametrize("text", ["It has 62 lines.", "The tool takes a view_range.", "It has lines up to 140."])
def test_a_number_or_a_name_of_the_error_alone_refers_to_it(text: str) -> None:
    assert mentioned(RANGE, says(text))
    assert not mentioned(RANGE, says(text), task="view_range, 62, 140")
    assert not mentioned(RANGE, says(text), shown="view_range, 62, 140")
    assert not mentioned(RANGE, turn("c", "view_range, 62, 140"), says(text))


def test_what_is_shown_only_after_its_mention_is_no_source() -> None:
    assert mentioned(RANGE, says("It has 62 lines."), turn("c", "62"))
    assert mentioned(RANGE, turn("echo 'the file has 62 lines' >> n; cat n", "the file has 62 lines"))


def test_a_failure_is_no_source_because_it_may_be_repaired_too() -> None:
    assert mentioned(RANGE, turn("c", RANGE, Status.ERROR), turn("d", ""), says("It has 62 lines."))


def test_a_number_that_the_correction_has_from_the_error_is_lost() -> None:
    told = says("It has 62 lines.")
    assert mentioned(RANGE, told, correction="view 55 62", shown="62 books")
    assert not mentioned(RANGE, told, failed="viwe 55 62", correction="view 55 62", shown="62 books")
    assert not mentioned(RANGE, told, turn("wc", "62"), correction="view 55", shown="62 books")


def test_a_name_that_the_tool_offered_is_still_in_the_correction() -> None:
    offer = "no kit.sort_of; use sort_new"
    assert not mentioned(offer, says("I used sort_new."), failed="kit.sort_of(x)", correction="kit.sort_new(x)")
    assert mentioned(offer, says("There was sort_of once."), failed="kit.sort_of(x)", correction="kit.sort_new(x)")


@pytest.mark.parametrize(
    "note",
    [
        'echo "retries 3 -> 5 (first edit missed because the file uses <- and 3L)" >> CHANGES',
        "printf '%s\\n' '- sed: \"/\" as delimiter fails on URLs (unknown option to `s`)' >> NOTES.md",
        "git commit -m 'use | in sed, as an unknown option fails'",
    ],
)
def test_prose_that_a_later_call_writes_counts(note: str) -> None:
    assert mentioned(SED, turn(note, ""))


def test_statements_of_a_database_are_no_prose() -> None:
    query = turn("SELECT name, number FROM invoices WHERE number IS NOT NULL AND total > 62", "", kind=CallKind.SQL)
    assert not mentioned(RANGE, query)


def test_a_turn_after_another_failure_speaks_of_that_one() -> None:
    other = turn("pwdd", "bash: pwdd: command not found", Status.ERROR)
    assert not mentioned("bash: lss: command not found", other, turn("pwd", "/", said="My first attempt failed."))
    assert mentioned("bash: lss: command not found", turn("pwd", "/", said="My first attempt failed."))


def test_where_a_program_was_says_nothing() -> None:
    told = 'Traceback (most recent call last):\n  File "/w/v_2.py", line 14, in <module>\nNameError: oh\nExit code: 12'
    assert not mentioned(told, says("There are 14 or 12 of them in v_2."))


def test_words_before_the_correction_and_spans_without_text_say_nothing() -> None:
    assert not mentioned(RANGE)
    assert not mentioned(RANGE, says(""))
    failed, correction = turn("a", RANGE, Status.ERROR), turn("b", "", said="It has 62 lines; my first attempt failed.")
    assert not LaterWords(Trajectory(TextSpan(""), (failed, correction))).mention(Lost(RANGE, "a", 0, 1))


FAILED = turn("git lgo -3", "git: 'lgo' is not a git command. See 'git --help'. (code 4711)", Status.ERROR)
CORRECTION = turn("git log -3", "c1 one\nc2 two")


def left_alone(*later: Turn[TextSpan], task: str = "Show me the log.") -> list[str]:
    raw = Trajectory(TextSpan(task), (FAILED, CORRECTION, *later))
    purified = hindsight(raw, RepairConfig(), Warrant(raw, RepairConfig()))
    return [str(each.reason) for each in purified.left_alone]


def test_hindsight_leaves_such_a_failure_alone_on_logs_and_says_why() -> None:
    assert left_alone(says("Two commits.")) == []
    assert left_alone(says("Two commits. There is no command lgo.")) == ["mentioned"]
    assert "refers to the failure" in Unwarranted.MENTIONED.words


def test_failures_may_be_asked_about_in_any_order() -> None:
    turns = (FAILED, CORRECTION, says("It took two attempts."), FAILED, CORRECTION, says("Done."))
    around = Surroundings(Trajectory(TextSpan(""), turns))
    asked = [around.mentioned_after(first, first + 1)(FAILED.results[0].output, FAILED.code) for first in (3, 0, 3)]
    assert asked == [False, True, False]


def test_training_takes_every_verified_correction() -> None:
    raw = Trajectory(TextSpan(""), (FAILED, CORRECTION, says("My first attempt failed.")))
    assert hindsight(raw, RepairConfig()).left_alone == ()


WORDS = st.lists(
    st.sampled_from(["two", "commits", "are", "4711", "lgo", "no", "command", "fails", ".", "\n"]), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS.map(" ".join), max_size=4), WORDS.map(" ".join))
def test_more_words_only_leave_more_alone(texts: list[str], more: str) -> None:
    """Whatever is said, further words without a result never bring a repair back."""
    turns = [says(text) for text in texts]
    if left_alone(*turns):
        assert left_alone(*turns, says(more))


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=4), st.integers(0, 3))
def test_a_number_of_the_error_is_found_wherever_it_is_said(texts: list[str], place: int) -> None:
    index = min(place, len(texts) - 1)
    turns = [says(text) for text in texts]
    turns[index] = replace(turns[index], reasoning=TextSpan(f"{texts[index]} it is 4711, I think"))
    assert left_alone(*turns) == ["mentioned"]


@settings(max_examples=60, deadline=None)
@given(WORDS.map(" ".join))
def test_nothing_is_lost_if_the_task_has_the_words_of_the_error(text: str) -> None:
    task = "Show me the log. git: 'lgo' is not a git command. See 'git --help'. (code 4711)"
    assert left_alone(says(text), task=task) == []


def test_time_is_bounded_by_the_length_of_the_log() -> None:
    """Long words, lines and many failures: each turn is read once."""
    long = says("a" * 200_000 + " " + "no " * 20_000 + "\n" * 20_000)
    pairs = [FAILED, CORRECTION] * 200
    trajectory = Trajectory(TextSpan("x" * 100_000), (*pairs, long, turn("a" * 200_000, "'" * 50_000)))
    words = LaterWords(trajectory)
    assert not any(words.mention(Lost(FAILED.results[0].output, "git lgo -3", i, i + 1)) for i in range(0, 400, 2))
