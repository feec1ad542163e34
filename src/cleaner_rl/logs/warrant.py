"""Decides whether a repair of a log is warranted. There are three reasons for one, and no others.

- **Nothing happened** (`nothing_happened`): no part of the failed call had an effect. It was malformed, or its tool did
  not take it; an editor refused the edit; Python, a shell or a database could not read it as a whole. And the later
  call has the same tool and the same target (`targets`).
- **A replay proves it**: a Python program that ran and failed may be replaced where its correction does the same, and
  the calls after it give what they gave (`replayed`).
- **Somebody said so**: `Edit.accepted_by` has the name.

Everything else stays, and is left out of the loss. A repair has to stay true, too: the reasoning that is kept names
nothing that the correction lacks, and no turn behind it apologises for what is no longer there (`reasoning`).

Limits: English words of widely used tools, for what a database says and for a call that a tool did not take.
"""

from __future__ import annotations

import ast
import re
import warnings
from enum import StrEnum
from functools import lru_cache
from typing import Generic

from cleaner_rl.logs.commands import read_command
from cleaner_rl.logs.reasoning import APOLOGY, loses_what_it_names
from cleaner_rl.logs.sentences import said
from cleaner_rl.logs.targets import SIMILAR, same_program, same_target
from cleaner_rl.purify import RepairConfig, code_similarity
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import S, Trajectory, Turn

NOTHING_HAPPENED, REPLAY = "nothing happened", "replay"
"""What `Edit.accepted_by` says of a repair that nobody has accepted by name."""


class Unwarranted(StrEnum):
    """Says what is not shown of a failed call and its correction. `words` says it for people."""

    HAPPENED = "happened"
    """A part of the failed call may have had an effect, or its failure is a result."""
    OTHER_TARGET = "other_target"
    """The later call has another tool or another target."""
    DISSIMILAR = "dissimilar"
    """The two are less similar than `RepairConfig.min_similarity`."""
    DENIED = "denied"
    """A person, a policy or a limit stopped the call."""
    REPEATED = "repeated"
    """The later call is the same one, so what was wrong was not in the call."""
    MENTIONED = "mentioned"
    """Reasoning that would stay speaks of the failure."""

    @property
    def words(self) -> str:
        """What the reason means, as the end of a sentence that begins with "left alone because"."""
        return _WORDS[self]


_WORDS = {
    Unwarranted.HAPPENED: "a part of the failed call may have had an effect, or its failure is a result",
    Unwarranted.OTHER_TARGET: "the later call has another tool or another target",
    Unwarranted.DISSIMILAR: "the later call is too different to be a correction",
    Unwarranted.DENIED: "a person, a policy or a limit stopped the call",
    Unwarranted.REPEATED: "the later call is the same one, so what was wrong was not in the call",
    Unwarranted.MENTIONED: "reasoning that would stay speaks of the failure",
}

