"""What a slot saw, as a result: the only place where a run gets its status.

The status rests on three things that user code can't write: the slot's reason, the wait status and the sizes of files.
The run's own report is read last, within bounds, and only describes a failure that is already established.

What a run left can be large, and the event loop that reads it serves everybody: it is read in steps.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from cleaner_sandbox.inside import wire
from cleaner_sandbox.protocol.results import RunException, RunResult, RunStatus, shorten

MESSAGE_CHARS = 4_096
TRACEBACK_CHARS = 8_192
STEP = 262_144
"""Bytes of output that are read before the event loop may serve others."""
OTHER_TYPE = "other"
MOST_LEFT_OUT = 1_000_000_000
"""No program shows so much; what a run says may be any number."""

LIMITS = {
    wire.CPU: (RunStatus.TIMEOUT, "The program was stopped: it ran into its limit of CPU time."),
    wire.WALL: (RunStatus.TIMEOUT, "The program was stopped: it ran into its limit of elapsed time."),
    wire.MEMORY: (RunStatus.MEMORY, "The program was stopped: it ran into its memory limit."),
    wire.OUTPUT: (RunStatus.OUTPUT_LIMIT, "The program was stopped: it printed more than its output limit."),
    wire.GONE: (RunStatus.ERROR, "The program ended the session's interpreter."),
    wire.BROKEN: (RunStatus.CRASHED, "An earlier cell broke the session's interpreter, and is undone."),
    wire.STARVED: (RunStatus.FAULT, "The machine was too busy to run the program."),
}
"""One constant sentence for each way of being stopped."""


class RunExit(NamedTuple):
    """How a run ended, as its slot tells it."""

    kind: int
    reason: int
    wait_status: int
    cpu_seconds: float
    wall_seconds: float
    waited_seconds: float
    peak_bytes: int

    @property
    def exit_code(self) -> int | None:
        """None if the process died by a signal."""
        return os.WEXITSTATUS(self.wait_status) if os.WIFEXITED(self.wait_status) else None

    @property
    def signal(self) -> int | None:
        """None if the process exited."""
        return os.WTERMSIG(self.wait_status) if os.WIFSIGNALED(self.wait_status) else None


async def result_of(
    run_exit: RunExit, files: Sequence[int], output_bytes: int, keep_chars: int, versions: Mapping[str, str]
) -> RunResult:
    """The result of a run that left these descriptors: stdout, stderr, report."""
    output, length, flooded = await _text(files[0], output_bytes, keep_chars)
    errors, errors_length, errors_flooded = await _text(files[1], output_bytes, keep_chars)
    if run_exit.reason == wire.EXITED and (flooded or errors_flooded):
        run_exit = run_exit._replace(reason=wire.OUTPUT)
    if errors_length is not None:
        errors = shorten(errors, keep_chars, errors_length)
    exception = None
    if run_exit.reason != wire.EXITED:
        status, explanation = LIMITS[run_exit.reason]
        if run_exit.reason == wire.OUTPUT:
            length = None  # how much more it would have printed depends on when it was stopped
    elif (number := run_exit.signal) is not None:
        status, explanation = RunStatus.CRASHED, f"The program's process died by {_signal_name(number)}."
    elif run_exit.exit_code == 0:
        status, explanation = RunStatus.OK, ""
    else:
        status = RunStatus.ERROR
        exception = read_report(files[2])
        explanation = "" if exception is not None else f"The program exited with code {run_exit.exit_code}."
    return RunResult(status, output, errors, exception, explanation, length, run_exit.wall_seconds, versions)


def read_report(descriptor: int) -> RunException | None:
    """What a run says of its exception, if that is of the right form; it may be anything."""
    data = os.pread(descriptor, wire.DISPLAYS_AT, 0).rstrip(b"\0")  # of a hole before displays
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    kind, message, line, trace = (found.get(name) for name in ("type", "message", "line", "traceback"))
    if not (isinstance(kind, str) and isinstance(message, str) and isinstance(trace, str)):
        return None
    if type(line) is not int or not 0 < line < 10**9:
        line = None
    return RunException(
        _clean(kind)[:256], _clean(message)[:MESSAGE_CHARS], line, shorten(_clean(trace), TRACEBACK_CHARS)
    )


async def displays_of(descriptor: int, limit: int) -> tuple[list[dict[str, str]], dict[str, int]]:
    """What a run says it showed, `limit` bytes together, and how much of each type is left out; it may be anything."""
    size = os.fstat(descriptor).st_size
    if size <= wire.DISPLAYS_AT:
        return [], {}
    types = (*wire.DISPLAY_TYPES, OTHER_TYPE)
    head = os.pread(descriptor, wire.LEFT_OUT.size, wire.DISPLAYS_AT).ljust(wire.LEFT_OUT.size, b"\0")
    left_out = dict(zip(types, (min(count, MOST_LEFT_OUT) for count in wire.LEFT_OUT.unpack(head)), strict=True))
    displays: list[dict[str, str]] = []
    at = wire.DISPLAYS_AT + wire.LEFT_OUT.size
    for _ in range(wire.MOST_DISPLAYS * len(types)):
        head = os.pread(descriptor, wire.DISPLAY_PART.size, at)
        if len(head) < wire.DISPLAY_PART.size:
            break
        is_first, index, length = wire.DISPLAY_PART.unpack(head)
        at += wire.DISPLAY_PART.size
        if length > size - at:
            break
        if is_first or not displays:
            displays.append({})
        if index >= len(wire.DISPLAY_TYPES):
            left_out[OTHER_TYPE] += 1
        elif length > limit or len(displays) > wire.MOST_DISPLAYS:
            left_out[types[index]] += 1
        else:
            displays[-1][types[index]] = await _decoded(descriptor, at, at + length)
            limit -= length
        at += length
    return [each for each in displays if each], {name: count for name, count in left_out.items() if count}


async def _text(descriptor: int, limit: int, keep: int) -> tuple[str, int | None, bool]:
    """A stream's text, its whole length if that is more than is kept, and whether it is above its limit."""
    size = os.fstat(descriptor).st_size
    if not size:
        return "", None, False
    end = min(size, limit)
    if end <= STEP:
        text = os.pread(descriptor, end, 0).decode("utf-8", "replace")
        return text[:keep], (len(text) if len(text) > keep else None), size > limit
    texts: list[str] = []
    length = 0
    async for text in _in_steps(descriptor, 0, end):
        texts.append(text[: max(0, keep - length)])
        length += len(text)
    return "".join(texts), (length if length > keep else None), size > limit


async def _decoded(descriptor: int, start: int, end: int) -> str:
    """A part of a file as text."""
    return "".join([text async for text in _in_steps(descriptor, start, end)])


async def _in_steps(descriptor: int, start: int, end: int) -> AsyncIterator[str]:
    """The text of a part of a file, so much of it at a time that the event loop can serve others in between."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for begin in range(start, end, STEP):
        stop = min(begin + STEP, end)
        yield decoder.decode(os.pread(descriptor, stop - begin, begin), final=stop == end)
        await asyncio.sleep(0)


def _clean(text: str) -> str:
    """Without lone surrogates, which no encoder takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
