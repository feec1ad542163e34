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
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NoReturn

from cleaner_rl.sandbox.inside import kernel, run, wire
from cleaner_rl.sandbox.inside.watch import Tree

FIRST_LOOK = 0.010
LOOK_EVERY = 0.025


class Slot:
    """One supervisor."""

    def __init__(self, settings: dict[str, Any], control: socket.socket, requests: socket.socket, proc: int) -> None:
        self._settings = settings
        self._layers: frozenset[str] = settings["layers"]
        self._control = control
        self._requests = high(requests.detach())
        self._proc = proc
        self._box: str = settings["box"]
        settings["work"] = f"{self._box}/work"
        self._folders = tuple(f"{self._box}/{name}" for name in ("work", "tmp", "shm"))
        self._last_pid = -1
        if "pid" in self._layers:
            self._last_pid = os.open("sys/kernel/ns_last_pid", os.O_WRONLY, dir_fd=proc)
        if "landlock" in self._layers:
            rules = [*settings["readable"], (os.path.dirname(self._box), kernel.LANDLOCK_ALL)]
            settings["landlock"] = kernel.Landlock(settings["landlock_abi"], rules)
        owner = settings["run_uid"] or 0
        sizes = f"size={settings['disk_bytes']},nr_inodes={settings['inodes']}"
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        self._mount = kernel.Mount("box", self._box, "tmpfs", flags, f"mode=700,uid={owner},gid={owner},{sizes}")
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> NoReturn:
        """Fork, wait, watch, report, for as long as the node is there."""
        self._limit_for_good()
        if "mount" not in self._layers:
            self._clear_box()  # the slot that had this number before may have been killed
        self._make_box()
        socket.send_fds(self._control, [bytes([wire.KIND_HELLO])], [os.pidfd_open(os.getpid())])
        while True:
            files = [high(os.memfd_create(name)) for name in ("stdin", "stdout", "stderr", "report")]
            pid = self._fork(run.main, [*files, self._requests])
            pidfd = os.pidfd_open(pid)
            self._poll.register(pidfd, select.POLLIN)
            start = self._wait_for_start(pidfd)
            done = self._watch(pid, pidfd, start, files)
            handed = files[1:]
            if start[5]:
                handed.append(os.open(self._folders[0], os.O_PATH | os.O_DIRECTORY))
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(handed)}i", *handed))
            self._control.sendmsg([done], [rights])
            self._poll.unregister(pidfd)
            for descriptor in (*files, pidfd, *handed[3:]):
                os.close(descriptor)
            self._clear_box()
            self._make_box()

    def _limit_for_good(self) -> None:
        """What is the same for all runs, and does the supervisor no harm, is set once and inherited."""
        if "seccomp" in self._layers or "landlock" in self._layers:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if "rlimits" in self._layers:
            for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
                resource.setrlimit(kind, (0, 0))
        if "uid" in self._layers:
            os.setgroups([])

    def _fork(self, main: Callable[[dict[str, Any], list[int]], NoReturn], files: list[int]) -> int:
        """A process that has shut itself in and waits for its request."""
        ready, tell = os.pipe()
        tell = high(tell)
        if self._last_pid >= 0:
            os.pwrite(self._last_pid, b"1", 0)  # every run is process 2: programs that print their pid stay the same
        pid = kernel.fork()
        if pid == 0:
            main(self._settings, [*files, tell])
        os.close(tell)
        if not os.read(ready, 1):
            os._exit(1)
        os.close(ready)
        return pid

    def _make_box(self) -> None:
        """An empty working folder."""
        if "mount" in self._layers:
            self._mount.mount()
        else:
            os.mkdir(self._box, 0o755)
        owner = self._settings["run_uid"]
        for path in self._folders:
            os.mkdir(path, 0o700)
            if owner is not None:
                os.chown(path, owner, owner)

    def _clear_box(self) -> None:
        """Away with whatever a run left in its folder."""
        if "mount" in self._layers:
            self._mount.umount()
        else:
            shutil.rmtree(self._box, ignore_errors=True)

    def _wait_for_start(self, pidfd: int) -> tuple[Any, ...]:
        """Block until the node has a call for the waiting run; ends the slot if either of them is gone."""
        while True:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if ready == [pidfd]:  # it died waiting; a run that had its request has its start here, sent before
                os._exit(1)
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
            kernel.mount("box", self._box, None, flags, f"size={disk},nr_inodes={inodes}")

    def _watch(self, pid: int, pidfd: int, start: tuple[Any, ...], files: list[int]) -> bytes:
        """Wait for the run's end, or bring it about; says which."""
        began = time.monotonic()
        used = _children_cpu()
        reason, tree, waited = wire.EXITED, None, 0.0
        pause = FIRST_LOOK
        while reason == wire.EXITED:
            events = self._poll.poll(pause * 1000)
            if any(descriptor == pidfd for descriptor, _ in events):
                break
            if events:  # the node is silent during a run, so it is gone or has given up on this one
                self._end(pid)
                os._exit(0)
            if tree is None:
                tree = Tree(self._proc, pid, "pid" in self._layers, self._settings["base_rss"], began)
            reason, waited = self._judge(tree, start, files, time.monotonic() - began)
            pause = LOOK_EVERY
        wall = time.monotonic() - began
        _, status, usage = self._end(pid)
        cpu = _children_cpu() - used
        if reason == wire.EXITED:
            reason = self._judge_end(start, files, cpu)
        return wire.DONE.pack(wire.KIND_DONE, reason, status, cpu, wall, waited, usage.ru_maxrss * 1024)

    def _judge(self, tree: Tree, start: tuple[Any, ...], files: list[int], elapsed: float) -> tuple[int, float]:
        """Which limit a living run has hit, if any."""
        _, cpu_limit, wall_limit, memory_limit, output_limit, _ = start
        if "watch" not in self._layers:
            return (wire.WALL if elapsed > wall_limit else wire.EXITED), 0.0
        cpu, held, waited = tree.look()
        if cpu > cpu_limit:
            return wire.CPU, waited
        if elapsed - waited > wall_limit:
            return wire.WALL, waited
        if elapsed > wall_limit * wire.STARVED_FACTOR:
            return wire.STARVED, waited
        if held > memory_limit and tree.held_exactly() > memory_limit:
            return wire.MEMORY, waited
        if any(os.fstat(descriptor).st_size > output_limit for descriptor in files[1:3]):
            return wire.OUTPUT, waited
        return wire.EXITED, waited

    def _judge_end(self, start: tuple[Any, ...], files: list[int], cpu: float) -> int:
        """A run that was over its limits when it ended has hit them, whether we happened to look or not."""
        if cpu > start[1]:
            return wire.CPU
        if any(os.fstat(descriptor).st_size > start[4] for descriptor in files[1:3]):
            return wire.OUTPUT
        return wire.EXITED

    def _end(self, pid: int) -> tuple[int, int, resource.struct_rusage]:
        """Kill what is left of a run and wait until nothing is."""
        if "pid" not in self._layers:
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
            return os.wait4(pid, 0)
        # Every process in the namespace but ourselves. The kernel holds off forks while it walks them.
        os.kill(-1, signal.SIGKILL)
        ended = os.wait4(pid, 0)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return ended


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def high(descriptor: int) -> int:
    """The same file at a number above those that a run gives its own."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(descriptor)
    return high