NOT_TAKEN = re.compile(
    r"""(?:<tool_use_error>|\{"error":\ ?"|[\s{"']|Error:|McpError:)*(?:
        (?:MCP\ error\ )?-326(?:02|00) | (?:Input)?Validation\ ?Error\b
      | (?:Input|Argument)\ ?validation\ (?:error|failed)
      | \d+\ validation\ errors?\ for | (?:Unknown|No\ such)\ tool\b | failed\ to\ parse\ (?:function\ )?arguments
      | Tool\ ['"`]?[\w.-]+['"`]?\ (?:not\ found|does\ not\ exist|is\ not\ available)\b
      | (?:Invalid|Unknown|Unexpected)\ (?:JSON|arguments?|param(?:eter)?s?|keyword|field|propert(?:y|ies))\b
      | (?:The\ )?(?:required\ )?(?:param(?:eter)?|argument|field|property)s?\ \S+\ is\ (?:missing|required)
      | Missing\ (?:\d+\ )?(?:required\ )?(?:positional\ )?(?:argument|param|field|propert|key|input)
      | No\ \w+\ (?:code|command|action)\ was\ found
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""What a harness or a server says that did not take a call. It is at the beginning: a program may print the same."""
REFUSED_EDIT = re.compile(
    r"Your (?:proposed )?edit has introduced|No (?:replacement|changes?|edit) (?:was|were)?\b|old_str"
)
"""What an editor says whose name doesn't tell that it is one."""
PARTLY = re.compile(
    r"\b(?:Hunk #\d+ succeeded|patching file|already exists|modified since|been modified|not been read|not unique"
    r"|(?:multiple|several|\d+) (?:occurrences|matches)|found \d+ times|exceeds?)\b"
    r"|^(?:The file \S+ has been|updated|applied|success|edited|edit \d+ of \d+ applied)",
    re.IGNORECASE | re.MULTILINE,
)
"""What an editor says that has changed a part, that found another file than was expected, or more than one place."""
UNREAD = frozenset({"SyntaxError", "IndentationError", "TabError"})
MAGIC = re.compile(r"^[ \t]*[!%]", re.MULTILINE)
"""A line that a notebook takes for a command of the shell, or of its own."""
UNREAD_COMMAND = re.compile(r"\b(?:ba|z|da)?sh: .*(?:syntax error|unexpected EOF|unterminated quoted)", re.IGNORECASE)
UNKNOWN_COMMAND = re.compile(
    r"(?:\S*sh: )?(?:line \d+: |\d+: )?(?P<name>[\w./-]+): (?:command )?not found$"
    r"|.{0,120}exec: \"(?P<other>[\w./-]+)\": executable file not found",
    re.MULTILINE,
)
UNREAD_STATEMENT = re.compile(
    r"""syntax\ error | error\ in\ your\ SQL\ syntax | incomplete\ input | unrecognized\ token
      | (?:no\ such|unknown|ambiguous)\ (?:column|table) | column\ .{1,80}\ (?:does\ not\ exist|is\ ambiguous)
      | (?:relation|table)\ .{1,80}\ (?:does\ not|doesn't)\ exist
      | (?:parser|binder|catalog)\ ?(?:error|exception)\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""What a database says that did not begin with a statement: it could not read it, or knows a name of it not."""
MISTAKES = frozenset(
    {
        *(*UNREAD, "NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "AttributeError"),
        *("TypeError", "KeyError", "IndexError", "ValueError"),
    }
)
"""Exceptions of a program that ran, after which a replay may prove a correction. A failing assertion is a result."""
LONGEST = 20_000
"""Characters of a call beyond which nothing is compared: the time of it grows with their square."""
TOLD = 2_000
"""Characters at the beginning and at the end of what a tool said that are looked at."""


class Warrant(Generic[S]):
    """Refuses each repair of a trajectory that is not warranted, when `hindsight` asks.

    Args:
        trajectory: The trajectory that is repaired.
        config: Says how alike a failed call and its correction have to be.
        replayed: Whether the caller replays the repaired trajectory, so that Python programs that ran may be replaced.
    """

    def __init__(self, trajectory: Trajectory[S], config: RepairConfig, *, replayed: bool = False) -> None:
        self._turns = trajectory.turns
        self._config = config
        self._replayed = replayed

    def __call__(self, failures: range, failed: int) -> Unwarranted | None:
        """Return why the turn after these failures may not stand for one of them; None if it may."""
        turn, correction = self._turns[failed], self._turns[failures.stop]
        if (reason := unwarranted(turn, correction, replayed=self._replayed)) is not None:
            return reason
        alike = code_similarity(turn.code, correction.code, self._config.measure).value
        if alike < self._config.min_similarity:
            return Unwarranted.DISSIMILAR
        behind = {min(failures.stop + 1, len(self._turns) - 1), len(self._turns) - 1} - {failures.stop}
        if any(_speaks_of(turn, self._turns[each].text) for each in behind):
            return Unwarranted.MENTIONED
        if alike < self._config.threshold:
            return Unwarranted.MENTIONED if _speaks_of(turn, correction.reasoning.text) else None
        lost = loses_what_it_names(turn.reasoning.text, turn.code, correction.code)
        return Unwarranted.OTHER_TARGET if lost else None


def _speaks_of(failed: Turn[S], text: str) -> bool:
    """Return whether a text apologises for an earlier attempt, or names the exception of a failed turn."""
    raised = (result.exception for result in failed.results if result.exception is not None)
    return APOLOGY.search(text) is not None or any(each.type and each.type in text for each in raised)


def unwarranted(failed: Turn[S], correction: Turn[S], *, replayed: bool = False) -> Unwarranted | None:
    """Return why a correction may not stand for a failed turn; None if the repair is warranted.

    Args:
        failed: A turn with at least one failed call.
        correction: A later turn whose calls all worked.
        replayed: Whether a replay shows what a Python program that ran has left behind.
    """
    aligned = len(correction.calls) == len(failed.calls)
    for index, (call, result) in enumerate(zip(failed.calls, failed.results, strict=False)):
        if result.failed:
            candidates = [correction.calls[index]] if aligned else correction.calls
            reasons = [_of_call(call, result, each, replayed) for each in candidates]
            if None not in reasons:
                return reasons[0]
    return None


def accepted_by(failed: Turn[S]) -> str:
    """Return what shows that a failed turn could be replaced, where nobody has said so by name."""
    calls = zip(failed.calls, failed.results, strict=False)
    ran = any(result.failed and not nothing_happened(call, result) for call, result in calls)
    return REPLAY if ran else NOTHING_HAPPENED


def _of_call(call: ToolCall, result: ToolResult, correction: ToolCall, replayed: bool) -> Unwarranted | None:
    if result.status in (Status.REFUSED, Status.TIMEOUT, Status.MEMORY, Status.OUTPUT_LIMIT):
        return Unwarranted.DENIED
    if max(len(call.code), len(correction.code)) > LONGEST:
        return Unwarranted.DISSIMILAR
    told = words_of(result)
    if call.problem is not None or result.status is Status.MALFORMED:
        alike = code_similarity(call.code, correction.code).value >= SIMILAR
        return None if alike else Unwarranted.DISSIMILAR
    if call.name != correction.name:
        return Unwarranted.OTHER_TARGET
    if call.arguments == correction.arguments and call.code == correction.code:
        return Unwarranted.REPEATED
    if nothing_happened(call, result):
        return None if same_target(call, correction, told) else Unwarranted.OTHER_TARGET
    if not replayed or call.kind is not CallKind.PYTHON or result.exception is None:
        return Unwarranted.HAPPENED
    if result.exception.type.rpartition(".")[2] not in MISTAKES:
        return Unwarranted.HAPPENED
    return None if same_program(call.code, correction.code, told) else Unwarranted.OTHER_TARGET


def nothing_happened(call: ToolCall, result: ToolResult) -> bool:
    """Return whether no part of a failed call had an effect."""
    told = words_of(result).lstrip()
    if call.problem is not None or result.status is Status.MALFORMED or NOT_TAKEN.match(told):
        return True
    if call.kind is CallKind.PYTHON:
        raised = "" if result.exception is None else result.exception.type
        return raised in UNREAD and not _is_program(call.code)
    if call.kind is CallKind.SHELL:
        return _had_no_command(call.code, told)
    if call.kind is CallKind.SQL:
        return ";" not in call.code.strip().rstrip(";") and UNREAD_STATEMENT.search(told) is not None
    edits = call.kind is CallKind.EDIT or REFUSED_EDIT.match(told) is not None
    refused = edits and said(told, CallKind.EDIT) is Status.ERROR
    return refused and not PARTLY.search(told)


def _had_no_command(command: str, told: str) -> bool:
    """Return whether a shell could not read a command of one line, or does not know the only program in it."""
    if "\n" in command.replace("\\\n", "").strip():
        return False  # a shell reads line by line, and runs those before
    if UNREAD_COMMAND.search(told):
        return True
    found = UNKNOWN_COMMAND.match(told.rstrip())
    alone = len(read_command(command).programs) == 1 and not re.search(r"[|&;<>`$(]", command)
    return alone and found is not None and command.split()[:1] == [found["name"] or found["other"]]


@lru_cache(512)
def _is_program(text: str) -> bool:
    """Return whether Python can read a text; a notebook reads more, and a leading blank is no mistake."""
    if MAGIC.search(text):
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def words_of(result: ToolResult) -> str:
    """Return what a tool said of a failure, without the middle of a long text."""
    parts = [result.output, result.stderr, result.explanation]
    if result.exception is not None:
        parts.append(f"{result.exception.type}: {result.exception.message}")
    return "\n".join(each if len(each) <= 2 * TOLD else f"{each[:TOLD]}\n{each[-TOLD:]}" for each in parts if each)
