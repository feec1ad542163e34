"""The report of a run: its exception as a bounded description, and what it showed.

The node treats it as a stranger's text. It decorates a result and decides nothing.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from types import TracebackType
from typing import Any

from cleaner_sandbox.inside import wire

REPORT_FD = 3
FILE_NAME = "main.py"
"""What user code is called in tracebacks. A cell of a session has its number in it."""
MESSAGE_CHARS = 4_096
TRACEBACK_CHARS = 16_384
HARNESS = os.path.dirname(__file__)


class OwnReport:
    """The file that the node reads, which the program may close, and open another one under the same number."""

    def __init__(self) -> None:
        self._noted = os.stat_result([0] * 10)
        self.display_bytes = 0
        """That displays may take there; 0 if nobody wants any. It is here as every run writes to this page anyway."""

    def note(self) -> None:
        """This is it."""
        self._noted = os.fstat(REPORT_FD)

    def write(self, description: dict[str, Any]) -> None:
        """Describe an exception there. Raises `OSError` if it is gone, or the description is too long."""
        data = encoded(description)
        if len(data) > wire.DISPLAYS_AT:
            raise OSError("the description would not fit")
        self.put(data, 0)

    def put(self, data: bytes, position: int) -> None:
        """Write at a place of its own. Raises `OSError` if the file is gone."""
        self._require()
        os.pwrite(REPORT_FD, data, position)

    def add(self, data: bytes) -> None:
        """Write after all that was added, by this process or its forks. Raises `OSError` if the file is gone."""
        self._require()
        if not os.lseek(REPORT_FD, 0, os.SEEK_CUR):
            os.lseek(REPORT_FD, wire.DISPLAYS_AT + wire.LEFT_OUT.size, os.SEEK_SET)
        os.write(REPORT_FD, data)

    def _require(self) -> None:
        if not os.path.samestat(self._noted, os.fstat(REPORT_FD)):
            raise OSError("another file has the report's number")


own_report = OwnReport()


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
        each.stack[:] = [frame for frame in each.stack if not frame.filename.startswith(HARNESS)]
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
