"""Judges whether a logged call worked, by what the harness says itself if it does, else by the text.

What a harness says (`signals`) comes first: an exit code, a flag, an error object, in fields or around the text. The
exit code is the program's own and wins over a flag. A flag that says all is well may only mean that the tool gave an
answer: where the text says that the call failed, nobody can tell.

Where a harness says nothing, `read_text` looks at the text, and it has three answers: failed, ok, and *unsure*. A turn
with an unsure result is never edited. What it goes by, after the sentences of harnesses (`sentences`):

- **Python.** A traceback that runs to the end of the text is a failure: that is how an interpreter ends. One with more
  text behind it, or inside other text, was printed by a program that went on, cut, or wrapped by its tool: unsure. So
  are a JSON object that tells of an error, since a program may print one; a program that ends itself (`sys.exit`); and
  an empty text, because some tools show nothing of a program that failed. An error's line without a traceback, the last
  words of `argparse` and of a kernel that died are a failure if the program can't have printed them, else unsure. Any
  other text is ok.
- **Shell.** The command says which program the exit code is from. What that program prints when it fails is a failure,
  as the last lines. What a program shows that only reads (`cat`, `grep`) is ok, whatever it is about. Text that sounds
  like trouble is unsure, and so is that of programs that tell by their exit code alone (`diff`, linters). Silence is ok
  of programs that are silent when all is well.
- **File edits and SQL.** The sentences of editors and databases, at the beginning of the text.
- **Other tools.** Text whose first or last line sounds like trouble is unsure: a page that was read may begin with
  "Error". A short text that is nothing but an error is a failure, and so is a server's error page in place of the page
  that was asked for. Any other text is ok.

A denial by a person or a policy is `Status.REFUSED`, a limit of time is `Status.TIMEOUT`: neither is an error that the
model made in the call.

Limits: English. A program can print what looks like a traceback as its last words. How often all this errs on labelled
results: `python -m benchmarks.log_judging`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cleaner_rl.logs.commands import read_command
from cleaner_rl.logs.sentences import (
    BY_HARNESS,
    DIED,
    ERROR_PAGE,
    LONGEST_PAGE,
    MAY_HAVE_DIED,
    NO_OUTPUT,
    READERS,
    REPORTERS,
    SILENT,
    SILENTLY_OK,
    STOPPED_AT,
    STOPPED_LATE,
    complaints,
    printed,
    said,
)
from cleaner_rl.logs.signals import (
    EXIT_STATUSES,
    NOT_ENDED,
    PROGRAMS,
    Opened,
    Signals,
    field_signals,
    open_text,
    status_of_code,
)
from cleaner_rl.logs.tracebacks import (
    FIRST_WORDS,
    LAST_LINE,
    OTHERS_WORDS,
    REPR,
    ending_error,
    ending_traceback,
    is_of_interpreter,
    plain,
)
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult


class By(StrEnum):
    """What a result was judged by."""

    FIELD = "field"
    TEXT = "text"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Judged:
    """A logged result, and what it was judged by."""

    result: ToolResult | None
    """None if nobody can tell how the call ended."""
    by: By


UNSURE = Judged(None, By.NOTHING)
DOUBT = re.compile(
    r"\b(?:error|errors|exception|traceback|failed|failure|fatal|invalid|denied|cannot|can't|unable|timed out|timeout|"
    r"no such|not found|not recognized|not supported|not allowed|not permitted|not available|not installed|"
    r"does not exist|doesn't exist|usage(?=:)|abort|aborted|aborting|killed|refused|rejected|forbidden|unauthorized|"
    r"cancelled|canceled|unexpected|unsupported|undefined|unrecognized|unknown|missing|panic|could not|couldn't|"
    r"conflict|exceeded|rate limit|blocked|died|crashed|ERR_\w+)\b",
    re.IGNORECASE,
)
"""Words that a text about trouble has in its first or last line."""
OF_THE_TOOL = re.compile(
    r"\b(?:unavailable|disconnected|terminated|restarted|closed|lost|not running|not approved|no capacity|must be|"
    r"error_code|exit (?:code|status) [1-9]\d*)\b|_error\"",
    re.IGNORECASE,
)
"""Words of a harness that has no result to show."""
SHORT = 300
"""Characters of a text that may be a harness's word in place of the result."""
NEGATION = re.compile(r"\b(?:no|not|nothing|none|never|already|\w+n't)\b", re.IGNORECASE)
"""Words by which a tool may say that it did nothing."""
NO_DOUBT = re.compile(
    r"(?<![=\d.])\b(?:0|no|without) (?:errors?|failures?|failed|warnings?)\b|\b(?:errors?|failed|failures?)[:=] ?0\b",
    re.IGNORECASE,
)
"""Words of trouble that say there is none."""
LINE_OF_TROUBLE = re.compile(
    r"^(?:[\w./-]+: )?(?:fatal|error|panic|exception|failed|traceback|abort\w*|ERR!)\b[:\[( ]",
    re.IGNORECASE | re.MULTILINE,
)
ERROR_CODE = re.compile(r'\{\s*"(?:status|code|status_?code)": ?"?[45]\d\d\b', re.IGNORECASE)
"""The beginning of an object with HTTP's number of an error."""
ROWS = "[(|+{0123456789"
"""What rows of a table begin with."""
SQL_OK = re.compile(
    r"(?:INSERT|UPDATE|DELETE|SELECT|CREATE|DROP|ALTER|COPY|BEGIN|COMMIT|MERGE)\b(?: \w+){0,3}$|Query (?:OK|executed)|"
    r"\(?(?:\d+|no) rows?\b|.{0,60}?\bsuccessful",
    re.IGNORECASE,
)
SQL_NOTICES = re.compile(r"\A(?:(?:NOTICE|INFO|WARNING|HINT|DETAIL): .*\n)+")
"""What a database remarks before its answer."""
SQL_DONE = re.compile(
    r"(?:(?:INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|COPY|BEGIN|SET|MERGE)(?: [A-Z]+| \d+){0,3}\n)+ERROR: "
)
"""Statements that worked before one that failed."""
ECHOES = frozenset({"echo"})
REPORTS = re.compile(r"--exit-(?:code|status)\b|--check\b|--verify\b|\bdiff\b.* --quiet\b|\bjq\b.* -\w*e|\$\$")
"""Options that make a program tell by its exit code, and the number of the shell itself, which a command may end."""
HIDES_ERRORS = re.compile(r"2> ?(?!&)|&>|2>&1 ?>|> ?\S+ 2>&1|\btimeout\b")
"""Where a command can fail in silence: its complaints go to a file or nowhere, or it is stopped."""
ENDS_ITSELF = re.compile(r"\bexitCode\b|\b(?:_?exit|quit)\((?!\s*0?\s*\))|\bSystemExit\b(?!\(0?\))|\b(?:abort|kill)\(")
"""Programs that may end with an exit code and say nothing of it."""
ENDINGS = ("exit", "Exit", "quit", "abort", "kill")
"""Words of which each match of `ENDS_ITSELF` has one: most programs have none, which is found out much faster."""
ASKS_FOR_HELP = re.compile(r"\s(?:-h|--help|help)\b")
USAGE = re.compile(r"^usage: ", re.IGNORECASE | re.MULTILINE)
USAGE_ERROR = re.compile(r"\S+: error: ", re.IGNORECASE)
"""The last line of what `argparse` prints before it ends a program; the first one is `USAGE`."""
SHOWS_REPR = re.compile(r"\brepr\(|![ra]\b")
PRINTS_TRACEBACK = re.compile(r"\b(?:print_exc|format_exc|print_exception|print_tb|exception\()")
ERROR_ALONE = re.compile(
    r"(?:(?:\w+ )?(?:Error|Exception|Failure)(?: \d+)?:|(?:Failed|Unable|Could not|Cannot|Couldn't) \w|"
    r"(?:File|Path|Directory|Folder) (?:not found|does not exist)\b|"
    r"Error (?:(?:process|execut|fetch|read|load|gett|creat|call|runn|pars|connect|open|writ|send|invok)ing)\b)",
    re.IGNORECASE,
)
NO_SUCH_THING = re.compile(
    r"(?:\w*Error|Failed|File|Path|Directory|Folder)\b.*(?:not found|does not exist|no such|ENOENT|EACCES|"
    r"EISDIR|invalid|required|missing|unable|"
    r"denied|status(?: code)?:? [45]\d\d|\b404\b|unknown)",
    re.IGNORECASE,
)
SHOWS_CONTENT = re.compile(
    r"read|view|cat|log|fetch|search|grep|tail|browse|page|content|open|resource|wiki|lookup|show", re.IGNORECASE
)
"""Names of tools that show what somebody else wrote, which may be about an error."""
LISTED = re.compile(r"\s*\d+(?:\t|→)|\[(?:DIR|FILE)\] ")
"""A file's numbered lines, or the names in a folder."""
HIT = re.compile(r"\S{1,500}?\.\w+:\d+:")
"""A line that a search found, with its place."""
NO_HITS = re.compile(r"No (?:files|matches|results)(?: were)? found\.?", re.IGNORECASE)
SEARCHES = re.compile(r"grep|glob|search|find", re.IGNORECASE)
FETCHES = re.compile(r"fetch|http|url|web|browse|scrape|crawl|download|request|navigate|curl", re.IGNORECASE)
EDITS = re.compile(r"(?<![a-z])(?:edit|patch|replace)(?![a-z])", re.IGNORECASE)
"""Names of tools that edit, of which no file is known."""
HEADING = re.compile(r"\A#+ \w+\n")
INSTEAD_OF_CONTENT = re.compile(
    r"<tool_use_error>|\[|(?:#+ \w+\n)?(?:MCP error|McpError|\w*Error\b|Failed to|HTTP|Request (?:failed|timed)|"
    r"The user|User|"
    r"Permission to|Claude requested|(?:\w+ )?(?:API )?rate limit|Too many requests|Authentication|Tool|Unknown tool|"
    r"Input validation|File content \()",
    re.IGNORECASE,
)
"""Beginnings of what a harness writes in place of such content."""


