"""The supervisor of one session: the states it keeps, the layers of its files, and which cell may stay.

Before a cell it lets the current state fork, so the state is a checkpoint from then on. After the cell it decides, by
what it saw itself, whether the new state stays; if not, it kills it, takes off what it wrote, and has the old state put
its open files back. A state that can't be forked without loss (it has threads, children, sockets, ...) runs its next
cell in place; then there is nothing to go back to but an earlier state, from which the node runs the committed cells
again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from cleaner_rl.sandbox.inside import state, wire
from cleaner_rl.sandbox.inside.layers import MOST, Layers
from cleaner_rl.sandbox.inside.proc import Opened
from cleaner_rl.sandbox.inside.slot import FILES, FIRST_LOOK, LOOK_EVERY, SEALABLE, Slot
from cleaner_rl.sandbox.inside.watch import Tree

IDLE_LOOK = 0.5
HARNESS_FDS = 5
"""Stdin, stdout, stderr, report, channel."""


class State:
    """One interpreter that waits."""

    def __init__(self, pid: int, channel: socket.socket, number: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = channel
        self.number = number
        self.depth = 0
        """Layers that its files lie in."""
        self.layer = ""
        """The topmost of them, in which its folder and open files are."""
        self.shared = False
        """Whether the cells after it may have written to that one."""
        self.folder = ""
        self.opened: Opened = []
        self.obstacles = 0

    def close(self) -> None:
        """Kill it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)
        self.channel.close()


