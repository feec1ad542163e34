"""Finds what a harness says itself about a result: exit codes, flags and error objects, in fields or around the text.

- **Fields** of the message that holds the result, and of the objects in it (`metadata`, `extra`, …).
- **Envelopes**: the whole text is a JSON object of exit code and output, as Codex writes it, or of a flag and content,
  as MCP servers give it.
- **Marks**: a line with the exit code before or after the output, as Codex, Claude Code, OpenHands, mini-swe-agent and
  others write it.

The tables are data; a new harness is a new line in one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cleaner_rl.tools import CallKind, Status, ToolCall, read_json

PROGRAMS = (CallKind.PYTHON, CallKind.SHELL)
"""Kinds of calls that run programs, whose errors are part of what they print."""
EXIT_FIELDS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "exitcode")
FLAGS: Mapping[str, bool] = {"is_error": True, "isError": True, "success": False, "ok": False}
"""Fields that are true or false, with the value that tells of a failure."""
STOPPED = {
    "timeout": Status.TIMEOUT,
    "timed_out": Status.TIMEOUT,
    "timedOut": Status.TIMEOUT,
    "interrupted": Status.REFUSED,
}
"""Fields that tell of a stop where they are true, and nothing where they are false."""
STATUS_WORDS = {
    "error": Status.ERROR,
    "failed": Status.ERROR,
    "failure": Status.ERROR,
    "exception": Status.ERROR,
    "timeout": Status.TIMEOUT,
    "timed_out": Status.TIMEOUT,
    "denied": Status.REFUSED,
    "rejected": Status.REFUSED,
    "declined": Status.REFUSED,
    "success": Status.OK,
    "ok": Status.OK,
}
"""Words of a field `status`. "completed" is none of them: a call that failed is completed too."""
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
INSIDE = ("metadata", "extra", "extras", "output", "result", "artifact", "toolUseResult", "additional_kwargs")
"""Fields whose objects are looked into as well."""
DEEPEST = 3
EXIT_STATUSES = {0: Status.OK, 124: Status.TIMEOUT, 134: Status.CRASHED, 137: Status.CRASHED, 139: Status.CRASHED}
"""What an exit code says; every other one is an error. 124 is of `timeout`, those above 128 are of signals."""
NOT_ENDED = -1
"""What OpenHands has for the exit code of a command that still runs."""
HTTP_CODES = ("status", "status_code", "statusCode", "code", "cod")
"""Fields that may hold a code of HTTP; the last one is OpenWeather's."""
REFUSALS = (401, 403, 407, 429)
"""Codes of HTTP for what somebody doesn't allow, or not so often."""
SIGNALLING = frozenset({*EXIT_FIELDS, *FLAGS, *STOPPED, *INSIDE, "error", "status"})
OUTPUTS = ("output", "stdout", "stderr", "content", "text")
CARRIERS = ("content", "result", "output", "response", "data")
"""Fields whose object is all that a call gave, where the others only say which call it was."""
CALL_NAMES = frozenset({"name", "tool", "tool_name", "call_id", "tool_call_id", "role", "jsonrpc"})
"""Fields that say which call a result is of."""
JUPYTER_ERROR = frozenset({"ename", "evalue"})
"""What Jupyter has in the message of a cell that raised."""
ENVELOPE = frozenset(
    {
        *(*EXIT_FIELDS, *FLAGS, *STOPPED, *INSIDE, *OUTPUTS, *HTTP_CODES, "error"),
        *("errors", "message", "detail", "details", "reason", "type", "data", "hint", "request_id", "requestId"),
        *(
            "documentation_url",
            "duration",
            "duration_ms",
            "duration_seconds",
            "wall_time",
            "structuredContent",
            "_meta",
        ),
        *("tool", "stack", "trace", "signal"),
    }
)
"""Fields of objects that only carry a result. An object with others may be a thing with a state of its own, such as a
job that failed, of which a call told without a failure."""
TELLING = frozenset({"error", "errors", "message", "status", "code", "detail", "details", "reason", "type", *STOPPED})
"""Fields that may tell of a failure in words of their own. An object without them is what a call gave."""

