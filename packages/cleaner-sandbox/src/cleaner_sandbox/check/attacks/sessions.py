"""Attacks in sessions, where user code shares its interpreter with what runs its cells.

Such code can say anything about itself, and can reach the earlier states of its own session; it must not get at another
session, must not run on when its cell is over, and whatever it breaks is its own failure, not a lost session.
"""

from __future__ import annotations

from dataclasses import replace

from cleaner_sandbox.check.attack import (
    ANY_BUT_FAULT,
    ANY_FAILURE,
    CRASHED,
    OK_OR_ERROR,
    SMALL,
    TIMEOUT,
    Attack,
    AttackClass,
)
from cleaner_sandbox.check.attacks.across_runs import MUCH_INPUT
from cleaner_sandbox.check.attacks.escape_processes import FIND
from cleaner_sandbox.check.attacks.secrets import OBJECTS, OTHERS_PROGRAM, SCAN_FILES, SCAN_PROCESSES

_FORGE = """
for number in range(3, 16):
    try:
        os.set_blocking(number, False)
        os.write(number, b"\\0")
    except OSError:
        pass
"""

_SIGNAL_OTHERS = """
for pid in range(1, 200):
    if pid != os.getpid() and not outside():
        try:
            os.kill(pid, {signal})
        except OSError:
            pass
raise ValueError("mine")
"""

_ALWAYS_ANOTHER = """
# Each process forks its heir and goes: they are never more than these, and never those that somebody has read of.
def fork():
    try:
        return os.fork()
    except OSError:
        return None
end = time.monotonic() + 20
for _ in range(12):
    if fork() == 0:
        while time.monotonic() < end:
            if fork():
                os._exit(0)
        os._exit(0)
while time.monotonic() < end:
    pass
"""

_HOARD_WHEN_TOLD = """
# The next cell is never begun: what is told to begin it fills the memory instead, in many processes, without a word.
import marshal
def hoard(told):
    for _ in range(5):
        if os.fork() == 0:
            break
    area = bytearray(b"x" * (40 << 20))
    time.sleep(60)
marshal.loads = hoard
"""

ATTACKS: tuple[Attack, ...] = (
    Attack("session_objects", AttackClass.ACROSS_RUNS, FIND + OBJECTS, before=OTHERS_PROGRAM, cells=()),
    Attack("session_files", AttackClass.ACROSS_RUNS, FIND + SCAN_FILES, before=OTHERS_PROGRAM, cells=()),
    Attack("session_processes", AttackClass.ACROSS_RUNS, FIND + SCAN_PROCESSES, before=OTHERS_PROGRAM, cells=()),
    Attack(
        "session_half_read_request",
        AttackClass.ACROSS_RUNS,
        "print(1)",
        ANY_BUT_FAULT,
        replace(SMALL, cpu_seconds=0.001),
        after="print(2)",
        cells=("x = 1",),
        stdin=MUCH_INPUT,
    ),
    Attack("session_forged_end", AttackClass.PROTOCOL, "print(1)", ANY_BUT_FAULT, cells=(_FORGE + "while True: pass",)),
    Attack("session_forged_noise", AttackClass.PROTOCOL, "print(1)", ANY_BUT_FAULT, cells=(_FORGE * 40,)),
    Attack("session_fork_bomb", AttackClass.RESOURCES, _ALWAYS_ANOTHER, TIMEOUT, cells=("x = 1",)),
    Attack("session_silent_hoard", AttackClass.RESOURCES, "print(1)", CRASHED, cells=(_HOARD_WHEN_TOLD,)),
    Attack(
        "session_kill_checkpoint", AttackClass.DODGE, _SIGNAL_OTHERS.format(signal=9), ANY_FAILURE, cells=("x = 1",)
    ),
    Attack(
        "session_stop_checkpoint", AttackClass.DODGE, _SIGNAL_OTHERS.format(signal=19), ANY_FAILURE, cells=("x = 1",)
    ),
    Attack(
        "session_broken_harness",
        AttackClass.DODGE,
        "print(1)",
        ANY_BUT_FAULT,
        cells=("import marshal, socket\nmarshal.loads = os.fork = os.read = socket.socket = None",),
    ),
    Attack("session_exit", AttackClass.DODGE, "os._exit(0)", OK_OR_ERROR, cells=("x = 1",)),
    Attack("session_die", AttackClass.DODGE, "os.kill(os.getpid(), 9)", ANY_FAILURE, cells=("x = 1",)),
    Attack("session_closed_channel", AttackClass.DODGE, "print(1)", ANY_BUT_FAULT, cells=("os.closerange(3, 64)",)),
)
