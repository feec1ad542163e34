"""The supervisor of one session: it runs the cells, and decides which of them may stay.

`kept` holds the states and goes back to them, `account` says how much memory they hold.

Before a cell it lets the current state fork, so the state is a checkpoint from then on. After the cell it decides, by
what it saw itself, whether the new state stays; if not, it kills it, takes off what it wrote, and has the old state put
its open files back. A state that can't be forked without loss (it has threads, children, sockets, ...) runs its next
cell in place; then there is nothing to go back to but an earlier state, from which the node runs the committed cells
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

from cleaner_sandbox.inside import kernel, run, state, wire
from cleaner_sandbox.inside.account import UNSURE, Account
from cleaner_sandbox.inside.kept import PROCESS, UNKNOWN, KeptStates
from cleaner_sandbox.inside.layers import MOST, Layers
from cleaner_sandbox.inside.proc import ended
from cleaner_sandbox.inside.slot import FILES, LOOK_EVERY, SEALABLE, Slot, flooded, open_folder
from cleaner_sandbox.inside.states import (
    MOMENT,
    BrokenStateError,
    State,
    channel,
    drained,
    hear,
    stands_still,
    stop,
    waits,
)
from cleaner_sandbox.inside.watch import Tree

IDLE_LOOK, BUSY_LOOK = 1.0, 0.1
"""Seconds between looks at a state that waits, and at one that goes on by threads or processes that it left."""
IDLE_SHARE, LONGEST_PAUSE = 0.05, 0.5
"""Of its time that a supervisor looks while its session is idle; but it pauses no longer than so many seconds after a
look that took long, in which processes could take what they like."""
SOON = 40
GOES_ON = PROCESS | UNKNOWN | 1 << wire.OBSTACLES.index("thread")
DELETED_FILE = 1 << wire.OBSTACLES.index("deleted file")
PIPE = 1 << wire.OBSTACLES.index("pipe")


class Beginning:
    """From the moment a state gets a cell, until the cell's code begins."""

    def __init__(self, tree: Tree, judge: Callable[[Tree, float], int]) -> None:
        """`tree`: the state, and all processes that aren't kept. `judge` says which limit it hits after a time."""
        self.tree = tree
        self.cell = tree
        """The processes of the cell."""
        self.spent = 0.0
        """CPU seconds that were used before the tree of the cell began to count."""
        self.reason = wire.EXITED
        """The limit that was hit."""
        self._judge = judge
        self._began = time.monotonic()
        tree.begin()

    @property
    def elapsed(self) -> float:
        """Seconds since then, also when it is over."""
        return time.monotonic() - self._began

    def within_limits(self) -> bool:
        """Whether no limit of the cell is hit yet."""
        self.reason = self._judge(self.tree, self.elapsed)
        return self.reason == wire.EXITED

    def used(self) -> float:
        """CPU seconds in it; nothing if it was too short for a look."""
        return self.tree.look()[0] if self.elapsed > LOOK_EVERY / 1000 else 0.0

    def forked(self, cell: Tree) -> None:
        """Go on with the processes of a fork alone: the state is a checkpoint now."""
        self.spent, self.cell = self.used(), cell
        cell.begin()