RESPONSE = ("<tool_response>", "</tool_response>")
"""Tags that templates put around a result, in some logs also in a message of the tool itself."""
HEADS = (
    r"Exit code: (?P<code>-?\d+)\nWall time: [\d.]+ (?:seconds|s)\n(?:Total output lines: \d+\n)?Output:\n",  # Codex
    r"(?:Chunk ID: \w+\n)?Wall time: [\d.]+ seconds\nProcess exited with code (?P<code>-?\d+)\n"
    r"(?:[^\n]*\n){0,2}?Output:\n",
    r"<returncode>(?P<code>-?\d+)</returncode>\s*(?:<output>\n?)?",  # mini-swe-agent
    r"<exit_code>(?P<code>-?\d+)</exit_code>\s*(?:<output>\n?)?",
    r"Command executed in terminal[^\n]*? Exit code: (?P<code>-?\d+)\s*\n(?:Output:\n)?",  # Cline, Roo Code
)
"""Marks before an output, of which no program's own output begins."""
PROGRAM_HEADS = (
    r"(?:Error: )?(?:Exit|Return)[ -]?(?:code|status):? (?P<code>-?\d+)[.:]?[ \t]*"  # Claude Code
    r"(?:\n+(?:Command )?Output:|\n|\Z)\s*",
    r"(?:Error: )?(?:Command|Process|Script) (?:failed|exited|finished|completed)[^\n]{0,40}? (?:code|status):? "
    r"(?P<code>-?\d+)[.:]?\s*",
)
"""Marks before the output of a program; a file or a page may begin so."""
TAILS = (
    r"\n?\[The command completed with exit code (?P<code>-?\d+)\.[^\]\n]*\](?:\n\[[^\n]*\])*\s*\Z",  # OpenHands
    r"\n?\[Command finished with exit code (?P<code>-?\d+)\]\s*\Z",
    r"\n?<(?:returncode|exit_code)>(?P<code>-?\d+)</\w+>\s*\Z",
)
PROGRAM_TAILS = (
    r"\n?[\[(](?:process |command )?(?:exited with |finished with )?(?:exit |return )?(?:code|status)[:=]? ?"
    r"(?P<code>-?\d+)[\])]\s*\Z",
    r"(?:\A|\n)(?:Process |Command |Script )?(?:exited |finished |completed |failed )?(?:with )?"
    r"(?:exit|return)[ -]?(?:code|status):? (?P<code>-?\d+)\.?\s*\Z",
    r"\nExit Code: (?P<code>\d+)(?:\n(?:Signal|Background PIDs|Process Group PGID|Error): [^\n]*)*\s*\Z",  # Gemini CLI
)
HEAD, TAIL = 300, 1000
"""Characters at a text's beginning and end that its marks are in."""


def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


_HEADS, _PROGRAM_HEADS = _compiled(HEADS), _compiled(PROGRAM_HEADS)
_TAILS, _PROGRAM_TAILS = _compiled(TAILS), _compiled(PROGRAM_TAILS)
_NOTES = re.compile(
    r"(?:(?:\n|\A)(?:\[(?:Jupyter|Current working|Python interpreter)[^\n]*\]"  # OpenHands
    r"|\((?:Open file|Current directory|Interactive session)[^\n]*\)|bash-\$"  # SWE-agent
    r"|(?:\([\w.-]+\) ?)?[\w.-]+@[\w.-]+:[^\s#$]*[#$] ?"  # the prompt of a terminal
    r"|You have \d+ (?:step|turn)s? left[^\n]*|You should take the last step to [^\n]*))+\Z"  # mint
)
"""What harnesses add about the place that a call ran in, and about the turns that are left."""
_FRONT = re.compile(
    r"(?:OBSERVATION|Observation):[ \t]*\n?|EXECUTION RESULT of \[[^\]\n]*\]:[ \t]*\n?"
    r"|New Terminal Output:\n"
)
"""What a harness writes before a result: in a user's message, or as a terminal shows it."""
_CLOSED = re.compile(r"\n?</output>\s*\Z")
MARKED = ("exit", "return", "code", "status")
"""Words of which each mark has one."""


