"""The supervisor of one run at a time.

It forks the next run ahead, tells the node when that one has ended and how, kills what is left of it, and starts over.
At tier 2 it is the first process of its own pid namespace, so one `kill(-1)` reaches everything that a run left behind,
however often it forked, and nothing that a run can send reaches the supervisor.

Its decisions rest on what the kernel says: wait status, `/proc`, file sizes. It never reads a request, an output or a
report; those go between node and run through descriptors that it only passes on.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Any, NoReturn

from cleaner_sandbox.inside import kernel, run, wire
from cleaner_sandbox.inside.approvals import Approvals
from cleaner_sandbox.inside.counted import Counted
from cleaner_sandbox.inside.layers import Layers, empty_folder
from cleaner_sandbox.inside.proc import BLOCK, Proc
from cleaner_sandbox.inside.watch import Tree

LOOK_EVERY = 25
"""Milliseconds between looks at a living run; most have ended before the first."""
FIRST_FREE = 16
LARGEST_REPORT = 1 << 20
"""No run of ours writes so much beside its displays; one that does fills memory that nobody counts."""
FEW_SOCKETS = 64
"""Nobody is stopped for these, however large the machine makes them."""
HUGE_PAGE = 2 << 20
"""Files hold whole pages, and those of memory may be huge."""
SEALABLE = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
FILES = ("stdin", "stdout", "stderr", "report")
THREE = struct.Struct("3i")
NOTHING = bytes(4)


class Slot:
    """One supervisor."""

    def __init__(self, settings: dict[str, Any], control: socket.socket, requests: socket.socket, proc: int) -> None:
        self._settings = settings
        self._counted: Counted | None = settings.get("counted")
        """What the kernel counts, at tier 3. Without it, what runs use is seen in `/proc`."""
        self._spent, self._held, self._killed = 0.0, 0, 0
        """What it said before the run."""
        self._layers: frozenset[str] = settings["layers"]
        self._control = control
        self._requests = high(requests.detach())
        self._proc = Proc(proc)
        settings["proc"] = proc
        # Runs give their files the first numbers. With those taken here, every new file gets a number above them.
        while os.dup(proc) < FIRST_FREE:
            pass
        self._box: str = settings["box"]
        settings["work"] = f"{self._box}/work"
        settings["folders"] = self._folders = tuple(f"{self._box}/{name}" for name in ("work", "tmp", "shm"))
        settings["main"] = run.main_module()
        run.stay_in_session()
        self._approvals: Approvals | None = None
        if settings["asked"]:
            self._approvals = Approvals(settings["asked"], settings["asking_filter"], self._box)
        settings["approvals"] = self._approvals
        self._questions = -1
        self._last_pid = -1
        if "pid" in self._layers:
            self._last_pid = os.open("sys/kernel/ns_last_pid", os.O_RDWR, dir_fd=proc)
        above = os.path.dirname(self._box)
        if "mount" not in self._layers:
            # The box stays, and no rule is about what is above it: a run could put another folder in its place.
            above = self._box
            os.makedirs(self._box, exist_ok=True)
        if "landlock" in self._layers:
            rules = [*settings["readable"], (above, kernel.LANDLOCK_ALL)]
            settings["landlock"] = kernel.Landlock(settings["landlock_abi"], rules)
        self._given: str | None = settings["files_folder"] if settings.get("files") else None
        """What the working folder begins with."""
        self._own_inodes = 8 if self._given is None else 32  # that the folder itself has
        sizes = f"size={settings['disk_bytes']},nr_inodes={settings['inodes'] + self._own_inodes}"
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        # Not the run's own: it could put something else in the place of its folders, which we open by name.
        self._mount = kernel.Mount("box", self._box, "tmpfs", flags, f"mode=755,{sizes}")
        self._work = -1
        """The working folder, opened before a run that could replace it; -1 where none can."""
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._ready, self._tell_ready = os.pipe2(os.O_NONBLOCK)

    def serve(self) -> NoReturn:
        """Fork, wait, watch, report, for as long as the node is there."""
        self._limit_for_good()
        if "mount" not in self._layers:
            self._clear_box()  # the slot that had this number before may have been killed
        self._make_box()
        socket.send_fds(self._control, [bytes([wire.KIND_HELLO])], [os.pidfd_open(os.getpid())])
        while True:
            # This loop runs between all runs, and every page it touches is copied once more: hence few and plain steps.
            if self._counted is not None and self._counted.tells_held:
                self._held = self._counted.held()
            stdin, stdout, stderr, report = files = [os.memfd_create(name, SEALABLE) for name in FILES]
            if self._approvals is not None:
                self._approvals.begin()
            pid = self._fork(run.main, [*files, self._requests])
            pidfd = os.pidfd_open(pid)
            self._poll.register(pidfd, select.POLLIN)
            if self._approvals is not None:
                self._questions = self._approvals.hear()
            start = self._wait_for_start(pidfd)
            if start[5] & wire.OUTPUT_FILES:
                socket.send_fds(self._control, [bytes([wire.KIND_OUTPUT])], [stdout, stderr])
            done = self._watch(pid, pidfd, start, files)
            self._require_ready()
            unread = fcntl.ioctl(self._requests, termios.FIONREAD, NOTHING)  # before the node may send the next one
            if start[5] & wire.FOLDER:
                folder = open_folder(self._folders[0]) if self._work < 0 else os.dup(self._work)
                socket.send_fds(self._control, [done], [stdout, stderr, report, folder])
                os.close(folder)
                if not self._control.recv(1):  # until then the node reads from the folder
                    os._exit(0)
            else:
                rights = THREE.pack(stdout, stderr, report)
                self._control.sendmsg([done], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            self._poll.unregister(pidfd)
            if any(unread) or self._given is not None:
                os._exit(0)  # the next run would take what is unread for its own request; one with files is the last
            for descriptor in (stdin, stdout, stderr, report, pidfd):
                os.close(descriptor)
            if self._approvals is not None:
                os.close(self._questions)
            self._clear_box()
            self._make_box()

    def _limit_for_good(self) -> None:
        """What is the same for all runs, and does the supervisor no harm, is set once and inherited."""
        if "seccomp" in self._layers or "landlock" in self._layers:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if "rlimits" in self._layers:
            for kind in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
                resource.setrlimit(kind, (0, 0))
            # One byte is too few for a file, as none would be, and alone keeps the kernel from a dump through a pipe.
            resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        if "uid" in self._layers:
            os.setgroups([])
        if "seccomp" in self._layers:
            self._settings["supervisor_filter"].install()

    def _fork(self, main: Callable[[dict[str, Any], list[int]], NoReturn], files: list[int]) -> int:
        """A process that shuts itself in, says so, and waits for its request."""
        if self._last_pid >= 0:
            os.pwrite(self._last_pid, b"1", 0)  # every run is process 2: programs that print their pid stay the same
        pid = kernel.fork()
        if pid == 0:
            leave = os._exit  # before user code can change what `os` holds
            try:
                main(self._settings, [*files, self._tell_ready])
            except BaseException:  # before it was ready: the operator's to see; afterwards nothing gets here
                sys.__excepthook__(*sys.exc_info())
            finally:
                leave(1)
        return pid

    def _require_ready(self) -> None:
        """A process that never said it was shut in is our failure, not its program's. Later it couldn't say so."""
        try:
            os.read(self._ready, 1)
        except BlockingIOError:
            os._exit(1)

    def _make_box(self) -> None:
        """A working folder, empty or with what it begins with."""
        if self._given is not None:
            settings = self._settings
            size = f"size={settings['disk_bytes']},nr_inodes={settings['inodes'] + self._own_inodes}"
            owner = settings["run_uid"] or 0
            Layers(settings["layers_folder"], self._box, owner, size, self._proc, self._given).push()
            settings["folders"] = ()  # they are in the layer
        elif "mount" in self._layers:
            self._mount.mount()
        else:
            os.chmod(self._box, 0o755)
            for path in self._folders:
                os.mkdir(path, 0o700)
                if "uid" in self._layers:
                    os.chown(path, self._settings["run_uid"], -1)
            self._work = open_folder(self._folders[0])

    def _clear_box(self) -> None:
        """Away with whatever a run left in its folder."""
        if "mount" in self._layers:
            self._mount.umount()
        else:
            empty_folder(self._box)
            if self._work >= 0:
                os.close(self._work)

    def _wait_for_start(self, pidfd: int) -> tuple[Any, ...]:
        """Block until the node has a call for the waiting run; ends the slot if either of them is gone."""
        while True:
            events = self._poll.poll()
            if len(events) == 1 and events[0][0] == pidfd:
                os._exit(1)  # it died waiting; a run that had its request has its start here, sent before
            message = self._control.recv(wire.START.size)
            if not message:
                os._exit(0)
            if message[0] == wire.KIND_START:
                return wire.START.unpack(message)
            self._resize_box(*wire.DISK.unpack(message)[1:])
            self._control.send(message[:1])

    def _resize_box(self, disk: int, inodes: int) -> None:
        if "mount" in self._layers:
            flags = kernel.MS_REMOUNT | kernel.MS_NOSUID | kernel.MS_NODEV
            place = self._box if self._given is None else self._settings["layers_folder"]
            kernel.mount("box", place, None, flags, f"size={disk},nr_inodes={inodes + self._own_inodes}")

    def _watch(self, pid: int, pidfd: int, start: tuple[Any, ...], files: list[int]) -> bytes:
        """Wait for the run's end, or bring it about; says which."""
        began = time.monotonic()
        reason, tree, waited = wire.EXITED, None, 0.0
        if self._counted is not None:
            self._spent, self._killed = self._counted.cpu_seconds(), self._counted.killed()
        while reason == wire.EXITED:
            events = self._poll.poll(LOOK_EVERY) if self._approvals is None else self._answer(self._approvals, start[6])
            if events:
                if events[0][0] == pidfd or len(events) > 1:
                    break
                self._end(pid)  # the node is silent during a run, so it is gone or has given up on this one
                os._exit(0)
            if tree is None:
                only = None if "pid" in self._layers else pid
                tree = Tree(self._proc, began, only)
            reason, waited = self._judge(tree, start, files, time.monotonic() - began)
        wall = time.monotonic() - began
        status, cpu, peak = self._end(pid)
        if self._counted is not None:
            cpu = max(cpu, self._counted.cpu_seconds() - self._spent)  # with those that nobody waited for
        if reason == wire.EXITED and cpu > start[1]:
            reason = wire.CPU  # whether we happened to look or not
        return wire.DONE.pack(wire.KIND_DONE, reason, status, cpu, wall, waited, peak)

    def _answer(self, approvals: Approvals, most_threads: int) -> list[tuple[int, int]]:
        """Answer what the run asks until it is time to look at it, or something else happens."""
        until = time.monotonic() + LOOK_EVERY / 1000
        self._poll.register(self._questions, select.POLLIN)
        try:
            while True:
                events = dict(self._poll.poll(max(0.0, 1000 * (until - time.monotonic()))))
                asked = events.pop(self._questions, 0)
                if asked & select.POLLIN:
                    approvals.answer(most_threads)
                # With nobody left to ask, the run's end is about to be told.
                if events or time.monotonic() >= until:
                    return list(events.items())
        finally:
            self._poll.unregister(self._questions)

    def _judge(self, tree: Tree, start: tuple[Any, ...], files: list[int], elapsed: float) -> tuple[int, float]:
        """Which limit a living run has hit, if any."""
        _, cpu_limit, wall_limit, memory_limit, output_limit, *_ = start
        if "watch" not in self._layers:
            return (wire.WALL if elapsed > wall_limit else wire.EXITED), 0.0
        counted = self._counted
        cpu, held, waited = tree.look() if counted is None or not counted.tells_held else (0.0, 0, tree.waits())
        if counted is not None:
            cpu = counted.cpu_seconds() - self._spent
        if cpu > cpu_limit:
            return wire.CPU, waited
        if elapsed - waited > wall_limit:
            return wire.WALL, waited
        if elapsed > wire.starved_after(wall_limit):
            # Who waits while its own others run is not kept waiting by the machine.
            return (wire.STARVED if 4 * cpu < elapsed else wire.WALL), waited
        if counted is not None and counted.killed() > self._killed:
            return wire.MEMORY, waited
        if counted is not None and counted.tells_held:
            too_much = counted.held() - self._held - self._in_files(files) > memory_limit
        else:
            too_much = self._holds_too_much(tree, held, memory_limit)
        if too_much:
            return wire.MEMORY, waited
        return (wire.OUTPUT if flooded(files, output_limit) else wire.EXITED), waited

    def _holds_too_much(self, tree: Tree, held: int, limit: int) -> bool:
        """Whether processes that hold so much at first sight hold more memory than `limit`, or could in sockets."""
        left: int = limit - self._in_sockets
        # The interpreter's own memory is shared with every fork of the zygote, so it hardly counts in an exact look.
        base: int = self._settings["base_held"]
        return left < 0 or (held > left + base and tree.held_lately() > left)

    def _in_files(self, files: list[int]) -> int:
        """Bytes of the run's folder and outputs, which have limits of their own."""
        box = os.statvfs(self._box)
        return (box.f_blocks - box.f_bfree) * box.f_frsize + sum(os.fstat(each).st_blocks for each in files) * BLOCK

    @property
    def _in_sockets(self) -> int:
        """Bytes in sockets. They are no process's, and nobody says how many: so each counts as if it were full."""
        sockets = self._proc.sockets() - FEW_SOCKETS if "net" in self._layers else 0
        return max(0, sockets) * int(self._settings["socket_bytes"])

    def _end(self, pid: int) -> tuple[int, float, int]:
        """Kill what is left of a run and wait until nothing is: its wait status, CPU seconds of all, its peak bytes."""
        if "pid" in self._layers:
            # Every process in the namespace but ourselves. The kernel holds off forks while it walks them.
            os.kill(-1, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        _, status, usage = os.wait4(pid, 0)
        cpu = usage.ru_utime + usage.ru_stime
        try:
            while True:
                _, _, other = os.wait4(-1, 0)
                cpu += other.ru_utime + other.ru_stime
        except ChildProcessError:
            return status, cpu, usage.ru_maxrss * 1024


def flooded(files: list[int], output_limit: int) -> bool:
    """Whether an output is longer than it may be, or holds more memory: that can be reserved beyond a file's end."""
    for descriptor, limit in zip(files[1:], (output_limit, output_limit, LARGEST_REPORT + output_limit), strict=True):
        found = os.fstat(descriptor)
        if found.st_size > limit or found.st_blocks * BLOCK > limit + HUGE_PAGE:
            return True
    return False


def open_folder(path: str) -> int:
    """A folder to look up files in. No link is followed to it."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)


def high(descriptor: int) -> int:
    """The same file at a number above those that a run gives its own."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE)
    os.close(descriptor)
    return high
