"""Whether a logged call worked: from the log's own fields where it has them, else from its text, or not at all.

Fields come first: an error object, a flag, an exit code. Where there are none, `read_text` looks at the text, and it
has three answers: failed, ok, and *unsure*. A turn with an unsure result is never touched. What it goes by:

- **Python tools.** A traceback that runs to the end of the text is a failure: that is how an interpreter ends. One
  with more text behind it was printed by a program that went on, or cut: unsure. So is an error's line without a
  traceback, and an empty text, because some tools show nothing of a program that failed. Any other text is ok.
- **Other tools.** A JSON object that says so itself (`error`, `success: false`, an exit code), or one of the sentences
  that a harness writes when the tool raised, is a failure. Text whose first or last line sounds like trouble is
  unsure: a file that was read may begin with "Error". Any other text is ok.

Limits: English sentences, of the harnesses named in `HARNESS_SENTENCES`. A program can print what looks like a
traceback as its last words. How often all this errs on labelled texts: `python -m benchmarks.log_judging`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cleaner_rl.tools import ExceptionInfo, Status, ToolCall, ToolResult


class By(StrEnum):
    """What a judgement rests on."""

    FIELD = "field"
    TEXT = "text"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Judged:
    """A logged result, and what its status rests on."""

    result: ToolResult | None
    """None if nobody can tell how the call ended."""
    by: By


TRACEBACK = re.compile(r"^(?:[ \t]*[-]{3,}\n)?[ \t]*Traceback \(most recent call last\)", re.MULTILINE)
SYNTAX_FRAME = re.compile(r'^  File "[^"\n]*", line \d+\n(?:    .*\n)+', re.MULTILINE)
LAST_LINE = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Iteration|Group|Fault|Timeout|Expired)|"
    r"(?:[A-Za-z_]\w*\.)+[A-Z]\w+)(?:: ?(?P<message>.*))?$"
)
FRAME_LINE = re.compile(r'^(?:  File "|    |  \+|File |Cell In|Input In|-+>|\s+\d+ )')
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
EXIT_FIELDS = ("exit_code", "returncode", "return_code", "exitCode")
FLAG_FIELDS = ("is_error", "isError")
BAD_WORDS = {"error", "failed", "failure", "exception"}
GOOD_WORDS = {"success", "ok", "completed", "finished"}


def judge(text: str, fields: Mapping[str, Any], *, python: bool) -> Judged:
    """How a call ended whose result reads so, in a message with these fields."""
    status = read_fields(fields)
    by = By.FIELD
    if status is None:
        status, by = read_text(text, python=python), By.TEXT
    if status is None:
        return Judged(None, By.NOTHING)
    return Judged(worded(text, status), by)


def judge_call(call: ToolCall, text: str, fields: Mapping[str, Any], *, python: bool) -> Judged:
    """The same for a call that may have been malformed."""
    found = judge(text, fields, python=python)
    if call.problem is None:
        return found
    if found.result is not None and found.result.status is Status.OK:
        return Judged(None, By.NOTHING)  # somebody could read the call after all
    return Judged(ToolResult(Status.MALFORMED, text, explanation=call.problem), By.FIELD)


def worded(text: str, status: Status) -> ToolResult:
    """The result behind a text: what was printed, and of a traceback the exception's own line."""
    if status is Status.OK:
        return ToolResult(status, text)
    found = _ending_traceback(text)
    if found is None:
        return ToolResult(status, text)
    start, exception = found
    return ToolResult(status, text[:start], exception=exception)


def read_fields(fields: Mapping[str, Any]) -> Status | None:
    """What a message's own fields say of the result; None if they say nothing."""
    if fields.get("error"):
        error = fields["error"]
        return ERROR_TYPES.get(str(error.get("type")), Status.ERROR) if isinstance(error, dict) else Status.ERROR
    for name in FLAG_FIELDS:
        if isinstance(fields.get(name), bool):
            return Status.ERROR if fields[name] else Status.OK
    for name in EXIT_FIELDS:
        if isinstance(fields.get(name), int) and not isinstance(fields.get(name), bool):
            return Status.OK if fields[name] == 0 else Status.ERROR
    word = fields.get("status")
    if isinstance(word, str):
        if word.lower() in BAD_WORDS:
            return Status.ERROR
        if word.lower() in GOOD_WORDS:
            return Status.OK
        if word.lower() in ("timeout", "timed_out"):
            return Status.TIMEOUT
    return None


def read_text(text: str, *, python: bool) -> Status | None:
    """What a text alone says of the result; None if it can be read both ways."""
    stripped = text.strip()
    if not stripped:
        return None
    if HARNESS_SENTENCES.match(stripped):
        return Status.TIMEOUT if TIME_SENTENCE.search(stripped.partition("\n")[0]) else Status.ERROR
    if _ending_traceback(text) is not None:
        # A tool that isn't Python may show a file or a page that ends so.
        return Status.ERROR if python else None
    if TRACEBACK.search(text):
        return None
    lines = stripped.splitlines()
    if python:
        last = LAST_LINE.match(lines[-1].strip())
        doubtful = last is not None or DOUBT.match(stripped) is not None
        return None if doubtful else Status.OK
    if stripped[0] == "{" and (status := _of_json(stripped)) is not None:
        return status
    return None if DOUBT.search(lines[0][:200]) or DOUBT.search(lines[-1][-200:]) else Status.OK


def _of_json(text: str) -> Status | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
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


def _ending_traceback(text: str) -> tuple[int, ExceptionInfo] | None:
    """Where the traceback begins that a text ends with, and its exception; None if it doesn't end with one."""
    begins = [match.start() for match in TRACEBACK.finditer(text)]
    if not begins:
        frames = list(SYNTAX_FRAME.finditer(text))  # a syntax error has no first line
        if not frames or LAST_LINE.match(text[frames[-1].end() :].strip()) is None:
            return None
        begins = [frames[-1].start()]
    start = begins[-1]
    # Chained exceptions are one ending: what stands between them says so.
    for earlier in reversed(begins[:-1]):
        between = text[earlier:start]
        if "During handling of the above" not in between and "direct cause of the following" not in between:
            break
        start = earlier
    lines = text[begins[-1] :].rstrip().splitlines()
    for index, line in enumerate(lines[1:], 1):
        if FRAME_LINE.match(line) or (head := LAST_LINE.match(line)) is None:
            continue
        # The first line behind the frames that reads like an exception's; its message may go on.
        further = lines[index + 1 :]
        message = head["message"] or ""
        if further and not _goes_on(message, further):
            return None
        return start, ExceptionInfo(head["type"], "\n".join([message, *further]))
    return None


def _goes_on(message: str, further: list[str]) -> bool:
    """Whether lines behind an exception's line can be its message: only where that stops short, or with notes."""
    return message.rstrip().endswith((":", ",", "(", "[", "{")) or all(
        line.startswith((" ", "\t", "Help:", "Hint:", "Note:")) for line in further if line.strip()
    )