class Signals(NamedTuple):
    """What a harness says about a result."""

    exit_code: int | None = None
    status: Status | None = None
    """What flags, words and error objects say."""

    @property
    def silent(self) -> bool:
        """Return whether it says nothing."""
        return self.exit_code is None and self.status is None


NOTHING = Signals()


class Opened(NamedTuple):
    """A result without what the harness wrote around it."""

    text: str
    signals: Signals = NOTHING
    is_data: bool = False
    """Whether it is a JSON object that tells of a failure and may be what the call was to give."""

    @property
    def tells_of_failure(self) -> bool:
        """Return whether an object tells of a failure, or of an exit code."""
        return self.is_data or self.signals.exit_code is not None or self.signals.status not in (None, Status.OK)


def field_signals(fields: Mapping[str, Any]) -> Signals:
    """Return what a message's own fields say."""
    if fields.keys().isdisjoint(SIGNALLING):
        return NOTHING
    code, status = None, None
    for each in _objects(fields, DEEPEST):
        code = _exit_code(each) if code is None else code
        status = _status(each) if status is None else status
    return Signals(code, status)


def open_text(text: str, call: ToolCall) -> Opened:
    """Return a text without the envelope or marks around it, and what they say."""
    stripped = text.strip()
    if stripped.startswith(RESPONSE[0]) and stripped.endswith(RESPONSE[1]):
        stripped = text = stripped[len(RESPONSE[0]) : -len(RESPONSE[1])].strip()
    if front := _FRONT.match(stripped):
        stripped = text = stripped[front.end() :].strip()
    if found := _NOTES.search(stripped, max(0, len(stripped) - TAIL)):
        stripped = text = stripped[: found.start()].rstrip()
    if stripped[:1] == "{":
        return _open_envelope(text, stripped, call)
    if stripped[:1] == "[" and call.kind not in PROGRAMS and _is_list(stripped):
        return Opened(text, Signals(status=Status.OK))
    ends = (stripped[:HEAD] + stripped[-TAIL:]).lower()
    if not any(word in ends for word in MARKED):
        return Opened(text)  # nearly all texts
    # A command that prints `$?` itself writes what looks like such a mark.
    program = call.kind in PROGRAMS and "$?" not in call.code
    for pattern in (*_HEADS, *(_PROGRAM_HEADS if program else ())):
        if found := pattern.match(stripped):
            return Opened(_CLOSED.sub("", stripped[found.end() :]), Signals(int(found["code"])))
    tail = max(0, len(stripped) - TAIL)
    for pattern in (*_TAILS, *(_PROGRAM_TAILS if program else ())):
        if found := pattern.search(stripped, tail):
            return Opened(stripped[: found.start()], Signals(int(found["code"])))
    return Opened(text)


def _open_envelope(text: str, stripped: str, call: ToolCall) -> Opened:
    value = _object(stripped)
    if value is None:
        return Opened(text)
    carried = _carried(value)
    if isinstance(carried, str) and value.get("name") == call.name:
        return open_text(carried, call)
    if isinstance(carried, dict) and (inner := _open_object(text, carried, call)).tells_of_failure:
        # Where nothing says that it is the result of a call, it may be the state of a thing.
        sure = inner.signals.exit_code is not None or "content" in value or not CALL_NAMES.isdisjoint(value)
        return inner if sure else Opened(text, is_data=True)
    return _open_object(text, value, call)


def _object(text: str) -> dict[str, Any] | None:
    """Return an object that a text is, as JSON or as Python shows it; None if it is none."""
    try:
        value = ast.literal_eval(text) if text[:2] in ("{'", "{}") else read_json(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, dict) and all(isinstance(name, str) for name in value) else None