def judge_call(
    call: ToolCall,
    text: str,
    fields: Mapping[str, Any],
    *,
    no_error_means_success: bool = False,
    by_words: bool = True,
) -> Judged:
    """Judge how a call ended, by the text of its result and the fields of the message that holds it.

    `no_error_means_success`: the source has a field for errors, so that a result without one is a success. Tools that
    run programs are excepted, because their errors are part of what they print. `by_words`: whether words of the text
    may decide. Without them only fields, and the exit code or the error that the harness wrote around the text, do.
    """
    opened = open_text(plain(text), call)
    told = field_signals(fields)
    status, by = _status(call, opened, told, no_error_means_success, by_words)
    if call.problem is not None:
        # Where all went well, somebody could read the call after all.
        malformed = ToolResult(Status.MALFORMED, text, explanation=call.problem)
        return UNSURE if status is Status.OK else Judged(malformed, By.FIELD)
    if status is None or (status is Status.FAULT and told.status is not Status.FAULT):
        # A fault makes the whole trajectory unusable, and words are not enough for that.
        return UNSURE
    return Judged(worded(text if opened.signals.silent else opened.text, opened.text, status, call.kind), by)


def worded(text: str, opened: str, status: Status, kind: CallKind) -> ToolResult:
    """Return the result behind a text: what was printed, and of a traceback the exception's own line.

    `opened` is the text without what a harness wrote around it, which may hide the traceback's end.
    """
    if status is Status.OK:
        return ToolResult(status, text)
    for each in dict.fromkeys((text, opened)):
        found = ending_traceback(each)
        if found is None and kind is CallKind.PYTHON:
            found = ending_error(each)
        if found is not None:
            start, exception = found
            return ToolResult(status, each[:start], exception=exception)
    return ToolResult(status, text)


