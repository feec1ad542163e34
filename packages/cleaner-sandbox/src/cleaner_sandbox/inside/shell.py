"""Bash in the place of the interpreter.

A run becomes bash: its process, shut in already, executes it. A session's state starts bash for each cell and keeps, as
text, what the shell is when the cell ends (the snapshot); the next bash begins with that. So a state that is forked,
kept and gone back to is a shell's as much as an interpreter's.

The snapshot is written by the cell's own shell and read by the next one. It decides nothing.

Limits: what the shell can't say of itself is not kept: traps, jobs, descriptors, limits (docs/sandbox.md has the list).
A cell that leaves no snapshot, because another program took the shell's place, leaves the one before.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import NoReturn

from cleaner_sandbox.inside import wire

BASH = "/bin/bash"
FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
KEPT_FD = 3
MOST_SNAPSHOT = 1 << 20
TOO_LARGE = b"bash: the session's variables and functions are larger than 1 MB\n"
PIECE = 100_000
"""Bytes of an argument; the kernel takes no more than 128 KB."""

# Each is one line, so that lines are counted from the program's own first one.
RUN = '__cell=$1 RANDOM=$2; set --; eval "$__cell"'
CELL = (
    "__cell=$1; shift; IFS=; "
    '{ eval "$*"; } 2>/dev/null; '
    """trap '{ __keep "$@" >&3; } 2>/dev/null' EXIT; """
    # Without the pipe of the snapshot, which isn't the cell's. If it exits, the trap has it again; if it has set a trap
    # of its own and doesn't, the last command.
    '{ eval "$__cell"; } 3>&-; '
    '{ __keep "$@" >&3; } 2>/dev/null'
)
# What is special by itself (most of it can't be set), or not the program's own.
SKIPPED = (
    "_|__cell|__keep*|BASHOPTS|BASHPID|BASH_ALIASES|BASH_ARGC|BASH_ARGV|BASH_ARGV0|BASH_CMDS|BASH_COMMAND|"
    "BASH_EXECUTION_STRING|BASH_LINENO|BASH_MONOSECONDS|BASH_SOURCE|BASH_SUBSHELL|BASH_TRAPSIG|BASH_VERSINFO|"
    "BASH_VERSION|BASH_XTRACEFD|COMP_CWORD|COMP_KEY|COMP_LINE|COMP_POINT|COMP_TYPE|COMP_WORDBREAKS|COMP_WORDS|DIRSTACK|"
    "EPOCHREALTIME|EPOCHSECONDS|EUID|FUNCNAME|GROUPS|HISTCMD|LINENO|PIPESTATUS|PPID|RANDOM|SECONDS|SHELLOPTS|SRANDOM|UID"
)
SET_AT_START = "PATH TERM SHELL PS4 HOSTNAME HOSTTYPE MACHTYPE OSTYPE IFS OPTERR OPTIND SHLVL OLDPWD PWD BASH_COMPAT"
"""Variables that a new shell has, or that restoring its options gives it."""
OPTIONS = (
    "allexport braceexpand errtrace functrace hashall keyword noclobber noglob notify nounset physical pipefail posix "
    "errexit"
)
"""Not `xtrace`, `verbose` and `noexec`: they would show, or stop, what goes on between two cells."""
# In a list that ends with `||`, no command that fails ends the shell.
KEEP = f"""\
__keep() {{
local __keep_status=$? __keep_name __keep_kind
[[ -v __kept ]] && return $__keep_status
__kept=1
{{
builtin shopt -p
builtin compgen -v | while IFS= builtin read -r __keep_name; do
case $__keep_name in {SKIPPED}|__kept) ;; *) builtin declare -p "$__keep_name";; esac
done
for __keep_name in {SET_AT_START}; do
[[ -v $__keep_name ]] || builtin echo "unset -v $__keep_name"
done
(
builtin unset -f __keep
builtin declare -f
builtin declare -F | while IFS=' ' builtin read -r _ __keep_kind __keep_name; do
[[ $__keep_kind == -f ]] || builtin echo "declare $__keep_kind $__keep_name"
done
)
builtin umask -p
builtin echo "RANDOM=$RANDOM"
for __keep_name in {OPTIONS}; do
[[ -o $__keep_name ]] && builtin echo "set -o $__keep_name" || builtin echo "set +o $__keep_name"
done
builtin printf 'set --'
(($#)) && builtin printf ' %q' "$@"
builtin echo
builtin alias -p
builtin printf '\\0%s\\0' "$PWD"
}} || :
return $__keep_status
}}
"""


def environment() -> dict[str, str]:
    """What a shell begins with: the run's environment, with the interpreter and the system's programs in its path."""
    folders = dict.fromkeys((os.path.dirname(sys.executable), *FOLDERS))
    return {**os.environ, "PATH": ":".join(folders), "SHELL": BASH}


def ignored() -> tuple[int, ...]:
    """The signals that Python ignores, and other programs don't."""
    return signal.SIGPIPE, signal.SIGXFSZ


