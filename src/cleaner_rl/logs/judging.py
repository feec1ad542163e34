"""Judges whether a logged call worked, by the log's own fields if it has them, else by its text.

Fields come first: an error object, a flag, an exit code. But a flag that says all is well may only mean that the tool
gave an answer: where that ends with a traceback, and the tool runs programs, nobody can tell. An exit code is the
program's own. Where there are no such fields, `read_text` looks at the text, and it has three answers: failed, ok, and
*unsure*. A turn with an unsure result is never touched. What it goes by:

- **Python tools.** A traceback that runs to the end of the text is a failure: that is how an interpreter ends. One
  with more text behind it, or inside other text, was printed by a program that went on, cut, or wrapped by its tool:
  unsure. So are a JSON object that tells of an error, since a program may print one; an error's line without a
  traceback; and an empty text, because some tools show nothing of a program that failed. Any other text is ok.
- **Other tools.** A JSON object that says so itself (`error`, `success: false`, an exit code), or one of the sentences
  that a harness writes when the tool raised, is a failure. Text whose first or last line sounds like trouble is
  unsure: a file that was read may begin with "Error". Any other text is ok.

Limits: English sentences, of the harnesses named in `HARNESS_SENTENCES`. A program can print what looks like a
traceback as its last words. How often all this errs on labelled texts: `python -m benchmarks.log_judging`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cleaner_rl.logs.tracebacks import FIRST_WORDS, LAST_LINE, ending_traceback, plain
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult, read_json


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


HARNESS_SENTENCES = re.compile(
    r"""^(?:
        Error\ executing\ tool\b                                # verl, MCP servers
      | Error\ (?:when|while)\ (?:executing|calling|running)\b
      | An\ error\ occurred\ while\ (?:running|executing)\ the\ tool\b  # OpenAI's agents
      | Tool\ (?:call|execution)\ failed\b
      | Error\ in\ code\ parsing\b | Code\ execution\ failed\b  # smolagents
      | (?:Tool|Function)\ '?[\w.-]+'?\ (?:not\ found|does\ not\ exist)\b
      | Invalid\ (?:JSON|arguments)\ (?:for|in)\ (?:tool|function)\b
      | (?:The\ )?(?:code|program|execution|command)\ timed\ out\ after\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
TIME_SENTENCE = re.compile(r"\btimed? ?out\b", re.IGNORECASE)
DOUBT = re.compile(
    r"\b(?:error|errors|exception|traceback|failed|failure|fatal|invalid|denied|cannot|can't|unable|timed out|timeout|"
    r"no such file|not found|not recognized|usage:|aborted|killed|refused|unexpected|unsupported|undefined)\b",
    re.IGNORECASE,
)
ERROR_TYPES = {
    "approval": Status.REFUSED,
    "cancelled": Status.FAULT,
    "limit": Status.OUTPUT_LIMIT,
    "output_limit": Status.OUTPUT_LIMIT,
    "parsing": Status.MALFORMED,
    "permission": Status.REFUSED,
    "sandbox_unavailable": Status.FAULT,
    "timeout": Status.TIMEOUT,
}
"""Inspect's types of a tool's error; every other one is an error of the program or of its arguments."""
PROGRAMS = (CallKind.PYTHON, CallKind.SHELL)
"""Kinds of calls whose errors are part of what they print."""
EXIT_FIELDS = ("exit_code", "returncode", "return_code", "exitCode")
FLAG_FIELDS = ("is_error", "isError")
BAD_WORDS = {"error", "failed", "failure", "exception"}
GOOD_WORDS = {"success", "ok", "completed", "finished"}


def judge_call(call: ToolCall, text: str, fields: Mapping[str, Any], *, no_error_means_success: bool = False) -> Judged:
    """Judge how a call ended, by the text of its result and the fields of the message that holds it.

    `no_error_means_success`: the source has a field for errors, so that a result without one is a success. Tools that
    run programs are excepted, because their errors are part of what they print.
    """
    status = read_fields(fields)
    by = By.FIELD
    if (
        status is Status.OK
        and call.kind in PROGRAMS
        and _exit_code(fields) is None
        and ending_traceback(text) is not None
    ):
        return Judged(None, By.NOTHING)
    if status is None and no_error_means_success and call.kind not in PROGRAMS:
        status = Status.OK
    elif status is None:
        status = read_text(text, python=call.kind is CallKind.PYTHON)
        by = By.NOTHING if status is None else By.TEXT
    if call.problem is not None:
        # Where all went well, somebody could read the call after all.
        malformed = ToolResult(Status.MALFORMED, text, explanation=call.problem)
        return Judged(None, By.NOTHING) if status is Status.OK else Judged(malformed, By.FIELD)
    return Judged(None if status is None else worded(text, status), by)


def worded(text: str, status: Status) -> ToolResult:
    """Return the result behind a text: what was printed, and of a traceback the exception's own line."""
    if status is Status.OK:
        return ToolResult(status, text)
    found = ending_traceback(text)
    if found is None:
        return ToolResult(status, text)
    start, exception = found
    return ToolResult(status, text[:start], exception=exception)


def read_fields(fields: Mapping[str, Any]) -> Status | None:
    """Return what a message's own fields say about the result; None if they say nothing."""
    if fields.get("error"):
        error = fields["error"]
        return ERROR_TYPES.get(str(error.get("type")), Status.ERROR) if isinstance(error, dict) else Status.ERROR
    for name in FLAG_FIELDS:
        if isinstance(fields.get(name), bool):
            return Status.ERROR if fields[name] else Status.OK
    code = _exit_code(fields)
    if code is not None:
        return Status.OK if code == 0 else Status.ERROR
    word = fields.get("status")
    if isinstance(word, str):
        if word.lower() in BAD_WORDS:
            return Status.ERROR
        if word.lower() in GOOD_WORDS:
            return Status.OK
        if word.lower() in ("timeout", "timed_out"):
            return Status.TIMEOUT
    return None


def _exit_code(fields: Mapping[str, Any]) -> int | None:
    codes = (fields.get(name) for name in EXIT_FIELDS)
    return next((code for code in codes if isinstance(code, int) and not isinstance(code, bool)), None)


def read_text(text: str, *, python: bool) -> Status | None:
    """Return what a text alone says about the result; None if it can be read both ways."""
    stripped = plain(text).strip()
    if not stripped:
        return None
    if HARNESS_SENTENCES.match(stripped):
        return Status.TIMEOUT if TIME_SENTENCE.search(stripped.partition("\n")[0]) else Status.ERROR
    if ending_traceback(text) is not None:
        # A tool that isn't Python may show a file or a page that ends so.
        return Status.ERROR if python else None
    status = _of_json(stripped) if stripped[0] == "{" else None
    if status is not None and not python:
        return status
    if FIRST_WORDS in stripped or status not in (None, Status.OK):
        return None
    lines = stripped.splitlines()
    if python:
        last = LAST_LINE.match(lines[-1].strip())
        doubtful = last is not None or DOUBT.match(stripped) is not None
        return None if doubtful else Status.OK
    return None if DOUBT.search(lines[0][:200]) or DOUBT.search(lines[-1][-200:]) else Status.OK


def _of_json(text: str) -> Status | None:
    try:
        value = read_json(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    status = read_fields(value)
    if status is None and isinstance(value.get("success"), bool):
        status = Status.OK if value["success"] else Status.ERROR
    if status is None and "error" in value:
        # `"error": null` beside a result is how many tools say that all is well.
        status = Status.ERROR if value["error"] else Status.OK
    return status
