"""Decides whether a repair is warranted: whether it can be shown that the correction does what the failed call was for,
and that nothing is lost with the failed call.

One function decides, `unwarranted`, by the kind of the call (`shell`, `sql`, `edits`, `python`, `other`). What it goes
by is data: the words of failures (`words`), and the tables of programs, options and statements in each module. A repair
is made only if nothing speaks against it:

- **Same purpose.** Both run the same program, statement or operation on the same things.
- **Nothing lost.** The failed call changed nothing, or its correction does it again.
- **A mistake.** The failure was one of form. A failing test, a search without a match and a reproduced bug are results;
  a denial and a limit are somebody's decision.
- **No bypass.** The correction switches no safeguard off.

Limits: English words of widely used tools. What can't be parsed or isn't known is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any

from cleaner_rl.purify.warrant.edits import edit_refusal
from cleaner_rl.purify.warrant.effects import ReadsLater
from cleaner_rl.purify.warrant.offers import renamed, substituted, with_names
from cleaner_rl.purify.warrant.other import INVALID_ARGUMENTS, other_refusal
from cleaner_rl.purify.warrant.python import ANY, names_read, nothing_reads, python_refusal
from cleaner_rl.purify.warrant.reasons import Unwarranted
from cleaner_rl.purify.warrant.shell import shell_refusal
from cleaner_rl.purify.warrant.sql import sql_refusal
from cleaner_rl.purify.warrant.words import DENIAL, LIMIT
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import S, Turn

__all__ = ["LaterReads", "Leftovers", "ReadsLater", "Unwarranted", "unwarranted"]

PROGRAMS = {CallKind.PYTHON, CallKind.SHELL}
STOPPED = {Status.TIMEOUT, Status.MEMORY, Status.OUTPUT_LIMIT}


class Leftovers(StrEnum):
    """Says who looks at what a failed Python program may have left behind."""

    REPLAYED = "replayed"
    """The caller replays the repaired trajectory, which shows whether something is missing."""
    UNCHECKED = "unchecked"
    """Nobody: the text of the programs has to show it."""


class LaterReads:
    """Finds out which names later Python programs of a trajectory read. It looks at them when it is first asked."""

    def __init__(self, turns: Sequence[Turn[Any]]) -> None:
        self._turns = turns
        self._last: dict[str, int] | None = None
        """By name the last turn that reads it; by `ANY` the last one that can't be parsed."""

    def after(self, position: int) -> ReadsLater:
        """Return a function that says whether a turn at this position or later may read one of some names."""
        return partial(self._reads, position)

    def _reads(self, position: int, names: Collection[str]) -> bool:
        if self._last is None:
            self._last = {
                name: index
                for index, turn in enumerate(self._turns)
                for call in turn.calls
                if call.kind is CallKind.PYTHON
                for name in names_read(call.code)
            }
        last = self._last
        return any(last.get(name, -1) >= position for name in (*names, ANY)) if names else False


def unwarranted(
    failed: Turn[S],
    correction: Turn[S],
    reads_later: ReadsLater = nothing_reads,
    leftovers: Leftovers = Leftovers.UNCHECKED,
    between: Sequence[Turn[S]] = (),
) -> Unwarranted | None:
    """Return why a correction may not stand for a failed turn; None if the repair is warranted.

    Args:
        failed: A turn with at least one failed call.
        correction: A later turn whose calls all worked.
        reads_later: Says whether a program after the correction may read one of some names (see `LaterReads`).
        leftovers: Who looks at what a failed Python program may have left behind.
        between: Failed turns between the two. A name that the tool offered there is one that it offers here.
    """
    offers = [message for turn in between for result in turn.results if result.failed for message in _messages(result)]
    printed = {line for result in correction.results for line in _lines(result.output)}
    for index, (call, result) in enumerate(zip(failed.calls, failed.results, strict=False)):
        if not result.failed:
            continue
        aligned = len(correction.calls) == len(failed.calls)
        candidates = [correction.calls[index]] if aligned else correction.calls
        told = words_of(result)
        if len(failed.calls) == 1 and failed.observation is not None:
            told = f"{_cut(failed.observation.text)}\n{told}"  # with the frames of a traceback
        try:
            reasons = [
                _of_call(call, result, told, each, reads_later, leftovers, [*_messages(result), *offers])
                for each in candidates
            ]
        except RecursionError:  # nested deeper than any parser goes
            return Unwarranted.UNREADABLE
        if None not in reasons:
            return reasons[0]
        if call.kind is CallKind.PYTHON and not printed.issuperset(_lines(result.output)):
            return Unwarranted.FINDING  # what it printed before it failed may have been used
    return None