def read_text(text: str, call: ToolCall) -> Status | None:
    """Return what the text of a result says about it; None if it can be read both ways."""
    stripped = text.strip()
    if SILENTLY_OK.match(stripped):
        return Status.OK
    if not stripped or NO_OUTPUT.fullmatch(stripped):
        return _of_silence(call)
    return READ[call.kind](stripped, call)


def _status(
    call: ToolCall, opened: Opened, told: Signals, no_error_means_success: bool, by_words: bool
) -> tuple[Status | None, By]:
    """Return how a call ended, and what that is known by."""
    text = opened.text if by_words else ""
    flag, by = (opened.signals.status, By.TEXT) if told.status is None else (told.status, By.FIELD)
    code = opened.signals.exit_code if told.exit_code is None else told.exit_code
    if code is not None and code != NOT_ENDED:
        by = By.TEXT if told.exit_code is None else By.FIELD
        if code == 0 and told.exit_code is None and flag not in (None, Status.OK):
            return None, By.NOTHING
        ended = EXIT_STATUSES.get(code, Status.CRASHED if code < 0 else Status.ERROR)
        return (ended if ended is Status.OK else _more_exactly(ended, flag, text, call)), by
    if flag is not None and flag is not Status.OK:
        return _more_exactly(flag, flag, text, call), by
    if flag is None and no_error_means_success and call.kind not in PROGRAMS:
        return Status.OK, By.FIELD
    if not by_words:
        told_ok = flag is Status.OK and code is None and not opened.is_data
        return (flag, by) if told_ok else (None, By.NOTHING)
    if code == NOT_ENDED and STOPPED_AT.search(opened.text):
        return Status.TIMEOUT, By.TEXT
    status = None if opened.is_data and call.kind not in PROGRAMS else read_text(opened.text, call)
    if code == NOT_ENDED or opened.is_data:
        return (None, By.NOTHING) if status in (None, Status.OK) else (status, By.TEXT)
    if flag is Status.OK:
        # It may only mean that the tool gave an answer.
        return (flag, by) if status in (None, Status.OK) else (None, By.NOTHING)
    return status, By.NOTHING if status is None else By.TEXT


