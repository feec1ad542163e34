"""The messages between node, zygote, slot and run.

Node and zygote run the same interpreter, so what the node sends is `marshal`led. What comes back from a slot is a fixed
struct; what a run says of itself is bounded JSON, read by the node as a stranger's text.
"""

from __future__ import annotations

import marshal
import os
import struct
from typing import Any

START = struct.Struct("=BddQQBQ")
"""Node to slot: kind, CPU seconds, wall seconds, memory bytes, output bytes, what to hand over (bits, see `FOLDER`),
most threads of a run that may have no processes."""
DISK = struct.Struct("=BQQ")
"""Node to slot, before a start and answered by its first byte: kind, bytes and inodes of the run's folder."""
DONE = struct.Struct("=BBidddQ")
"""Slot to node: kind, reason, wait status, CPU seconds, wall seconds, seconds spent waiting for a CPU, peak RSS."""

CELL = struct.Struct("=BBddQQB")
"""Node to session: kind, when to commit, CPU seconds, wall seconds, memory and output bytes, what to hand over. The
cell itself follows on the other socket."""
ROLLBACK = struct.Struct("=BI")
"""Node to session: kind, number of a checkpoint."""
SHED = struct.Struct("=BQ")
"""Node to session: kind, bytes above which the session is to drop the oldest of its kept states."""
STATUS = struct.Struct("=BIBQH")
"""Session to node, after each of these and a start: kind, checkpoint that it stands at, whether the cell was committed,
bytes held, what keeps the state from being forked (bits of `OBSTACLES`)."""
HELD = struct.Struct("=BQ")
"""Session to node, between cells, if what a state left running has taken much: kind, bytes held."""
OBSTACLES = (
    "thread",
    "process",
    "socket",
    "pipe",
    "shared mapping",
    "deleted file",
    "descriptor",
    "lock",
    "long path",
    "signal",
    "timer",
    "unknown",
)

DISPLAY_TYPES = (
    "text/plain",
    "text/html",
    "text/markdown",
    "text/latex",
    "application/json",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
)
"""What a run may show, all of it as text."""
BINARY_TYPES = ("image/png", "image/jpeg")
"""Those that are base64."""
MOST_DISPLAYS = 128
"""Of one run or cell."""
DISPLAYS_AT = 65_536
"""Where in a report's file they begin, with a count of what was left out. An exception is described before that."""
LEFT_OUT = struct.Struct(f"={len(DISPLAY_TYPES) + 1}Q")
"""How many of each type were left out, and of any other."""
DISPLAY_PART = struct.Struct("=?BQ")
"""Before each form of a display: whether it is the first one, the type, and the number of bytes, which follow."""

ON_SUCCESS, ALWAYS, NEVER = range(3)
KIND_START, KIND_HELLO, KIND_DISK, KIND_DONE, KIND_CELL, KIND_ROLLBACK, KIND_STATUS, KIND_SHED = range(1, 9)
KIND_HELD, KIND_GIVEN_UP, KIND_OUTPUT = 9, 10, 11
"""The second is a session's last word, and has no more: what its program left can't be ended in time. The third brings
the files that a run prints into, before it begins."""

FOLDER, OUTPUT_FILES = 1, 2
"""What to hand over beside the outputs at the end: the folder at the end, and the outputs at the beginning, too."""

# Why a slot ended a run.
EXITED, CPU, WALL, MEMORY, OUTPUT, STARVED, GONE, BROKEN = range(8)

STARVED_FACTOR, STARVED_SECONDS = 20, 10.0
"""A run whose wall cap, waiting not counted, isn't reached in this many times it, and in so many seconds, got too
little CPU to be judged. In less time a program's own short processes could keep it waiting, and not be seen."""
LATE_SECONDS = 30.0
"""Within which a supervisor answers after that, or it is taken for dead."""


def starved_after(wall_limit: float) -> float:
    """Seconds after which a run that has kept waiting is given up."""
    return max(wall_limit * STARVED_FACTOR, STARVED_SECONDS)


def patience(wall_limit: float) -> float:
    """Seconds after which a supervisor must have answered a run."""
    return wall_limit * (STARVED_FACTOR + 1) + STARVED_SECONDS + LATE_SECONDS


CHUNK = 65_536
FIRST_READ = 4_096
"""Enough for most requests. Freeing a larger buffer would make the C library tidy its whole heap, in every run."""
LENGTH = struct.Struct("=Q")


def pack(message: Any) -> bytes:
    """A trusted message with its length in front."""
    body = marshal.dumps(message)
    return LENGTH.pack(len(body)) + body


def unpack(descriptor: int) -> Any:
    """Read one trusted message; None if the other side is gone."""
    data = os.read(descriptor, FIRST_READ)
    if not data:
        return None
    (size,) = LENGTH.unpack_from(data)
    return body(descriptor, size, data[LENGTH.size :])


def body(descriptor: int, size: int, begun: bytes = b"") -> Any:
    """Read the rest of a message of which the length, and perhaps the beginning, has been read."""
    parts, missing = [begun], size - len(begun)
    if missing < 0:
        raise ValueError("more was sent than one message")
    while missing:
        data = os.read(descriptor, min(missing, CHUNK))
        if not data:
            return None
        parts.append(data)
        missing -= len(data)
    return marshal.loads(b"".join(parts))
