"""One state of a session: an interpreter that waits, and that a cell runs in a fork of. In a session of bash the fork
starts a shell (`shell`).

The process itself is the checkpoint. Before a cell it forks; the child runs the cell and, if it lives, is the
next state, while the parent goes on waiting, untouched, to be gone back to. The fork is the C library's: Python's own
would re-seed `random`.

A state has run user code, so nothing that it says is trusted with more than describing its own cell.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import resource
import socket
import sys

# The C functions themselves: those of `signal` take two hundred microseconds to make enumerations of numbers.
from _signal import pthread_sigmask, sigtimedwait  # type: ignore[import-not-found]
from collections.abc import Callable
from signal import ITIMER_PROF, ITIMER_REAL, ITIMER_VIRTUAL, SIG_BLOCK, SIG_SETMASK, setitimer, valid_signals
from types import ModuleType
from typing import Any, NoReturn, TextIO

from cleaner_sandbox.inside import cells, display, kernel, report, run, shell, wire
from cleaner_sandbox.inside.proc import Opened

CHANNEL_FD = 4
STARTED, ENDED, RESTORED = b"S", b"E", b"R"
FORK, RUN, RESTORE = range(3)
MOST_OTHERS = 64
CELL_FDS = (0, 1, 2, report.REPORT_FD)
SIGNALS = tuple(map(int, valid_signals()))
CLOCKS = (ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF)


def main(settings: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the first state. `files`: stdin, stdout, stderr, report, channel, where it says it is ready."""
    if "rlimits" in settings["layers"]:
        limit(settings)  # once it is shut in, it may not change all of them
    run.shut_in(settings, files)
    os.write(run.READY_FD, b"r")
    os.close(run.READY_FD)
    try:
        gc.enable()
        serve(language(settings), settings["work"])
    finally:
        os._exit(1)  # as in `run.main`


def limit(settings: dict[str, Any]) -> None:
    """What holds for all cells. CPU time is left to the supervisor: a state may live long."""
    memory, disk, processes, open_files = settings["session_limits"]
    for kind, value in (
        (resource.RLIMIT_DATA, settings["base_data"] + memory),
        (resource.RLIMIT_AS, settings["base_size"] + memory + 512 * run.MEGABYTE),
        (resource.RLIMIT_FSIZE, disk),
        # Every kept state is a process of the session's own: the supervisor sets the soft limit before each cell.
        (resource.RLIMIT_NPROC, most_processes(settings)),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_SIGPENDING, 4 * processes),
    ):
        resource.setrlimit(kind, (value, value))


def most_processes(settings: dict[str, Any]) -> int:
    """Of a cell, of the states that are kept, and of dead ones that nobody has waited for yet."""
    *_, processes, _ = settings["session_limits"]
    return int(processes + settings["checkpoints"] + MOST_OTHERS)


Execute = Callable[[str, bool, tuple[str, ...]], int]
"""Runs a cell's code, which may be to display its last value; `names`: those of all cells, this one's last. Returns the
exit code."""


def language(settings: dict[str, Any]) -> Execute:
    """What runs the cells of a session: the interpreter itself, or a shell that is started for each."""
    if settings["shell"]:
        bash = shell.Shell(settings["seed"])
        return lambda code, _echo, _names: bash.execute(code, CHANNEL_FD)
    module: ModuleType = settings["main"]
    run.seed(settings["seed"])
    cells.install(module, settings["seed"], run.flush_outputs)
    return lambda code, echo, names: run.execute(code, echo, module, names[-1], names, is_cell=True)


