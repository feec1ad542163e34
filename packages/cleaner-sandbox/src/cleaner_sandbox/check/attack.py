"""What an attack is: a hostile program as data, with the verdict that is right for it.

An attack proves its success by itself. It calls `win()`, which prints the suite's marker, when it got what it must not
get; or it prints a planted secret (`honeypots`), reaches a planted listener, leaves a trace on the host that bears its
nonce, or spoils the run after it. Each is scaled so that success is seen and harmless: a few dozen processes, some
megabytes, a planted file; dangerous calls are made with arguments that the kernel declines after it has checked the
permission; nothing is sent beyond loopback.

Programs hold placeholders such as `@PORT@`; `Attack.program` is completed by `fill`. No secret is ever among them, so a
program can't print one that it didn't find.

Limits: numbers of system calls are those of x86-64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cleaner_sandbox.protocol import Language, Limits
from cleaner_sandbox.protocol.results import RunStatus


class AttackClass(StrEnum):
    """Says what an attack is after."""

    RESOURCES = "resources"
    LIFECYCLE = "lifecycle"
    ESCAPE = "escape"
    NETWORK = "network"
    SECRETS = "secrets"
    ACROSS_RUNS = "across runs"
    PROTOCOL = "protocol"
    INPUT_OUTPUT = "input/output"
    DODGE = "dodge"
    """Attacks that try to make a crash or failure look like an infrastructure fault, or like success."""


SMALL = Limits(
    cpu_seconds=1.0,
    wall_seconds=2.0,
    memory_mb=96,
    processes=16,
    disk_mb=8,
    files=64,
    open_files=64,
    output_bytes=65_536,
)
"""Small, so that an attack that gets past them is still harmless."""

OK = frozenset({RunStatus.OK})
ERROR = frozenset({RunStatus.ERROR})
TIMEOUT = frozenset({RunStatus.TIMEOUT})
CRASHED = frozenset({RunStatus.CRASHED})
OK_OR_ERROR = OK | ERROR
OUT_OF_MEMORY = frozenset({RunStatus.MEMORY, RunStatus.ERROR})
"""Stopped by the tree's bound, or by a `MemoryError` that nobody caught."""
ANY_FAILURE = frozenset(
    {RunStatus.ERROR, RunStatus.TIMEOUT, RunStatus.MEMORY, RunStatus.OUTPUT_LIMIT, RunStatus.CRASHED}
)
ANY_BUT_FAULT = OK | ANY_FAILURE

PRELUDE = """\
import os, sys, time
def win(what=""):
    os.write(1, ("@MARK_A@" + "@MARK_B@ %s\\n" % (what,)).encode())
def outside():
    # Asks only: whether signals would reach a process outside of the run. Then none is sent in earnest.
    try:
        os.kill(@VICTIM@, 0)
        return True
    except OSError:
        return False
def seen():
    # The processes that /proc shows, without this one.
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
    except OSError:
        return set()
"""

SHELL_PRELUDE = 'win() { echo "@MARK_A@""@MARK_B@ $*"; }\n'

SYSCALL = """\
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    ctypes.set_errno(0)
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *plain)
    return result, ctypes.get_errno()
def refused(error):
    return error in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
"""
"""For attacks that talk to the kernel past Python."""


@dataclass(frozen=True, slots=True)
class Attack:
    """Describes one hostile program, how to run it, and which verdict is right."""

    name: str
    kind: AttackClass
    program: str
    right: frozenset[RunStatus] = OK
    """The statuses that are right. Most programs catch the refusal, and so end with `ok`."""
    limits: Limits = SMALL
    wall: float = 6.0
    """Seconds within which the answer has to be there, on a machine with a CPU for everybody."""
    raw: bool = False
    """Run the program as it is, without the prelude that defines `win`."""
    before: str | None = None
    """What another caller runs just before, in the same slot."""
    beside: str | None = None
    """What another caller runs at the same time."""
    after: str | None = None
    """What another caller runs just after, in the same slot; it has `win` too."""
    cells: tuple[str, ...] | None = None
    """If not None, the program is a cell of a session in which these have run; `before` is another caller's session."""
    stdin: str | bytes | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    fetch: tuple[str, ...] = ()
    seed: int = 0
    environment: str | None = None
    echo: bool = False
    cancel_after: float | None = None
    """Seconds after which the caller closes the connection; there is no status then."""
    output: str | None = None
    """What the run has to print, exactly, where that is the point."""
    language: Language = Language.PYTHON
    """Of the program and the session's cells, another caller's session included; other runs beside it are Python."""

    @property
    def prelude(self) -> str:
        """Return what defines `win` in the attack's language."""
        return SHELL_PRELUDE if self.language is Language.BASH else PRELUDE


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values in the place of their `@NAME@`."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