def _more_exactly(status: Status, flag: Status | None, text: str, call: ToolCall) -> Status:
    """Return what is known of a failure beyond an exit code or a flag: a denial, a limit, a fault."""
    if flag not in (None, Status.OK, Status.ERROR):
        return flag
    found = said(text.strip(), call.kind)
    return status if found in (None, Status.OK, Status.ERROR) or status is not Status.ERROR else found


def _of_silence(call: ToolCall) -> Status | None:
    """Return what it means that there is no text."""
    if call.kind is CallKind.SQL:
        return Status.OK
    if call.kind is CallKind.SHELL and read_command(call.code).runs_only(SILENT):
        return None if HIDES_ERRORS.search(call.code) or REPORTS.search(call.code) else Status.OK
    return None


def _of_python(text: str, call: ToolCall) -> Status | None:
    lines = text.splitlines()
    first, last = lines[0], lines[-1]
    if ending_traceback(text) is not None:
        return None if PRINTS_TRACEBACK.search(call.code) or FIRST_WORDS in call.code else Status.ERROR
    sentence = said(text, CallKind.PYTHON)
    if sentence is not None and first not in call.code:
        return sentence
    if FIRST_WORDS in text or _ends_itself(call.code):
        return None
    if last not in call.code:
        known = bool(call.arguments)  # else nobody knows what ran
        if (status := _of_last_words(text, last)) is not None:
            return status if known and not OTHERS_WORDS.search(call.code) else None
        printed_repr = REPR.match(last) and (not known or SHOWS_REPR.search(call.code))
        if not printed_repr and (error := ending_error(text)) is not None:
            return Status.ERROR if known and is_of_interpreter(error[1], call.code) else None
        last_sentence = sentence if last == text else said(last, CallKind.PYTHON)
        if MAY_HAVE_DIED.match(last) or last_sentence is not None:
            return None  # a harness may add it to what was printed
    troubled = LAST_LINE.match(first) or DOUBT.match(NO_DOUBT.sub("", text))
    if ERROR_PAGE.match(text) or (troubled and first not in call.code):
        return None
    return None if _may_be_no_output(text, call) else Status.OK


def _ends_itself(program: str) -> bool:
    return any(word in program for word in ENDINGS) and ENDS_ITSELF.search(program) is not None


def _may_be_no_output(text: str, call: ToolCall) -> bool:
    """Return whether a text is a line of trouble that the call itself doesn't speak of: it may stand for the output."""
    if len(text) > SHORT or "\n" in text:
        return False
    words = NO_DOUBT.sub("", text)
    found = DOUBT.search(words) or OF_THE_TOOL.search(words)
    return found is not None and found[0].lower() not in call.code.lower()


def _of_last_words(text: str, last: str) -> Status | None:
    """Return how a Python program ended that shows it without a traceback."""
    if DIED.match(last):
        return Status.CRASHED
    return Status.ERROR if USAGE_ERROR.match(last) and USAGE.search(text) else None


