"""An exception as a bounded description: what a run says of its own end.

The node treats it as a stranger's text. It decorates a failure and decides nothing.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from types import TracebackType
from typing import Any

FILE_NAME = "main.py"
"""What user code is called in tracebacks. A cell of a session has its number in it."""
MESSAGE_CHARS = 4_096
TRACEBACK_CHARS = 16_384


def describe(error: BaseException, file_names: tuple[str, ...] = (FILE_NAME,)) -> dict[str, Any]:
    """The exception's type, message, the last line of the user's own code on the way, the traceback."""
    trace = _user_part(error.__traceback__, file_names)
    whole = traceback.TracebackException(type(error), error, trace, compact=True)
    line = None
    for frame in whole.stack:
        frame_line = frame.lineno
        if frame.filename in file_names:
            line = frame_line
    if isinstance(error, SyntaxError) and error.filename in file_names:
        line = error.lineno
    message = traceback.TracebackException(type(error), error, None)
    text = "".join(message.format_exception_only()).rstrip("\n")
    kind = whole.exc_type.__name__ if whole.exc_type is not None else "Exception"
    for each in _chain(whole):
        for frame in each.stack:
            frame.filename = shortened(frame.filename)
    return {
        "type": kind[:256],
        "message": _cut(_message_of(text, error), MESSAGE_CHARS),
        "line": line,
        "traceback": _cut("".join(whole.format()), TRACEBACK_CHARS),
    }


def encoded(description: dict[str, Any]) -> bytes:
    """A description as the node reads it."""
    return json.dumps(description).encode("utf-8", "replace")


def shortened(path: str) -> str:
    """A library's path without the folder it is installed in."""
    for folder in sys.path:
        if folder and path.startswith(folder + os.sep):
            return path[len(folder) + 1 :]
    return path


def _user_part(trace: TracebackType | None, file_names: tuple[str, ...]) -> TracebackType | None:
    """The traceback without the harness's own frames in front; all of it gone if user code never ran."""
    while trace is not None and trace.tb_frame.f_code.co_filename not in file_names:
        trace = trace.tb_next
    return trace


def _chain(error: traceback.TracebackException) -> list[traceback.TracebackException]:
    """An exception with its causes and contexts."""
    found: list[traceback.TracebackException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        found.append(each)
        waiting += [other for other in (each.__cause__, each.__context__, *(each.exceptions or ())) if other]
    return found


def _message_of(summary: str, error: BaseException) -> str:
    """What follows the type's name in an exception's last lines."""
    if isinstance(error, SyntaxError):
        return str(error.msg)
    _, separator, message = summary.partition(": ")
    return message if separator else ""


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[cut: {limit} of {len(text)} characters shown]\n{text[-half:]}"
