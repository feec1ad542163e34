"""The supervisor of one session: the states it keeps, the layers of its files, and which cell may stay.

Before a cell it lets the current state fork, so the state is a checkpoint from then on. After the cell it decides, by
what it saw itself, whether the new state stays; if not, it kills it, takes off what it wrote, and has the old state put
its open files back. A state that can't be forked without loss (it has threads, children, sockets, ...) runs its next
cell in place; then there is nothing to go back to but an earlier state, from which the node runs the committed cells
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from cleaner_rl.sandbox.inside import run, state, wire
from cleaner_rl.sandbox.inside.layers import MOST, Layers
from cleaner_rl.sandbox.inside.proc import Opened
from cleaner_rl.sandbox.inside.slot import FILES, LOOK_EVERY, SEALABLE, Slot, flooded, open_folder
from cleaner_rl.sandbox.inside.states import (
    DYING_SECONDS,
    MOMENT,
    BrokenStateError,
    State,
    channel,
    drained,
    hear,
    lives,
    stop,
    waits,
)
from cleaner_rl.sandbox.inside.watch import Tree

IDLE_LOOK = 1.0
SOON = 40
MOST_BROKEN = 2
"""States that are gone back to in vain, each of which may take long to be given up, before all is begun anew."""
GO = b"g"
HARNESS_FDS = 5
"""Stdin, stdout, stderr, report, channel."""
UNSURE = 64 << 20
"""Bytes by which what a session says it holds may be too many. An exact look at all its states costs as much as a small
cell, so there is one only when its cells, and the states that were dropped, can have made so much of a difference."""
STRAY_SECONDS = 10.0
"""Within which the processes that a cell left have to be dead; they are in milliseconds."""
BLOCKED = (1 << 64) - 1 - (1 << signal.SIGKILL - 1) - (1 << signal.SIGSTOP - 1)
UNKNOWN = 1 << wire.OBSTACLES.index("unknown")
"""It could not be looked at."""
PROCESS = 1 << wire.OBSTACLES.index("process")
DELETED_FILE = 1 << wire.OBSTACLES.index("deleted file")


class SessionSlot(Slot):
    """One session's supervisor."""

    def serve(self) -> NoReturn:
        """Start the first state, then run cells and go back as the node asks."""
        settings = self._settings
        self._limit_for_good()
        size = f"size={settings['disk_bytes']},nr_inodes={settings['inodes']}"
        self._files = Layers(settings["layers_folder"], self._box, settings["run_uid"] or 0, size, self._proc)
        settings["folders"] = ()  # they are in the first layer
        settings["filter"] = settings.get("session_filter")
        bound = [os.fsencode(path) + b"/" for path, kind in settings["layout"] if kind == "bind"]
        self._read_only = (b"/etc/", *bound)
        self._states: list[State] = []
        self._made: dict[State, int] = {}
        """Bytes that the cells of the kept states made: what no other process had when they ended."""
        self._weighed = self._grown = self._shrunk = 0
        """Bytes of all states at the last exact look, and the most that there can be more and less since."""
        self._begin()
        socket.send_fds(self._control, [bytes([wire.KIND_HELLO])], [os.pidfd_open(os.getpid())])
        self._tell_status(committed=False)
        while True:
            self._wait_idle()
            message = self._control.recv(wire.CELL.size)
            if not message:
                os._exit(0)
            self._files.reclaim()
            if message[0] == wire.KIND_CELL:
                self._cell(*wire.CELL.unpack(message)[1:])
                continue
            if message[0] == wire.KIND_SHED:
                self._shed(wire.SHED.unpack(message)[1])
            else:
                self._go_back(wire.ROLLBACK.unpack(message)[1])
            self._tell_status(committed=False)

    def _begin(self) -> None:
        """A first state, from an interpreter that no cell has touched."""
        self._kill_strays()
        self._reap()
        self._files.cut(0)
        self._files.push()
        ours, theirs = channel()
        null = os.open("/dev/null", os.O_RDWR)
        pid = self._fork(state.main, [null, null, null, null, theirs.fileno()])
        os.close(null)
        theirs.close()
        first = State(pid, ours, 0)
        select.select([self._ready, first.pidfd], [], [])
        self._require_ready()
        self._settle(first)
        self._states.append(first)
        first.folder = self._settings["work"]
        self._weigh()

    def _wait_idle(self) -> None:
        """Until the node speaks. A state that works on its own meanwhile, or whose processes do, is held to the limits
        of a cell. Above them all of it is killed: the next cell will find it so."""
        tree = self._tree(keep=self._states[:-1])
        before = tree.look()[0]
        while not select.select([self._control], [], [], IDLE_LOOK)[0]:
            if self._exceeds(tree, before):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._states[-1].pidfd, signal.SIGKILL)
                self._kill_strays()
                select.select([self._control], [], [])

    def _exceeds(self, tree: Tree, before: float) -> bool:
        """Whether processes have used more CPU time since `before`, or hold more memory, than they may."""
        cpu, held, _ = tree.look()
        if cpu - before > self._settings["cpu_seconds"]:
            return True
        return self._holds_too_much(tree, held, self._settings["session_limits"][0])

    def _within_limits(self) -> bool:
        """Whether the current state, which has been told something and hasn't answered, holds no more than it may."""
        tree = self._tree(keep=self._states[:-1])
        return not self._holds_too_much(tree, tree.look()[1], self._settings["session_limits"][0])

    def _cell(self, rule: int, cpu: float, wall: float, memory: int, output: int, fetch: int) -> None:
        """Run one cell, tell the node how it ended, then keep it or undo it."""
        code, echo, stdin, put = wire.unpack(self._requests)
        files = [os.memfd_create(name, SEALABLE) for name in FILES]
        run.give_stdin(files[0], stdin)  # here, because a state has the session's limit on the size of a file
        request = (code, echo, bool(stdin), put)
        current = self._states[-1]
        in_place = bool(current.obstacles) or self._files.depth >= MOST
        try:
            new = self._start(current, in_place, request, files)
        except (BrokenStateError, OSError):
            # It was waiting when its last cell ended, so this is what that cell, or one before, did to it.
            self._tell_done(wire.BROKEN, signal.SIGKILL, (0.0, 0.0, 0), files, fetch=0)
            self._go_back(current.number - 1)
            self._tell_status(committed=False)
            return
        frozen = self._states[:-1] if in_place else self._states
        limits = (0, cpu, wall, memory, output, fetch)
        reason, ended, used = wire.EXITED, int(signal.SIGKILL), (0.0, 0.0, 0)
        if new is not None:
            reason, ended, used = self._watch_cell(new, limits, files, frozen)
        seal(files[1:])
        if reason == wire.EXITED and flooded(files, output):
            reason = wire.OUTPUT
        if reason == wire.EXITED and not all(lives(self._proc, each) for each in frozen):
            # It has killed a checkpoint. Kept, it would make whoever goes back there find that nobody can.
            reason, ended = wire.GONE, int(signal.SIGKILL)
        success = reason == wire.EXITED and ended == 0
        alive = reason == wire.EXITED and os.WIFEXITED(ended)
        self._tell_done(reason, ended, used, files, fetch)
        committed = alive and (rule == wire.ALWAYS or (rule == wire.ON_SUCCESS and success))
        if new is not None and committed:
            self._keep(new, in_place)
        elif in_place:
            self._go_back(current.number - 1)
        else:
            if new is not None:
                new.close()
            self._go_back(current.number)
        self._tell_status(committed)

    def _start(self, current: State, in_place: bool, request: tuple[Any, ...], files: list[int]) -> State | None:
        """Have the current state run a cell, in a fork of itself or in place; the state in which the cell runs.

        None if that has ended already and isn't even waited for, because the program ignores its children's ends.
        """
        name = f"cell{current.number + 1}.py"
        self._dead = frozenset(filter(self._proc.dead, self._tree(self._states).pids()))
        self._limit_processes(current, len(self._states) - in_place + len(self._dead))
        if in_place:
            current.command((state.IN_PLACE, name, *request), files, self._within_limits)
            hear(current.channel, state.STARTED, self._within_limits)
            return current
        moved = self._freeze(current)
        if self._last_pid >= 0:
            # Its number is the same whatever undone cells have started: they could leave word by it.
            os.pwrite(self._last_pid, b"%d" % max(each.pid for each in self._states), 0)
        ours, theirs = channel()
        with theirs:
            current.command((state.CELL, moved, name, *request), [*files, theirs.fileno()], self._within_limits)
        pid = hear(ours, state.STARTED, self._within_limits)
        if pid in {each.pid for each in self._states}:
            raise BrokenStateError
        stop(self._proc, current, self._within_limits)
        if moved is not None and not self._left(str(pid)):
            raise BrokenStateError
        with contextlib.suppress(OSError):  # of a fork that has ended already
            ours.send(GO)
        try:
            return State(pid, ours, current.number)
        except ProcessLookupError:
            return None

    def _left(self, pid: str) -> bool:
        """Whether a fork has left the files of its checkpoint, as it was told to by code that cells can change.

        Not if it has started a process or shares memory with a file before its cell has begun: either may still be
        there.
        """
        tree = self._tree(self._states, frozenset({pid}))
        deadline = time.monotonic() + DYING_SECONDS
        try:
            while any(not self._proc.dead(other) for other in tree.pids()):
                if time.monotonic() > deadline:  # states that were dropped just now have ended by then
                    return False
                time.sleep(MOMENT)
            maps = self._proc.maps(pid)
            shares = maps is None or shared_mapping(maps, self._read_only)
            return not shares and not self._proc.mounts(pid) & self._files.frozen
        except OSError:
            return self._proc.dead(pid)  # killed, by whomever

    def _tell_done(self, reason: int, ended: int, used: tuple[float, float, int], files: list[int], fetch: int) -> None:
        """Tell the node how a cell ended, and hand over what it left."""
        handed = files[1:]
        if fetch:
            handed.append(open_folder(f"{self._box}/work"))
            self._files.lend()
        cpu, elapsed, peak = used
        done = wire.DONE.pack(wire.KIND_DONE, reason, ended, cpu, elapsed, 0.0, peak)
        socket.send_fds(self._control, [done], handed)
        for descriptor in (*files, *handed[3:]):
            os.close(descriptor)

    def _limit_processes(self, current: State, others: int) -> None:
        """Let the next cell start as many processes as it may, not counting these.

        The kernel counts the states that wait as the session's, too, and the dead ones that nobody has waited for. Only
        the soft limit can go up and down with their number, and cells can't change it. A state that was dropped and
        hasn't ended yet is in neither number: for that moment a cell may start one process less, never one more.
        """
        if "rlimits" in self._layers:
            most = state.most_processes(self._settings)
            *_, allowed, _ = self._settings["session_limits"]
            resource.prlimit(current.pid, resource.RLIMIT_NPROC, (min(allowed + others, most), most))

    def _freeze(self, current: State) -> tuple[str, Opened] | None:
        """Make the current state a checkpoint; what its fork has to open again if its files go to a new layer."""
        current.shared = not self._files.dirty
        if current.shared:
            return None
        self._files.push()
        return current.folder, current.opened

    def _watch_cell(
        self, cell: State, limits: tuple[Any, ...], files: list[int], frozen: list[State]
    ) -> tuple[int, int, tuple[float, float, int]]:
        """Wait for a cell's end: reason, wait status, and what it used (CPU seconds, wall seconds, peak bytes)."""
        began = time.monotonic()
        tree = self._tree(frozen, self._dead)
        before = tree.look()[0] if len(frozen) < len(self._states) else 0.0
        limits = (limits[0], limits[1] + before, *limits[2:])
        poll = select.poll()
        for each in (cell.pidfd, cell.channel, self._control):
            poll.register(each, select.POLLIN)
        reason, status, pause, said, checks = wire.EXITED, -1, LOOK_EVERY, b"", 0
        while reason == wire.EXITED and status < 0:
            ready = {descriptor for descriptor, _ in poll.poll(pause)}
            if self._control.fileno() in ready:
                os._exit(0)
            if cell.channel.fileno() in ready:
                heard = drained(cell.channel)
                if not heard:  # it has closed its end
                    poll.unregister(cell.channel)
                said = (said + heard)[-2:]
            pause = LOOK_EVERY
            if said and waits(self._proc, cell.pid):
                said = (said + drained(cell.channel))[-2:]
                status = (said[1] if said[:1] == state.ENDED else 1) << 8
            elif cell.pidfd in ready:
                status = self._status_of_dead(cell.pid)
                reason = wire.GONE if os.WIFEXITED(status) else wire.EXITED
            elif said and checks < SOON:
                checks += 1
                pause = checks // 10
                time.sleep(MOMENT)  # on its way to waiting, if it means what it said
            else:
                reason, _ = self._judge(tree, limits, files, time.monotonic() - began)
        cpu, peak, _ = tree.look()
        if reason == wire.EXITED and cpu > limits[1]:
            reason = wire.CPU
        if reason not in (wire.EXITED, wire.GONE):
            status = signal.SIGKILL
        return reason, status, (cpu - before, time.monotonic() - began, peak)

    def _status_of_dead(self, pid: int) -> int:
        try:
            return self._proc.exit_status(str(pid))
        except OSError:  # waited for already, because its parent ignores its children's ends
            return signal.SIGKILL

    def _keep(self, new: State, in_place: bool) -> None:
        new.number += 1
        if not in_place:
            self._states.append(new)
        self._settle(new)
        new.obstacles = UNKNOWN
        with contextlib.suppress(OSError):  # dead already, or it changes while we look
            self._look_at(new)
        self._count(new)
        # The first state stays, to begin anew from; of the others the latest ones.
        while len(self._states) > self._settings["checkpoints"] + 2:
            self._drop(1)
        self._reap()

    def _drop(self, index: int) -> None:
        dropped = self._states.pop(index)
        self._shrunk += self._made.pop(dropped, 0)
        dropped.close()

    def _shed(self, most: int) -> None:
        """Drop the oldest kept states until all hold no more than that; the first and the current one stay."""
        self._weigh()
        while self._held > most and len(self._states) > 2:
            pidfd = os.dup(self._states[1].pidfd)
            self._drop(1)
            select.select([pidfd], [], [], STRAY_SECONDS)  # its memory is free when it has ended
            os.close(pidfd)
            self._weigh()
        self._reap()

    def _go_back(self, number: int) -> None:
        """Stand at the latest state that isn't later than `number` and still does what it is told."""
        broken = 0
        while True:
            while self._states and (self._states[-1].number > number or broken >= MOST_BROKEN):
                self._drop(-1)
            if not self._states:
                self._begin()
                return
            try:
                self._return_to(self._states[-1])
            except (BrokenStateError, OSError):  # the latter if its programs have left no room for a layer
                number = self._states[-1].number - 1
                broken += 1
            else:
                return

    def _return_to(self, current: State) -> None:
        """Undo what was done after a state was frozen."""
        self._kill_strays()
        self._files.cut(current.depth)
        if current.shared and self._files.dirty:
            self._files.cut(current.depth - 1)
            self._files.push()
        moved = current.layer != self._files.top
        self._settle(current)
        opened = [each if moved else (each[0], "", *each[2:]) for each in current.opened]
        current.command((state.RESTORE, current.folder if moved else "", opened), [], self._within_limits)
        hear(current.channel, state.RESTORED, self._within_limits)
        self._reap()
        if self._proc.signals(str(current.pid))[1] & BLOCKED:
            raise BrokenStateError  # signals of what was undone, which it should have taken and forgotten

    def _settle(self, current: State) -> None:
        """Note where a state's files are."""
        current.depth, current.layer = self._files.depth, self._files.top

    def _kill_strays(self) -> None:
        """Kill every process that isn't one of the kept states, until none is left."""
        tree = self._tree(self._states)
        deadline = time.monotonic() + STRAY_SECONDS
        while living := [pid for pid in tree.pids() if not self._proc.dead(pid)]:
            if time.monotonic() > deadline:
                os._exit(1)  # and with us all of the namespace
            killed = [pidfd for pid in living if (pidfd := self._kill(pid)) >= 0]
            for pidfd in killed:
                select.select([pidfd], [], [], STRAY_SECONDS)
                os.close(pidfd)
            if any(not self._proc.dead(pid) for pid in tree.pids()):
                # They fork faster than they are killed one by one. This reaches all at once, those that are being
                # forked too; the kept states are among them, and go on when they are next told what to do.
                os.kill(-1, signal.SIGSTOP)

    def _kill(self, pid: str) -> int:
        """Kill a process; a descriptor that is readable when it has ended, or -1 if it has already."""
        try:
            pidfd = os.pidfd_open(int(pid))
        except ProcessLookupError:
            return -1
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return pidfd

    def _tell_status(self, committed: bool) -> None:
        current = self._states[-1]
        if self._grown + self._shrunk >= UNSURE or current.obstacles & (PROCESS | DELETED_FILE):
            self._weigh()
        status = wire.STATUS.pack(wire.KIND_STATUS, current.number, committed, self._held, current.obstacles)
        self._control.send(status)

    @property
    def _held(self) -> int:
        """Bytes of all states and of the session's files."""
        files = os.statvfs(self._settings["layers_folder"])
        return int(self._weighed + self._grown + (files.f_blocks - files.f_bfree) * files.f_frsize)

    def _count(self, new: State) -> None:
        """Note what the cell of a state made."""
        try:
            lines = self._proc.read(f"{new.pid}/smaps_rollup").split(b"\n")
            made = sum(int(line.split()[1]) << 10 for line in lines if line.startswith(b"Private_"))
        except OSError:  # dead, or not ours to see
            made = UNSURE
        self._made[new] = made
        self._grown += made

    def _weigh(self) -> None:
        """Look exactly at what all states hold, with the outputs that they kept, and the processes beside them."""
        now = time.monotonic()
        held = sum(Tree(self._proc, now, only=each.pid).held_exactly() for each in self._states)
        if self._states[-1].obstacles & PROCESS:
            held += self._tree(self._states).held_exactly()
        held += self._proc.memory_files(self._tree([]).pids())
        self._weighed, self._grown, self._shrunk = held, 0, 0

    def _look_at(self, new: State) -> None:
        """Note the folder and open files of a state that waits, and what a fork of it would lose.

        It changes none of them while it waits; only one that can't be forked may, and its open files aren't asked for.
        """
        pid = str(new.pid)
        new.opened, found = self._proc.opened(pid, HARNESS_FDS, self._box)
        if not all(self._proc.is_null(f"{pid}/fd/{each}") for each in state.CELL_FDS):
            found.add("descriptor")
        new.folder = self._proc.short_link(f"{pid}/cwd") or ""
        if not new.folder:
            found.add("long path")
        elif new.folder.endswith(" (deleted)"):
            found.add("deleted file")
        # It blocks them itself, in an interpreter that cells can change.
        if BLOCKED & ~self._proc.signals(pid)[0]:
            found.add("signal")
        if len(self._proc.names(f"{pid}/task")) > 1:
            found.add("thread")
        if any(not self._proc.dead(other) for other in self._tree(self._states).pids()):
            found.add("process")
        maps = self._proc.maps(pid)
        if maps is None or shared_mapping(maps, self._read_only):
            found.add("shared mapping")
        if self._proc.has_timers(pid):
            found.add("timer")
        # A fork has the same `flock`, which a cell could give up, and lacks all other locks.
        if any(b"\nlock:" in self._proc.read(f"{pid}/fdinfo/{each}") for each in self._proc.names(f"{pid}/fd")):
            found.add("lock")
        new.obstacles = sum(1 << wire.OBSTACLES.index(name) for name in found)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _tree(self, keep: list[State], dead: frozenset[str] = frozenset()) -> Tree:
        others = dead.union(str(each.pid) for each in keep)
        return Tree(self._proc, time.monotonic(), others=others)


def shared_mapping(maps: bytes, read_only: tuple[bytes, ...]) -> bool:
    """Whether a process could write to memory that its forks share. A mapping that is only read now can be made
    writable later, unless its file is below a path that nobody may write to."""
    if b"-s " not in maps and b"xs " not in maps:
        return False
    lines = [line.split(maxsplit=5) for line in maps.split(b"\n") if line]
    # By the text alone: what a path leads to is the program's choice where it may make links.
    return any(line[1].endswith(b"s") and not b"".join(line[5:]).startswith(read_only) for line in lines)


def seal(files: list[int]) -> None:
    """Let outputs grow no more: a cell may have kept them, and nobody looks at their size after its end."""
    for descriptor in files:
        with contextlib.suppress(PermissionError):  # where no filter keeps a cell from sealing them against seals
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