class SessionSlot(Slot):
    """One session's supervisor."""

    def serve(self) -> NoReturn:
        """Start the first state, then run cells and go back as the node asks."""
        settings = self._settings
        self._counted = None  # the states share the cgroup, and each has limits of its own
        run.leave_session()  # it works for its session alone, also while nobody waits for that
        # A fork copies what is written since page by page anyway, and `Taken` counts pages by faults.
        kernel.prctl(kernel.PR_SET_THP_DISABLE, 1)
        self._limit_for_good()
        size = f"size={settings['disk_bytes']},nr_inodes={settings['inodes']}"
        files = Layers(settings["layers_folder"], self._box, settings["run_uid"] or 0, size, self._proc, self._given)
        self._proc.names_in_folder = settings["inodes"]
        settings["folders"] = ()  # they are in the first layer
        settings["filter"] = settings.get("session_filter")
        self._account = Account(self._proc, settings["layers_folder"], lambda: self._in_sockets)
        self._kept = KeptStates(
            self._proc,
            files,
            self._account,
            settings,
            self._last_pid,
            fork_first=self._fork_first,
            exceeds=self._exceeds,
            give_up=self._give_up,
        )
        self._kept.begin()
        socket.send_fds(self._control, [bytes([wire.KIND_HELLO])], [os.pidfd_open(os.getpid())])
        self._tell_status(committed=False)
        while True:
            self._wait_idle()
            message = self._control.recv(wire.CELL.size)
            if not message:
                os._exit(0)
            self._kept.files.reclaim()
            if message[0] == wire.KIND_CELL:
                self._cell(*wire.CELL.unpack(message)[1:])
                continue
            if message[0] == wire.KIND_SHED:
                self._kept.shed(wire.SHED.unpack(message)[1])
            else:
                self._kept.go_back(wire.ROLLBACK.unpack(message)[1])
            self._tell_status(committed=False)

    def _fork_first(self) -> State:
        """A state in which no cell has run."""
        ours, theirs = channel()
        null = os.open("/dev/null", os.O_RDWR)
        pid = self._fork(state.main, [null, null, null, null, theirs.fileno()])
        os.close(null)
        theirs.close()
        first = State(pid, ours, 0)
        select.select([self._ready, first.pidfd], [], [])
        self._require_ready()
        while not waits(self._proc, first.pid) and not self._proc.dead(str(first.pid)):
            time.sleep(MOMENT)
        return first

    def _give_up(self) -> NoReturn:
        """End the session, and with us all of its namespace."""
        self._control.send(bytes([wire.KIND_GIVEN_UP]))
        os._exit(1)

    def _wait_idle(self) -> None:
        """Until the node speaks. A state that works on its own meanwhile, or whose processes do, is held to the limits
        of a cell. Above them all of it is killed: the next cell will find it so."""
        tree = self._kept.tree(keep=self._kept.earlier)
        tree.begin()
        told = tree.look()[1] + self._account.beside
        pause = usual = BUSY_LOOK if self._kept.current.obstacles & GOES_ON else IDLE_LOOK
        while not select.select([self._control], [], [], pause)[0]:
            begun = time.monotonic()
            self._kept.drop_woken(self._kept.earlier)
            cpu, held, _ = tree.look()
            with contextlib.suppress(OSError):  # it is dead
                self._account.count_taken(self._kept.current)
            if self._exceeds(tree, cpu, held):
                self._kept.end_current()
            elif held + self._account.beside > told + UNSURE or self._account.unsure:
                self._kept.weigh()
                self._control.send(wire.HELD.pack(wire.KIND_HELD, self._account.held))
                told = held + self._account.beside
            pause = max(usual, min((time.monotonic() - begun) / IDLE_SHARE, LONGEST_PAUSE))

    def _exceeds(self, tree: Tree, cpu: float, held: int) -> bool:
        """Whether processes have used more CPU time, or hold more memory, than they may, by a look at them."""
        if cpu > self._settings["cpu_seconds"]:
            return True
        return self._holds_too_much(tree, held, self._settings["session_limits"][0])

    def _cell(self, rule: int, cpu: float, wall: float, memory: int, output: int, hand_over: int) -> None:
        """Run one cell, tell the node how it ended, then keep it or undo it."""
        code, echo, display_bytes, stdin, put = wire.unpack(self._requests)
        files = [os.memfd_create(name, SEALABLE) for name in FILES]
        if hand_over & wire.OUTPUT_FILES:
            socket.send_fds(self._control, [bytes([wire.KIND_OUTPUT])], files[1:3])
        # What can't be read can't be mapped: emptied and sealed by the node, outputs that a cell keeps hold nothing.
        given = [files[0], *map(self._proc.write_only, files[1:])]
        run.give_stdin(files[0], stdin)  # here, because a state has the session's limit on the size of a file
        request = (code, echo, display_bytes, bool(stdin), put)
        current = self._kept.current
        in_place = bool(current.obstacles) or self._kept.files.depth >= MOST
        limits = (0, cpu, wall, memory, output, hand_over)
        beginning = Beginning(
            self._kept.tree(self._kept.earlier), lambda tree, elapsed: self._judge(tree, limits, files, elapsed)[0]
        )
        new = None
        with contextlib.suppress(BrokenStateError, OSError):
            new = self._start(current, in_place, request, given, beginning)
        for descriptor in given[1:]:
            os.close(descriptor)
        if new is None:  # not where the error is handled: a first state that is forked there would have it as a context
            self._not_begun(current, in_place, beginning, files)
            return
        frozen = self._kept.earlier if in_place else self._kept.all
        reason, ended, used = self._watch_cell(new, limits, files, beginning, frozen)
        seal(files[1:])
        if reason == wire.EXITED and flooded(files, output):
            reason = wire.OUTPUT
        if reason in (wire.EXITED, wire.GONE) and not all(stands_still(self._proc, each) for each in frozen):
            # It has killed a checkpoint, or woken it to do its work. Who goes back there would not find what was there.
            reason, ended = wire.GONE, int(signal.SIGKILL)
            self._kept.drop_woken(frozen)
        success = reason == wire.EXITED and ended == 0
        alive = reason == wire.EXITED and os.WIFEXITED(ended)
        self._tell_done(reason, ended, used, files, hand_over & wire.FOLDER)
        committed = alive and (rule == wire.ALWAYS or (rule == wire.ON_SUCCESS and success))
        if committed:
            self._kept.keep(new, in_place)
        elif in_place:
            self._kept.go_back(current.number - 1)
        else:
            new.close()
            self._kept.go_back(current.number)
        self._tell_status(committed)

    def _not_begun(self, current: State, in_place: bool, beginning: Beginning, files: list[int]) -> None:
        """Tell the node of a cell whose code never ran.

        The state was waiting when its last cell ended, so this is what that cell, or one before, did to it. Only time
        passes on a busy machine, too, so a cell that has none left for itself is undone alone; but one that was sent to
        the state itself may run yet.
        """
        late = beginning.reason in (wire.WALL, wire.STARVED)
        reason = beginning.reason if late else wire.BROKEN
        self._tell_done(reason, signal.SIGKILL, (beginning.used(), beginning.elapsed, 0), files, fetch=0)
        self._kept.go_back(current.number if late and not in_place else current.number - 1)
        self._tell_status(committed=False)

    def _start(
        self, current: State, in_place: bool, request: tuple[Any, ...], files: list[int], beginning: Beginning
    ) -> State:
        """Have the current state run a cell, in a fork of itself or in place; the state in which the cell runs."""
        run, within_limits = (state.RUN, f"cell{current.number + 1}.py", *request), beginning.within_limits
        if in_place:
            self._limit_processes(current, self._kept.earlier)
            current.command(run, files, within_limits)
            hear(current.channel, state.STARTED, within_limits)
            return current
        moved = self._kept.freeze(current)
        last = self._kept.number_after_states()
        there = set(self._proc.pids())
        expected = next(number for number in itertools.count(last + 1) if str(number) not in there)
        ours, theirs = channel()
        with theirs:
            current.command((state.FORK, moved), [theirs.fileno()], within_limits)
        pid = hear(ours, state.STARTED, within_limits)
        if pid in {each.pid for each in self._kept.all}:
            raise BrokenStateError
        stop(self._proc, current, within_limits)
        self._kept.require_unchanged(current)
        self._kept.weigh_if_started(pid if pid == expected else -1)
        if not self._kept.is_apart(str(pid), left=moved is not None):
            raise BrokenStateError
        new = State(pid, ours, current.number)
        try:
            self._limit_processes(new, self._kept.all)
            beginning.forked(self._kept.tree(self._kept.all))
            new.command(run, files, within_limits)
            hear(ours, state.STARTED, within_limits)
        except BaseException:
            new.close()
            raise
        return new

    def _watch_cell(
        self, cell: State, limits: tuple[Any, ...], files: list[int], beginning: Beginning, frozen: list[State]
    ) -> tuple[int, int, tuple[float, float, int]]:
        """Wait for a cell's end: reason, wait status, and what it used (CPU seconds, wall seconds, peak bytes).

        What was used from the command on until the cell began is the cell's: code of cells before it may run there.
        """
        tree = beginning.cell
        limits = (limits[0], limits[1] - beginning.spent, *limits[2:])
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
                # An end is two bytes; a program can write anything.
                status = (said[1] if len(said) == 2 and said[:1] == state.ENDED else 1) << 8
            elif cell.pidfd in ready:
                status = self._status_of_dead(cell.pid)
                reason = wire.GONE if os.WIFEXITED(status) else wire.EXITED
            elif said and checks < SOON:
                checks += 1
                pause = checks // 10
                time.sleep(MOMENT)  # on its way to waiting, if it means what it said
            else:
                reason, _ = self._judge(tree, limits, files, beginning.elapsed)
                if reason == wire.EXITED and not all(stands_still(self._proc, each) for each in frozen):
                    reason = wire.GONE
        cpu, peak, _ = tree.look()
        if reason == wire.EXITED and cpu > limits[1]:
            reason = wire.CPU
        if reason not in (wire.EXITED, wire.GONE):
            status = signal.SIGKILL
        return reason, status, (cpu + beginning.spent, beginning.elapsed, peak)

    def _status_of_dead(self, pid: int) -> int:
        try:
            return self._proc.exit_status(str(pid))
        except OSError:  # waited for already, because its parent ignores its children's ends
            return signal.SIGKILL

    def _limit_processes(self, cell: State, frozen: list[State]) -> None:
        """Let the next cell start as many processes as it may, not counting these.

        The kernel counts the states that wait as the session's, too, and their dead children, which nobody else can
        wait for. Only the soft limit can go up and down with their number, and cells can't change it. A state that was
        dropped and hasn't ended yet is in neither number: for that moment a cell may start one process less, never one
        more.
        """
        if "rlimits" in self._layers:
            most = state.most_processes(self._settings)
            *_, allowed, _ = self._settings["session_limits"]
            allowed += len(frozen) + self._dead_children(frozen)
            resource.prlimit(cell.pid, resource.RLIMIT_NPROC, (min(allowed, most), most))

    def _dead_children(self, states: list[State]) -> int:
        parents = {b"%d" % each.pid for each in states}
        found = 0
        for pid in self._kept.tree(states).pids():
            with contextlib.suppress(OSError):  # it ended while we looked
                fields = self._proc.stat(pid)
                found += ended(fields) and fields[1] in parents
        return found

    def _tell_done(self, reason: int, ended: int, used: tuple[float, float, int], files: list[int], fetch: int) -> None:
        """Tell the node how a cell ended, and hand over what it left."""
        handed = files[1:]
        if fetch:
            handed.append(open_folder(f"{self._box}/work"))
            self._kept.files.lend()
        cpu, elapsed, peak = used
        done = wire.DONE.pack(wire.KIND_DONE, reason, ended, cpu, elapsed, 0.0, peak)
        socket.send_fds(self._control, [done], handed)
        for descriptor in (*files, *handed[3:]):
            os.close(descriptor)

    def _tell_status(self, committed: bool) -> None:
        current = self._kept.current
        if self._account.unsure or current.has_folders or current.obstacles & (PROCESS | DELETED_FILE | PIPE):
            self._kept.weigh()
        status = wire.STATUS.pack(wire.KIND_STATUS, current.number, committed, self._account.held, current.obstacles)
        self._control.send(status)


def seal(files: list[int]) -> None:
    """Let outputs grow no more: a cell may have kept them, and nobody looks at their size after its end."""
    for descriptor in files:
        with contextlib.suppress(PermissionError):  # where no filter keeps a cell from sealing them against seals
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