def _of_call(
    call: ToolCall,
    result: ToolResult,
    told: str,
    correction: ToolCall,
    reads_later: ReadsLater,
    leftovers: Leftovers,
    messages: Sequence[str],
) -> Unwarranted | None:
    if result.status is Status.REFUSED or result.status in STOPPED:
        return Unwarranted.DENIED
    if call.problem is not None or result.status is Status.MALFORMED:
        return None  # it never reached the tool, and its text is compared by similarity
    if call.name != correction.name:
        return Unwarranted.OTHER_PURPOSE
    longest = LONGEST_PROGRAM if call.kind is CallKind.PYTHON else LONGEST
    if max(len(call.code), len(correction.code)) > longest:
        return Unwarranted.UNREADABLE
    if call.arguments == correction.arguments and call.code == correction.code:
        return Unwarranted.FINDING  # what was wrong was not in the call
    own = _without_own_words(told, call)
    names = renamed(call.code, correction.code, messages, call.kind)
    if names and call.kind is not CallKind.SHELL:
        # It is compared as if the tool had been given the name that it offers.
        arguments = {substituted(key, names): with_names(value, names) for key, value in call.arguments.items()}
        call = replace(call, code=substituted(call.code, names), arguments=arguments)
        told, own = substituted(told, names), substituted(own, names)
    if call.kind not in PROGRAMS and INVALID_ARGUMENTS.search(own):
        # The arguments were wrong, and so may be the kind that they tell.
        return other_refusal(call.name, call.arguments, correction.arguments, own)
    if call.kind is not correction.kind:
        return Unwarranted.OTHER_PURPOSE
    if call.kind is CallKind.PYTHON:
        lasting = leftovers is Leftovers.UNCHECKED
        return python_refusal(call.code, correction.code, told, reads_later, lasting=lasting, absent=names.values())
    if DENIAL.search(own) or LIMIT.search(own):
        return Unwarranted.DENIED
    if call.kind is CallKind.SHELL:
        return shell_refusal(call.code, correction.code, told, names)
    if call.kind is CallKind.SQL:
        return sql_refusal(call.code, correction.code, told)
    if call.kind is CallKind.EDIT:
        return edit_refusal(call.arguments, correction.arguments, own)
    return other_refusal(call.name, call.arguments, correction.arguments, told)


def _messages(result: ToolResult) -> list[str]:
    """Return what a tool said of a failure, without what the program had printed before, where that can be told."""
    if result.exception is not None:
        return [result.exception.message]
    return [_cut(part) for part in (result.output, result.stderr, result.explanation) if part]


def _without_own_words(told: str, call: ToolCall) -> str:
    """Return what a tool said without the lines of the call that it repeats: these are not its own words."""
    lines = {line.strip() for value in call.arguments.values() if isinstance(value, str) for line in value.splitlines()}
    for line in sorted(lines, key=len, reverse=True):
        if len(line) >= QUOTED and line in told:
            told = re.sub(rf"(?<!\w){re.escape(line)}(?!\w)", "…", told)
    return told


LONGEST, LONGEST_PROGRAM = 10_000, 20_000
"""Characters of a call beyond which nothing is shown: time grows with the square of some of it."""
TOLD = 5_000
"""Characters at the beginning and at the end of what a tool said that are looked at."""
QUOTED = 6
"""Characters of a line that is taken for one of the call's: shorter ones come in other words."""


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def words_of(result: ToolResult) -> str:
    """Return everything that a tool said of a failure."""
    parts = [result.output, result.stderr, result.explanation]
    if result.exception is not None:
        parts += [result.exception.traceback, f"{result.exception.type}: {result.exception.message}"]
    return "\n".join(_cut(part) for part in parts if part)


def _cut(text: str) -> str:
    return text if len(text) <= 2 * TOLD else f"{text[:TOLD]}\n{text[-TOLD:]}"