def _open_object(text: str, value: Mapping[str, Any], call: ToolCall) -> Opened:
    if call.kind is CallKind.PYTHON and value.keys() >= JUPYTER_ERROR:
        return Opened(f"{value['ename']}: {value['evalue']}", Signals(status=Status.ERROR))
    holds_output = any(name in value for name in OUTPUTS)
    found = field_signals(value)
    if found.exit_code is not None and holds_output:
        return Opened(_output(value), found)
    status = _status(value) or _http_status(value)
    program = call.kind in PROGRAMS
    if status is None and ("error" in value or not (program or value.keys() & TELLING)):
        status = Status.OK  # `"error": null` beside a result is how many tools say that all is well
    inner = _output(value) if holds_output else text
    if status in (None, Status.OK):
        return Opened(inner if status and "content" in value else text, Signals(status=status))
    # A field that holds nothing is not a thing's own: `{"rows": null, "error": "no such table"}`.
    own = {name for name, held in value.items() if held} - ({"jsonrpc", "id"} if "jsonrpc" in value else set())
    # An object of output and error alone is a harness's, unless the program itself speaks of such a thing.
    harness = holds_output and value.keys() <= {*OUTPUTS, "error"} and "error" not in call.code
    if (program and not harness) or not own <= ENVELOPE:
        return Opened(inner, is_data=True)
    return Opened(inner, Signals(status=status))


def _carried(value: Mapping[str, Any]) -> object:
    """Return what an object holds beside the names of the call that it is the result of; None if it is no such one."""
    names = value.keys() - CALL_NAMES - {"id"}
    return value[names.pop()] if len(names) == 1 and names <= set(CARRIERS) else None


def _is_list(text: str) -> bool:
    try:
        return isinstance(read_json(text), list)
    except ValueError:
        return False


def _objects(fields: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield an object, and those in it."""
    yield fields
    if depth > 1:
        for name in INSIDE:
            if isinstance(fields.get(name), dict):
                yield from _objects(fields[name], depth - 1)


def _exit_code(fields: Mapping[str, Any]) -> int | None:
    codes = (fields.get(name) for name in EXIT_FIELDS)
    return next((code for code in codes if isinstance(code, int) and not isinstance(code, bool)), None)


def _status(fields: Mapping[str, Any]) -> Status | None:
    if fields.get("error"):
        error = fields["error"]
        return ERROR_TYPES.get(str(error.get("type")), Status.ERROR) if isinstance(error, dict) else Status.ERROR
    for name, status in STOPPED.items():
        if fields.get(name) is True:
            return status
    for name, bad in FLAGS.items():
        if isinstance(fields.get(name), bool):
            return Status.ERROR if fields[name] is bad else Status.OK
    word = fields.get("status")
    return STATUS_WORDS.get(word.lower()) if isinstance(word, str) else None


def _http_status(value: Mapping[str, Any]) -> Status | None:
    """Return what an object says that has a code of HTTP and a message or a body."""
    codes = (str(value.get(name)) for name in HTTP_CODES)
    code = next((int(each) for each in codes if re.fullmatch(r"[245]\d\d", each)), None)
    if code is None or not ("body" in value or (code >= 400 and "message" in value)):
        return None
    return status_of_code(code)


def status_of_code(code: int) -> Status:
    """Return what a code of HTTP says about a call."""
    if code < 400:
        return Status.OK
    return Status.REFUSED if code in REFUSALS else Status.FAULT if code >= 500 else Status.ERROR


def _output(value: Mapping[str, Any]) -> str:
    """Return the text that an envelope holds."""
    texts = []
    for name in OUTPUTS:
        held = value.get(name)
        parts = held if isinstance(held, list) else [held]
        texts += [str(part["text"]) if isinstance(part, dict) and "text" in part else part for part in parts]
    return "\n".join(text.rstrip("\n") for text in texts if isinstance(text, str) and text)
