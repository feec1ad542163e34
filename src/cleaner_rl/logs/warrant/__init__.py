"""Decides whether a repair is warranted: whether it can be shown that the correction does what the failed call was for,
and that nothing is lost with the failed call.

`Warrant` is what `hindsight` asks about each repair of a log. One function decides, `unwarranted`, by the rules of the
tool (`rules`): ours for its kind of call (`shell`, `sql`, `edits`, `python`, `other`), or those that a plug-in brings
for its own tools. What ours go by is data: the words of failures (`words`), and the tables of programs, options and
statements in each module. A repair is made only if nothing speaks against it:

- **Same purpose.** Both run the same program, statement or operation on the same things.
- **Nothing lost.** The failed call changed nothing, or its correction does it again.
- **A mistake.** The failure was one of form. A failing test, a search without a match and a reproduced bug are results;
  a denial and a limit are somebody's decision.
- **No bypass.** The correction switches no safeguard off.
- **No later words.** What the agent says or writes later doesn't refer to the failure (`mentions`).
- **True reasoning.** The reasoning that stays names nothing that the correction lacks (`reasoning`).

Limits: English words of widely used tools. What can't be parsed or isn't known is left alone. The parsers of shell
commands and SQL are in the extra `cleaner-rl[logs]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Generic

from cleaner_rl.logs.warrant.context import Leftovers, RepairContext, Surroundings
from cleaner_rl.logs.warrant.other import INVALID_ARGUMENTS
from cleaner_rl.logs.warrant.reasoning import APOLOGY, loses_what_it_names
from cleaner_rl.logs.warrant.reasons import Unwarranted
from cleaner_rl.logs.warrant.rules import REPAIR_RULES, FailedCall, RepairRules, ToolRules, rules_for
from cleaner_rl.logs.warrant.texts import misspelt, same_letters
from cleaner_rl.logs.warrant.words import ASKED_FOR, DENIAL, LIMIT, tells_of_change
from cleaner_rl.purify import RepairConfig, code_similarity
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import S, Trajectory, Turn

__all__ = [
    "REPAIR_RULES",
    "FailedCall",
    "Leftovers",
    "RepairContext",
    "RepairRules",
    "Surroundings",
    "ToolRules",
    "Unwarranted",
    "Warrant",
    "unwarranted",
]

PROGRAMS = {CallKind.PYTHON, CallKind.SHELL}
NAME = re.compile(r"[\w@#][\w@#./-]*\w")
PLAIN_WORD = re.compile(r"[A-Za-z]?[a-z]+")
STOPPED = {Status.TIMEOUT, Status.MEMORY, Status.OUTPUT_LIMIT}


class Warrant(Generic[S]):
    """Refuses each repair of a trajectory that is not warranted, when `hindsight` asks.

    Args:
        trajectory: The trajectory that is repaired.
        config: Says how alike a failed call and its correction have to be.
        leftovers: Who looks at what a failed Python program may have left behind.
    """

    def __init__(
        self, trajectory: Trajectory[S], config: RepairConfig, leftovers: Leftovers = Leftovers.UNCHECKED
    ) -> None:
        self._turns = trajectory.turns
        self._around = Surroundings(trajectory)
        self._config = config
        self._leftovers = leftovers

    def __call__(self, failures: range, failed: int) -> Unwarranted | None:
        """Return why the turn after these failures may not stand for one of them; None if it may."""
        around, turn, correction = self._around, self._turns[failed], self._turns[failures.stop]
        context = RepairContext(
            leftovers=self._leftovers,
            between=self._turns[failed + 1 : failures.stop],
            reads_later=around.reads_after(failures.stop + 1),
            was_given=around.given_before(failures.start),
            task=around.task,
            mentioned_later=around.mentioned_after(failures.start, failures.stop),
        )
        if (reason := unwarranted(turn, correction, context)) is not None:
            return reason
        alike = code_similarity(turn.code, correction.code, self._config.measure)
        if alike.value < self._config.min_similarity:
            return Unwarranted.DISSIMILAR
        return self._untrue(turn, correction, failures.stop, stays=alike.value >= self._config.threshold)

    def _untrue(self, failed: Turn[S], correction: Turn[S], position: int, *, stays: bool) -> Unwarranted | None:
        """Return a reason if the reasoning that is there after a repair is not true of it."""
        behind = self._turns[position + 1 : position + 2]
        if any(APOLOGY.search(turn.reasoning.text) for turn in behind):
            return Unwarranted.MENTIONED
        lost = stays and loses_what_it_names(failed.reasoning.text, failed.code, correction.code)
        return Unwarranted.OTHER_PURPOSE if lost else None


def unwarranted(
    failed: Turn[S],
    correction: Turn[S],
    context: RepairContext = RepairContext(),  # noqa: B008 - frozen
) -> Unwarranted | None:
    """Return why a correction may not stand for a failed turn; None if the repair is warranted.

    Args:
        failed: A turn with at least one failed call.
        correction: A later turn whose calls all worked.
        context: What is known of the turns around them. By default nothing is, so less can be shown.
    """
    turns = (failed, *context.between)
    messages = [each for turn in turns for result in turn.results if result.failed for each in _messages(result)]
    printed = {line for result in correction.results for line in _lines(result.output)}
    for index, (call, result) in enumerate(zip(failed.calls, failed.results, strict=False)):
        if not result.failed:
            continue
        aligned = len(correction.calls) == len(failed.calls)
        candidates = [correction.calls[index]] if aligned else correction.calls
        told = words_of(result)
        if len(failed.calls) == 1 and failed.observation is not None:
            told = f"{_cut(failed.observation.text)}\n{told}"  # with the frames of a traceback
        judged = partial(_of_call, call, result.status, told, messages, context)
        try:
            reasons = [judged(each) for each in candidates]
        except RecursionError:  # nested deeper than any parser goes
            return Unwarranted.UNREADABLE
        if None not in reasons:
            return reasons[0]
        if call.kind is CallKind.PYTHON and not printed.issuperset(_lines(result.output)):
            return Unwarranted.FINDING  # what it printed before it failed may have been used
    told = "\n".join(words_of(result) for result in failed.results if result.failed)
    return Unwarranted.MENTIONED if context.mentioned_later(told, failed.code) else None


def _of_call(
    call: ToolCall,
    status: Status,
    told: str,
    messages: Sequence[str],
    context: RepairContext,
    correction: ToolCall,
) -> Unwarranted | None:
    """Judge what is the same for all tools, and leave the rest to the tool's rules."""
    if status is Status.REFUSED or status in STOPPED:
        return Unwarranted.DENIED
    if call.problem is not None or status is Status.MALFORMED:
        return None  # it never reached the tool, and its text is compared by similarity
    if call.name != correction.name:
        return Unwarranted.OTHER_PURPOSE
    longest = LONGEST_PROGRAM if call.kind is CallKind.PYTHON else LONGEST
    if max(len(call.code), len(correction.code)) > longest:
        return Unwarranted.UNREADABLE
    if call.arguments == correction.arguments and call.code == correction.code:
        return Unwarranted.FINDING  # what was wrong was not in the call
    failed = FailedCall.of(call, told, correction, messages, context)
    if _is_stopped(failed):
        return Unwarranted.DENIED
    if ASKED_FOR.search(context.task):
        return Unwarranted.FINDING
    if call.kind not in PROGRAMS and tells_of_change(failed.own_words):
        return Unwarranted.CHANGED
    reason = rules_for(call).refusal(failed, correction)
    return Unwarranted.FINDING if reason is None and _lacks_what_was_named(failed, correction) else reason