def _of_shell(text: str, call: ToolCall) -> Status | None:
    command = read_command(call.code)
    only_reads = command.runs_only(READERS)
    lines = text.splitlines()
    # What is read may begin with any sentence, but is rarely nothing else.
    harness = BY_HARNESS[:1] if only_reads and len(lines) > 2 else BY_HARNESS
    if (status := said(text, CallKind.SHELL, harness)) is not None:
        return status
    if STOPPED_LATE.search("\n".join(lines[-3:])):
        return Status.TIMEOUT
    if found := printed(lines, command):
        return found[0] if len(found) == 1 else None
    last_reads = not command.programs or bool(command.programs[-1] & READERS)
    if complaints(text, command) or REPORTS.search(call.code) or ERROR_PAGE.match(text):
        return None
    if lines[-1] == "0" and "grep" in command.deciding:
        return None  # `grep -c` counts nothing, and fails
    if only_reads:
        asked = ASKS_FOR_HELP.search(call.code) or not USAGE.match(lines[0])
        return Status.OK if asked and not _may_be_no_output(text, call) else None
    if _ends_itself(call.code) or OF_THE_TOOL.search(lines[-1]):
        return None
    if ending_traceback(text) is not None:
        return None if last_reads else Status.ERROR
    if LAST_LINE.match(lines[0].strip()) or LAST_LINE.match(lines[-1].strip()):
        return None
    if FIRST_WORDS in text or LINE_OF_TROUBLE.search(text):
        return None
    echoed = command.programs and command.programs[-1] & ECHOES and lines[-1] in call.code.rpartition("echo")[2]
    if command.deciding & REPORTERS and not echoed:
        return None
    return _of_doubt([USAGE.sub("", line) for line in lines] if ASKS_FOR_HELP.search(call.code) else lines)


def _of_edit(text: str, call: ToolCall) -> Status | None:
    if (status := said(text, CallKind.EDIT)) is not None:
        return status
    return Status.ERROR if _is_error_alone(text.splitlines(), call.name) else None


def _of_sql(text: str, call: ToolCall) -> Status | None:
    text = SQL_NOTICES.sub("", text).strip()
    if (status := said(text, CallKind.SQL)) is not None:
        return None if text in call.code else status
    if SQL_DONE.match(text):
        return Status.ERROR
    first, *others = text.splitlines()
    if any(said(line, CallKind.SQL) for line in others if DOUBT.search(line)):
        return None
    # A sentence is not what a table begins with.
    sentence = len(first.split()) > 4 and (first[-1] in ".:" or not re.search(r"[|\t,]", first))
    if sentence and DOUBT.search(NO_DOUBT.sub("", first)):
        return None
    if first[0] == "{" and (ERROR_CODE.match(text) or DOUBT.search(NO_DOUBT.sub("", text[:SHORT]))):
        return None
    if first[0] in ROWS or SQL_OK.match(first) or (others and first in call.code):
        return Status.OK
    return None if sentence else _of_doubt([first])


def _of_other(text: str, call: ToolCall) -> Status | None:
    if page := ERROR_PAGE.match(text):
        instead = FETCHES.search(call.name) and len(text) <= LONGEST_PAGE
        return status_of_code(int(page["code"])) if instead else None
    if EDITS.search(call.name) and (status := said(text, CallKind.EDIT)) is not None:
        return status
    shows = SHOWS_CONTENT.search(call.name) is not None
    if (status := said(text, CallKind.OTHER)) is not None:
        return None if shows and not INSTEAD_OF_CONTENT.match(text) else status
    if FIRST_WORDS in text or ERROR_CODE.match(text):
        return None
    lines = text.splitlines()
    searches = SEARCHES.search(call.name)
    if LISTED.match(text) or (searches and (all(map(HIT.match, lines)) or NO_HITS.fullmatch(text))):
        return Status.OK
    return Status.ERROR if _is_error_alone(lines, call.name) else _of_doubt(lines)


def _is_error_alone(lines: list[str], name: str) -> bool:
    """Return whether a text is nothing but an error. Of a tool that shows content, only what no content says."""
    lines = HEADING.sub("", "\n".join(lines)).splitlines()
    if not ERROR_ALONE.match("\n".join(lines)) or sum(map(len, lines)) > 1000:
        return False
    return (
        len(lines) <= 5 if not SHOWS_CONTENT.search(name) else len(lines) == 1 and bool(NO_SUCH_THING.match(lines[0]))
    )


def _of_doubt(lines: list[str]) -> Status | None:
    """Return None if the first or the last line sounds like trouble."""
    ends = NO_DOUBT.sub("", f"{lines[0][:200]}\n{lines[-1][-200:]}")
    return None if any(words.search(ends) for words in (DOUBT, OF_THE_TOOL, NEGATION)) else Status.OK


READ: Mapping[CallKind, Callable[[str, ToolCall], Status | None]] = {
    CallKind.PYTHON: _of_python,
    CallKind.SHELL: _of_shell,
    CallKind.EDIT: _of_edit,
    CallKind.SQL: _of_sql,
    CallKind.OTHER: _of_other,
}