def become(code: str, seed: int) -> NoReturn:
    """Run a program as bash, in this very process."""
    for number in ignored():
        signal.signal(number, signal.SIG_DFL)
    os.execve(BASH, ["bash", "-c", RUN, "bash", code, str(seed)], environment())


class Shell:
    """The shell of a session's state: what the next bash begins with."""

    def __init__(self, seed: int) -> None:
        self._snapshot = f"RANDOM={seed}\nIFS=$' \\t\\n'\nset --\n".encode()
        self._environment = environment()
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, nothing wakes who waits for a shell's end

    def execute(self, code: str, channel: int) -> int:
        """Run a cell, which doesn't get the state's `channel`; its exit code.

        A signal that kills the shell kills this process, too.
        """
        if not code:
            return 0  # it only brings files
        text = KEEP.encode() + self._snapshot
        arguments: list[str | bytes] = ["bash", "-c", CELL, "bash", code]
        arguments += [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
        kept, keep = os.pipe()
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        try:
            pid = os.posix_spawn(
                BASH,
                arguments,
                self._environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, keep, KEPT_FD), (os.POSIX_SPAWN_CLOSE, channel)],
                setsigdef=ignored(),
            )
            os.close(keep)
            keep = -1
            status, snapshot = _wait(pid, kept, woken)
        finally:
            signal.set_wakeup_fd(-1)
            for descriptor in (kept, keep, woken, wake):
                if descriptor >= 0:
                    os.close(descriptor)
        if os.WIFSIGNALED(status):
            _die_by(os.WTERMSIG(status))
        if len(snapshot) > MOST_SNAPSHOT:
            os.write(2, TOO_LARGE)
            return 1
        self._keep(snapshot)
        return os.waitstatus_to_exitcode(status)

    def _keep(self, snapshot: bytes) -> None:
        text, *folder = snapshot.split(b"\0")
        if len(folder) < 2:
            return
        self._snapshot = text
        with contextlib.suppress(OSError):  # it is gone
            os.chdir(folder[0])
        # The rest is in the snapshot. This one can't be set later: bash takes it for the folder's name, or makes one.
        self._environment = {"PWD": os.fsdecode(folder[0])}


def _wait(pid: int, kept: int, woken: int) -> tuple[int, bytes]:
    """Wait for a shell's end: its wait status, and what it wrote for the next one.

    Not until all have closed the pipe: what a shell leaves in the background may hold it.
    """
    os.set_blocking(kept, False)
    snapshot = bytearray()
    poll = select.poll()
    poll.register(kept, select.POLLIN)
    poll.register(woken, select.POLLIN)
    ended = 0
    while not ended:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if kept in ready:
            part = os.read(kept, wire.CHUNK)
            if len(snapshot) <= MOST_SNAPSHOT:
                snapshot += part
            if not part:
                poll.unregister(kept)
        if woken in ready:
            os.read(woken, wire.FIRST_READ)
            ended, status = os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(BlockingIOError):
        while len(snapshot) <= MOST_SNAPSHOT and (part := os.read(kept, wire.CHUNK)):
            snapshot += part
    return status, bytes(snapshot)


def _die_by(number: int) -> None:
    """End this process as the shell has ended."""
    with contextlib.suppress(OSError, ValueError):  # of what can't be caught
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