def _lacks_what_was_named(failed: FailedCall, correction: ToolCall) -> bool:
    """Return whether a correction has another name for one that the task gives: that it isn't there is a finding.

    A plain word of the task (`shipment`) is no name.
    """
    task = failed.context.task
    old, new = ({*NAME.findall(each.code or str(each.arguments))} for each in (failed.call, correction))
    for name in old - new:
        if PLAIN_WORD.fullmatch(name) or re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w/-]|\.\w)", task) is None:
            continue
        others = (each for each in new - old if misspelt(name, each) or failed.renamed.get(name) == each)
        if any(not same_letters(name, each) and not failed.context.was_given(each) for each in others):
            return True
    return False


def _is_stopped(failed: FailedCall) -> bool:
    """Return whether the tool's words tell of a denial or a limit."""
    if failed.call.kind is CallKind.PYTHON:
        return False  # a program can print any word, and its exception says it
    if failed.call.kind is not CallKind.SHELL and INVALID_ARGUMENTS.search(failed.own_words):
        return False  # it did not take the call at all
    return DENIAL.search(failed.own_words) or LIMIT.search(failed.own_words)


def _messages(result: ToolResult) -> list[str]:
    """Return what a tool said of a failure, without what the program had printed before, where that can be told."""
    if result.exception is not None:
        return [result.exception.message]
    return [_cut(part) for part in (result.output, result.stderr, result.explanation) if part]


LONGEST, LONGEST_PROGRAM = 10_000, 20_000
"""Characters of a call beyond which nothing is shown: time grows with the square of some of it."""
TOLD = 5_000
"""Characters at the beginning and at the end of what a tool said that are looked at."""


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