def serve(execute: Execute, work: str) -> NoReturn:
    """Wait for commands until the supervisor is gone; in the child of a fork, go on as the next state."""
    names: list[str] = []
    child = 0
    # A state that waits takes no signal: a cell that will be undone could have it run a handler of the program's.
    mask = pthread_sigmask(SIG_BLOCK, SIGNALS)
    kernel.block_signals()
    channel = socket.socket(fileno=CHANNEL_FD)
    while True:
        command, files = receive(channel)
        if command is None:
            os._exit(0)
        kind, *arguments = command
        if kind == RESTORE:
            with contextlib.suppress(ChildProcessError):  # if the program ignores its children's ends
                if child:
                    os.waitpid(child, 0)
            child = 0
            while sigtimedwait(SIGNALS, 0):  # what was sent to it meanwhile, the end of its fork included
                pass
            restore(*arguments)
            os.write(CHANNEL_FD, RESTORED)
            continue
        if kind == FORK:
            child = kernel.fork()
            (own,) = files
            if child:
                os.close(own)
                continue
            os.dup2(own, CHANNEL_FD)
            os.close(own)
            (moved,) = arguments
            if moved is not None:
                restore(*moved)  # what can't be opened again is the doing of earlier cells: this one hasn't started
            os.write(CHANNEL_FD, STARTED)
            continue  # the cell comes when the checkpoint is asleep, which never learns of it
        os.write(CHANNEL_FD, STARTED)
        mask = run_cell(execute, work, names, files, mask, *arguments)


def run_cell(
    execute: Execute,
    work: str,
    names: list[str],
    files: list[int],
    mask: set[int],
    name: str,
    code: str,
    echo: bool,
    display_bytes: int,
    has_stdin: bool,
    put: dict[str, bytes] | None,
) -> set[int]:
    """Run one cell and say how it ended. `mask`: the signals that the cells before have blocked; returns those now."""
    for target, descriptor in enumerate(files):
        os.dup2(descriptor, target)
        os.close(descriptor)
    report.own_report.note()
    report.own_report.display_bytes = display_bytes
    display.displays.begin()
    names.append(name)
    try:
        pthread_sigmask(SIG_SETMASK, mask)
        if put:
            run.put_files(put, work)
            importlib.invalidate_caches()  # they may be too new for the times of folders to tell
        sys.stdin = _input.reader(has_stdin)
        exit_code = execute(code, echo, tuple(names))
        run.flush_outputs()
    except BaseException as error:
        run.tell(error, tuple(names))
        exit_code = 1
    mask = pthread_sigmask(SIG_BLOCK, SIGNALS)
    kernel.block_signals()
    for clock in CLOCKS:
        setitimer(clock, 0)  # a fork would lose it, and the state that waits here would be hit
    with contextlib.suppress(OSError):  # of a program that may open no more files
        forget_files()
    os.write(CHANNEL_FD, ENDED + bytes([exit_code]))
    return mask


def forget_files() -> None:
    """What a thread prints between cells goes nowhere: the outputs of the cell that has ended take no more."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in CELL_FDS:
        os.dup2(null, descriptor)
    os.close(null)


class Input:
    """The reader of standard input, which is another file in each cell.

    A new one costs half as much as a fork. It is needed only if the last one may hold something that wasn't read.
    """

    def __init__(self) -> None:
        self._reader, self._used = sys.stdin, False

    def reader(self, has_stdin: bool) -> TextIO:
        """The one for a cell that has input or hasn't."""
        if has_stdin or self._used or self._reader.closed:
            self._reader = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        self._used = has_stdin
        return self._reader


_input = Input()


def restore(folder: str, opened: Opened) -> None:
    """Make the working folder and open files what they were, in the layer that now lies on top.

    `opened`: descriptor, path, flags and offset of each. Forks share offsets, flags and locks, and a descriptor stays
    in the layer in which it was opened; a path of "" means that only those have to be put back. A state that holds a
    lock isn't forked, so any that there is now is a fork's.
    """
    if folder:
        os.chdir(folder)
    for descriptor, path, flags, offset in opened:
        if path:
            again = os.open(path, flags)
            os.dup2(again, descriptor, inheritable=not flags & os.O_CLOEXEC)
            os.close(again)
        if flags & os.O_PATH:
            continue  # it has none of these
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.lseek(descriptor, offset, os.SEEK_SET)


def receive(channel: socket.socket) -> tuple[Any, list[int]]:
    """One command with its descriptors; None if the supervisor is gone."""
    head, files, _, _ = socket.recv_fds(channel, wire.LENGTH.size, 8)
    if not head:
        return None, []
    return wire.body(CHANNEL_FD, wire.LENGTH.unpack(head)[0]), files
