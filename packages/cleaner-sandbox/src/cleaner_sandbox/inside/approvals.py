"""What a run of tier 1 has to ask for: more threads, and other rights or times of files.

Such a run has the user of its supervisor, and often of the node. So the kernel would let it take the rights off the
node's own files, and its limit on processes counts the threads of all that have this user, in other containers too. A
filter stops these calls and asks the supervisor. It counts the run's own threads before a call goes on, and changes a
file itself if that is in the run's folder.

Limits: threads that are asked for in the same moment don't count for each other, so a run can get twice its limit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Mapping

from cleaner_sandbox.inside import kernel

QUESTION = struct.Struct("=QIIiIQ6Q")
"""Its number, thread, flags, system call, architecture, where in the program, arguments."""
ANSWER = struct.Struct("=QqiI")
"""The question's number, what the call returns, its error, flags."""
GO_ON = 1
WORKING_FOLDER = kernel.AT_FDCWD & 0xFFFFFFFF
NO_FOLLOW = 0x100
LONGEST_PATH = 4096
TIMES_BYTES = 32


class Approvals:
    """Answers what the runs of one slot ask for."""

    def __init__(self, calls: Mapping[int, str], filter_: kernel.Program, folder: str) -> None:
        """`calls`: names of the calls that the filter stops, by number; `folder`: where a run may change files."""
        self._calls, self._filter = calls, filter_
        self._below = f"{os.path.realpath(folder)}/"
        self._questions = -1

    def begin(self) -> None:
        """Prepare for the next run, before it is forked."""
        self._ours, self._theirs = socket.socketpair()

    def ask(self) -> None:
        """In the run: have the filter from here on, and hand over where it asks."""
        socket.send_fds(self._theirs, [b"q"], [self._filter.listen()])

    def hear(self) -> int:
        """In the supervisor: return a descriptor that is readable when something is asked. Ends a slot without run."""
        self._theirs.close()
        with self._ours:
            _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
        if not descriptors:
            os._exit(1)
        self._questions = descriptors[0]
        return self._questions

    def answer(self, most_threads: int) -> None:
        """Answer what is asked next."""
        question = bytearray(QUESTION.size)
        with contextlib.suppress(FileNotFoundError):  # whoever asked has been killed
            fcntl.ioctl(self._questions, kernel.SECCOMP_RECEIVE, question)
            number, thread, _, call, _, _, *arguments = QUESTION.unpack(question)
            error = flags = 0
            try:
                if self._calls[call] == "clone":
                    flags = self._one_more(thread, most_threads)
                else:
                    self._change(self._calls[call], thread, arguments)
            except OSError as failed:
                error = -(failed.errno or errno.EPERM)
            fcntl.ioctl(self._questions, kernel.SECCOMP_SEND, ANSWER.pack(number, 0, error, flags))

    def _one_more(self, thread: int, most: int) -> int:
        # A folder has a link from above, one from itself, and one from each folder in it: here from each thread.
        if os.stat(f"/proc/{thread}/task").st_nlink - 2 >= most:
            raise BlockingIOError(errno.EAGAIN, "as many threads as it may have")
        return GO_ON

    def _change(self, call: str, thread: int, arguments: list[int]) -> None:
        if call == "chmod":
            arguments = [WORKING_FOLDER, *arguments]
        elif call == "fchmod":
            arguments = [arguments[0], 0, arguments[1], 0]
        folder, path, value, flags, *_ = arguments
        times = call == "utimensat"
        begin = "cwd" if folder & 0xFFFFFFFF == WORKING_FOLDER else f"fd/{folder & 0xFFFFFFFF}"
        with contextlib.ExitStack() as stack:
            # Opened once, and changed as what was opened: what the program does to the name meanwhile is no matter.
            file = os.open(f"/proc/{thread}/{begin}", os.O_PATH)
            stack.callback(os.close, file)
            if path:
                name, end, _ = _memory(thread, path, LONGEST_PATH).partition(b"\0")
                if not end:
                    raise OSError(errno.ENAMETOOLONG, "no end of the name")
                kind = os.O_PATH | os.O_NOFOLLOW if times and flags & NO_FOLLOW else os.O_PATH
                file = os.open(name, kind, dir_fd=file)
                stack.callback(os.close, file)
            this = f"/proc/self/fd/{file}"
            if not os.readlink(this).startswith(self._below):
                raise PermissionError(errno.EPERM, "not in the run's folder")
            if times:
                kernel.set_times(this, _memory(thread, value, TIMES_BYTES) if value else None)
            else:
                os.chmod(this, value & 0o7777)


def _memory(thread: int, address: int, size: int) -> bytes:
    """What a thread has at an address, as far as it has anything there."""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        return os.pread(memory, size, address & (1 << 63) - 1)  # above are no addresses of programs
    finally:
        os.close(memory)