class SessionSlot(Slot):
    """One session's supervisor."""

    def serve(self) -> NoReturn:
        """Start the first state, then run cells and go back as the node asks."""
        settings = self._settings
        self._limit_for_good()
        size = f"size={settings['disk_bytes']},nr_inodes={settings['inodes']}"
        self._files = Layers(settings["layers_folder"], self._box, settings["run_uid"] or 0, size)
        settings["folders"] = ()  # they are in the first layer
        ours, theirs = self._channel()
        null = os.open("/dev/null", os.O_RDWR)
        pid = self._fork(state.main, [null, null, null, null, theirs.fileno()])
        os.close(null)
        theirs.close()
        self._states = [State(pid, ours, 0)]
        select.select([self._ready, self._states[0].pidfd], [], [])
        self._require_ready()
        self._settle(self._states[0])
        socket.send_fds(self._control, [bytes([wire.KIND_HELLO])], [os.pidfd_open(os.getpid())])
        self._tell_standing(committed=False)
        while True:
            self._wait_idle()
            message = self._control.recv(wire.CELL.size)
            if not message:
                os._exit(0)
            if message[0] == wire.KIND_CELL:
                self._cell(*wire.CELL.unpack(message)[1:])
            else:
                self._go_back(wire.ROLLBACK.unpack(message)[1])
                self._tell_standing(committed=False)

    def _wait_idle(self) -> None:
        """Until the node speaks. A state that works on its own meanwhile is stopped, and the session with it."""
        current = self._states[-1]
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(current.pidfd, select.POLLIN)
        tree = self._tree(keep=self._states[:-1])
        before = tree.look()[0] if current.obstacles else 0.0
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(IDLE_LOOK * 1000 if current.obstacles else None)]
            if self._control.fileno() in ready:
                return
            if current.pidfd in ready or tree.look()[0] - before > self._settings["cpu_seconds"]:
                os._exit(1)

    def _cell(self, rule: int, cpu: float, wall: float, memory: int, output: int, fetch: int) -> None:
        """Run one cell, tell the node how it ended, then keep it or undo it."""
        request = wire.unpack(self._requests)
        files = [os.memfd_create(name, SEALABLE) for name in FILES]
        current = self._states[-1]
        in_place = bool(current.obstacles) or self._files.depth >= MOST
        name = f"cell{current.number + 1}.py"
        if in_place:
            pidfd, pid, channel = current.pidfd, current.pid, current.channel
            self._command(current, (state.IN_PLACE, None, name, *request), files)
            self._hear(channel)
        else:
            moved = self._freeze(current)
            channel, theirs = self._channel()
            self._command(current, (state.CELL, moved, name, *request), [*files, theirs.fileno()])
            theirs.close()
            pid = self._hear(channel)
            pidfd = os.pidfd_open(pid)
        frozen = self._states[:-1] if in_place else self._states
        limits = (0, cpu, wall, memory, output, fetch)
        reason, ended, cpu_used, elapsed, peak = self._watch_cell(pid, pidfd, channel, limits, files, frozen)
        printed = max(os.fstat(descriptor).st_size for descriptor in files[1:3])
        if reason == wire.EXITED and printed > output:
            reason = wire.OUTPUT
        success = reason == wire.EXITED and ended == 0
        alive = reason == wire.EXITED and os.WIFEXITED(ended)
        handed = files[1:]
        if fetch:
            handed.append(os.open(f"{self._box}/work", os.O_PATH | os.O_DIRECTORY))
        done = wire.DONE.pack(wire.KIND_DONE, reason, ended, cpu_used, elapsed, 0.0, peak)
        socket.send_fds(self._control, [done], handed)
        for descriptor in (*files, *handed[3:]):
            os.close(descriptor)
        committed = alive and (rule == wire.ALWAYS or (rule == wire.ON_SUCCESS and success))
        if committed:
            self._keep(current if in_place else State(pid, channel, current.number), in_place)
        elif in_place:
            self._go_back(current.number - 1)
        else:
            channel.close()
            self._go_back(current.number)
        if not in_place:
            os.close(pidfd)
        self._tell_standing(committed)

    def _freeze(self, current: State) -> tuple[str, Opened] | None:
        """Make the current state a checkpoint; what its fork has to open again if its files go to a new layer."""
        current.opened, _ = self._proc.opened(str(current.pid), HARNESS_FDS, self._box)
        current.folder = self._proc.link(f"{current.pid}/cwd")
        current.shared = not self._files.dirty
        if current.shared:
            return None
        self._files.push()
        return current.folder, current.opened

    def _watch_cell(
        self,
        pid: int,
        pidfd: int,
        channel: socket.socket,
        limits: tuple[Any, ...],
        files: list[int],
        frozen: list[State],
    ) -> tuple[int, int, float, float, int]:
        """Wait for a cell's end: reason, wait status, CPU seconds, wall seconds, peak bytes."""
        began = time.monotonic()
        tree = self._tree(frozen)
        before = tree.look()[0] if len(frozen) < len(self._states) else 0.0
        poll = select.poll()
        for each in (pidfd, channel.fileno(), self._control.fileno()):
            poll.register(each, select.POLLIN)
        reason, status, pause, peak = wire.EXITED, -1, FIRST_LOOK, 0
        limits = (limits[0], limits[1] + before, *limits[2:])
        while reason == wire.EXITED and status < 0:
            ready = {descriptor for descriptor, _ in poll.poll(pause)}
            elapsed = time.monotonic() - began
            if self._control.fileno() in ready:
                os._exit(0)
            if channel.fileno() in ready and (said := channel.recv(2)):
                status = said[-1] << 8
            elif pidfd in ready:
                status = self._proc.exit_status(str(pid))
                if os.WIFEXITED(status):
                    reason = wire.GONE
            else:
                reason, _ = self._judge(tree, limits, files, elapsed)
            pause = LOOK_EVERY
        cpu, peak, _ = tree.look()
        if reason == wire.EXITED and cpu > limits[1]:
            reason = wire.CPU
        if reason not in (wire.EXITED, wire.GONE):
            status = signal.SIGKILL
        return reason, status, cpu - before, time.monotonic() - began, peak

    def _keep(self, new: State, in_place: bool) -> None:
        new.number += 1
        if not in_place:
            self._states.append(new)
        self._settle(new)
        new.obstacles = self._obstacles(new)
        # The first state stays, to begin anew from; of the others the latest ones.
        while len(self._states) > self._settings["checkpoints"] + 2:
            self._states.pop(1).close()
        self._reap()

    def _go_back(self, number: int) -> None:
        """Stand at the latest state that isn't later than `number`."""
        while self._states[-1].number > number:
            self._states.pop().close()
        current = self._states[-1]
        self._kill_strays()
        self._files.cut(current.depth)
        if current.shared and self._files.dirty:
            self._files.cut(current.depth - 1)
            self._files.push()
        moved = current.layer != self._files.top
        self._settle(current)
        opened = [each if moved else (each[0], "", 0, each[3]) for each in current.opened]
        self._command(current, (state.RESTORE, current.folder if moved else "", opened), [])
        self._hear(current.channel)
        self._reap()

    def _settle(self, current: State) -> None:
        """Note where a state's files are."""
        current.depth, current.layer = self._files.depth, self._files.top

    def _kill_strays(self) -> None:
        """Kill every process that isn't one of the kept states, until none is left."""
        tree = self._tree(self._states)
        while living := [pid for pid in tree.pids() if not self._proc.dead(pid)]:
            for pid in living:
                try:
                    pidfd = os.pidfd_open(int(pid))
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                select.select([pidfd], [], [])
                os.close(pidfd)

    def _tell_standing(self, committed: bool) -> None:
        current = self._states[-1]
        resident = self._tree([]).look()[1] - self._settings["base_rss"] * len(self._states)
        files = os.statvfs(self._settings["layers_folder"])
        held = max(0, resident) + (files.f_blocks - files.f_bfree) * files.f_frsize
        self._control.send(wire.STANDING.pack(wire.KIND_STANDING, current.number, committed, held, current.obstacles))

    def _obstacles(self, new: State) -> int:
        """What a fork of this state would lose."""
        pid = str(new.pid)
        _, found = self._proc.opened(pid, HARNESS_FDS, self._box)
        if self._proc.link(f"{pid}/cwd").endswith(" (deleted)"):
            found.add("deleted file")
        if len(self._proc.names(f"{pid}/task")) > 1:
            found.add("thread")
        if any(not self._proc.dead(other) for other in self._tree(self._states).pids()):
            found.add("process")
        if b" rw-s " in self._proc.read(f"{pid}/maps"):
            found.add("shared mapping")
        return sum(1 << wire.OBSTACLES.index(name) for name in found)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _tree(self, keep: list[State]) -> Tree:
        others = frozenset(str(each.pid) for each in keep)
        return Tree(self._proc, time.monotonic(), others=others)

    def _channel(self) -> tuple[socket.socket, socket.socket]:
        """Our end tells us the kernel's word on who wrote to the other."""
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        return ours, theirs

    def _command(self, to: State, message: tuple[Any, ...], files: list[int]) -> None:
        data = wire.pack(message)
        sent = socket.send_fds(to.channel, [data], files) if files else to.channel.send(data)
        to.channel.sendall(data[sent:])

    def _hear(self, channel: socket.socket) -> int:
        """Wait for a state's short word; who spoke."""
        said, credentials, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(12))
        if not said:
            os._exit(1)
        return int.from_bytes(credentials[0][2][:4], "little")
