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
import itertools
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from cleaner_sandbox.inside import kernel, run, state, wire
from cleaner_sandbox.inside.layers import MOST, Layers
from cleaner_sandbox.inside.proc import ENDLESS, Opened, ended
from cleaner_sandbox.inside.slot import FILES, LOOK_EVERY, SEALABLE, Slot, flooded, open_folder
from cleaner_sandbox.inside.states import (
    DYING_SECONDS,
    MOMENT,
    BrokenStateError,
    Check,
    State,
    Taken,
    channel,
    drained,
    hear,
    living,
    stands_still,
    stop,
    wait_for,
    waits,
)
from cleaner_sandbox.inside.watch import PAGE_TABLES, Tree

IDLE_LOOK, BUSY_LOOK = 1.0, 0.1
"""Seconds between looks at a state that waits, and at one that goes on by threads or processes that it left."""
IDLE_SHARE, LONGEST_PAUSE = 0.05, 0.5
"""Of its time that a supervisor looks while its session is idle; but it pauses no longer than so many seconds after a
look that took long, in which processes could take what they like."""
SOON = 40
MOST_BROKEN = 2
"""States that are gone back to in vain, each of which may take long to be given up, before all is begun anew."""
GO = b"g"
HARNESS_FDS = 5
"""Stdin, stdout, stderr, report, channel."""
UNSURE = 64 << 20
"""Bytes by which what a session says it holds may be too many. An exact look at all its states costs as much as a small
cell, so there is one only when its cells, and the states that were dropped, can have made so much of a difference."""
STRAY_SECONDS = 30.0
"""Within which the processes that a cell left have to be dead, or the session is given up. They are in milliseconds,
but for those that have made the kernel much to clean up."""
BLOCKED = (1 << 64) - 1 - (1 << signal.SIGKILL - 1) - (1 << signal.SIGSTOP - 1)
UNKNOWN = 1 << wire.OBSTACLES.index("unknown")
"""It could not be looked at."""
PROCESS = 1 << wire.OBSTACLES.index("process")
GOES_ON = PROCESS | UNKNOWN | 1 << wire.OBSTACLES.index("thread")
OWN_PAGES = (b"Private_", b"Swap:")
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
        run.leave_session()  # it works for its session alone, also while nobody waits for that
        # A fork copies what is written since page by page anyway, and `Taken` counts pages by faults.
        kernel.prctl(kernel.PR_SET_THP_DISABLE, 1)
        self._limit_for_good()
        size = f"size={settings['disk_bytes']},nr_inodes={settings['inodes']}"
        given = settings["base_folder"] if settings["base"] else None
        self._files = Layers(settings["layers_folder"], self._box, settings["run_uid"] or 0, size, self._proc, given)
        self._proc.names_in_folder = settings["inodes"]
        settings["folders"] = ()  # they are in the first layer
        settings["filter"] = settings.get("session_filter")
        bound = [os.fsencode(path) + b"/" for path, kind in settings["layout"] if kind == "bind"]
        self._read_only = (b"/etc/", os.fsencode(settings["base_folder"]) + b"/", *bound)
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
        while not waits(self._proc, first.pid) and not self._proc.dead(str(first.pid)):
            time.sleep(MOMENT)
        self._settle(first)
        self._states.append(first)
        self._look_at(first)
        self._weigh()

    def _wait_idle(self) -> None:
        """Until the node speaks. A state that works on its own meanwhile, or whose processes do, is held to the limits
        of a cell. Above them all of it is killed: the next cell will find it so."""
        tree = self._tree(keep=self._states[:-1])
        tree.begin()
        told = tree.look()[1] + self._beside
        pause = usual = BUSY_LOOK if self._states[-1].obstacles & GOES_ON else IDLE_LOOK
        while not select.select([self._control], [], [], pause)[0]:
            begun = time.monotonic()
            self._drop_woken(self._states[:-1])
            cpu, held, _ = tree.look()
            with contextlib.suppress(OSError):  # it is dead
                self._count_taken(self._states[-1])
            if self._exceeds(tree, cpu, held):
                self._end_current()
            elif held + self._beside > told + UNSURE or self._unsure:
                self._weigh()
                self._control.send(wire.HELD.pack(wire.KIND_HELD, self._held))
                told = held + self._beside
            pause = max(usual, min((time.monotonic() - begun) / IDLE_SHARE, LONGEST_PAUSE))

    def _end_current(self) -> None:
        """Kill the current state with all that it left: the next cell will find it so."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._states[-1].pidfd, signal.SIGKILL)
        self._kill_strays()

    def _drop_woken(self, frozen: Iterable[State]) -> None:
        """Drop the checkpoints that were woken or killed: they aren't what they were."""
        for each in [each for each in frozen if not stands_still(self._proc, each)]:
            self._drop(self._states.index(each))

    def _exceeds(self, tree: Tree, cpu: float, held: int) -> bool:
        """Whether processes have used more CPU time, or hold more memory, than they may, by a look at them."""
        if cpu > self._settings["cpu_seconds"]:
            return True
        return self._holds_too_much(tree, held, self._settings["session_limits"][0])

    def _goes_back_within_limits(self) -> Check:
        """Whether the current state, which goes back, keeps to the limits of a cell from now on."""
        tree = self._tree(keep=self._states[:-1])
        tree.begin()
        return lambda: not self._exceeds(tree, *tree.look()[:2])

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
        current = self._states[-1]
        in_place = bool(current.obstacles) or self._files.depth >= MOST
        limits = (0, cpu, wall, memory, output, hand_over)
        beginning = Beginning(
            self._tree(self._states[:-1]), lambda tree, elapsed: self._judge(tree, limits, files, elapsed)[0]
        )
        new = None
        with contextlib.suppress(BrokenStateError, OSError):
            new = self._start(current, in_place, request, given, beginning)
        for descriptor in given[1:]:
            os.close(descriptor)
        if new is None:  # not where the error is handled: a first state that is forked there would have it as a context
            self._not_begun(current, in_place, beginning, files)
            return
        frozen = self._states[:-1] if in_place else self._states
        reason, ended, used = self._watch_cell(new, limits, files, beginning, frozen)
        seal(files[1:])
        if reason == wire.EXITED and flooded(files, output):
            reason = wire.OUTPUT
        if reason in (wire.EXITED, wire.GONE) and not all(stands_still(self._proc, each) for each in frozen):
            # It has killed a checkpoint, or woken it to do its work. Who goes back there would not find what was there.
            reason, ended = wire.GONE, int(signal.SIGKILL)
            self._drop_woken(frozen)
        success = reason == wire.EXITED and ended == 0
        alive = reason == wire.EXITED and os.WIFEXITED(ended)
        self._tell_done(reason, ended, used, files, hand_over & wire.FOLDER)
        committed = alive and (rule == wire.ALWAYS or (rule == wire.ON_SUCCESS and success))
        if committed:
            self._keep(new, in_place)
        elif in_place:
            self._go_back(current.number - 1)
        else:
            new.close()
            self._go_back(current.number)
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
        self._go_back(current.number if late and not in_place else current.number - 1)
        self._tell_status(committed=False)

    def _start(
        self, current: State, in_place: bool, request: tuple[Any, ...], files: list[int], beginning: Beginning
    ) -> State:
        """Have the current state run a cell, in a fork of itself or in place; the state in which the cell runs."""
        run, within_limits = (state.RUN, f"cell{current.number + 1}.py", *request), beginning.within_limits
        if in_place:
            self._limit_processes(current, self._states[:-1])
            current.command(run, files, within_limits)
            hear(current.channel, state.STARTED, within_limits)
            return current
        moved = self._freeze(current)
        last = self._number_after_states()
        there = set(self._proc.pids())
        expected = next(number for number in itertools.count(last + 1) if str(number) not in there)
        ours, theirs = channel()
        with theirs:
            current.command((state.FORK, moved), [theirs.fileno()], within_limits)
        pid = hear(ours, state.STARTED, within_limits)
        if pid in {each.pid for each in self._states}:
            raise BrokenStateError
        stop(self._proc, current, within_limits)
        self._require_unchanged(current)
        self._weigh_if_started(pid if pid == expected else -1)
        if not self._is_apart(str(pid), left=moved is not None):
            raise BrokenStateError
        new = State(pid, ours, current.number)
        try:
            self._limit_processes(new, self._states)
            beginning.forked(self._tree(self._states))
            new.command(run, files, within_limits)
            hear(ours, state.STARTED, within_limits)
        except BaseException:
            new.close()
            raise
        return new

    def _require_unchanged(self, checkpoint: State) -> None:
        """Raise `BrokenStateError` if a checkpoint isn't what it was when its cell ended; count what it took since.

        It was told to fork, by code that cells can change, so it has run once more between that look and its stop.
        Whether it has started more than the fork is `_is_apart`'s to see.
        """
        before = checkpoint.folder, checkpoint.opened, checkpoint.taken
        self._look_at(checkpoint)
        if checkpoint.obstacles & ~PROCESS or (checkpoint.folder, checkpoint.opened) != before[:2]:
            raise BrokenStateError
        checkpoint.obstacles = 0
        self._add_taken(checkpoint, before[2])

    def _number_after_states(self) -> int:
        """Have processes get the numbers after those of the states; the last of these.

        They are the same whatever undone cells have started: those could leave word by them.
        """
        last = max(each.pid for each in self._states)
        if self._last_pid >= 0:
            os.pwrite(self._last_pid, b"%d" % last, 0)
        return last

    def _weigh_if_started(self, last: int) -> None:
        """Look exactly at what all states hold, unless the process or thread that was started last has this number.

        Any other may have had the memory of the state that started it, and its faults are in no count.
        """
        if self._last_pid < 0 or int(os.pread(self._last_pid, 32, 0)) != last:
            self._weigh()

    def _count_taken(self, each: State) -> None:
        """Count what a state has taken since it was last looked at."""
        before, pid = each.taken, str(each.pid)
        each.taken = self._taken(pid, self._proc.maps(pid) or b"")
        self._add_taken(each, before)

    def _add_taken(self, each: State, before: Taken) -> None:
        taken = each.taken.since(before)
        self._grown += taken
        self._made[each] = self._made.get(each, 0) + taken

    def _is_apart(self, pid: str, left: bool) -> bool:
        """Whether a fork is alone and, where it has to have `left` the files of its checkpoint, has done so.

        Code that cells can change has told it to. It isn't if it has started a process or shares memory with a file
        before its cell has begun: either may still be there.
        """
        tree = self._tree(self._states)
        deadline = time.monotonic() + DYING_SECONDS
        try:
            while any(other != pid and not self._proc.dead(other) for other in tree.pids()):
                if time.monotonic() > deadline:  # states that were dropped just now have ended by then
                    return False
                time.sleep(MOMENT)
            maps = self._proc.maps(pid)
            if maps is None or shared_mapping(maps, self._read_only):
                return False
            return not left or not self._proc.mounts(pid) & self._files.frozen
        except OSError:
            return False

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
        for pid in self._tree(states).pids():
            with contextlib.suppress(OSError):  # it ended while we looked
                fields = self._proc.stat(pid)
                found += ended(fields) and fields[1] in parents
        return found

    def _freeze(self, current: State) -> tuple[str, Opened] | None:
        """Make the current state a checkpoint; what its fork has to open again if its files go to a new layer."""
        current.shared = not self._files.dirty
        if current.shared:
            return None
        self._files.push()
        return current.folder, current.opened

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
            self._drop_whole(1)
            self._weigh()
        self._reap()

    def _drop_whole(self, index: int) -> None:
        """Drop a state, and wait until its memory is free, which it is when it has ended."""
        pidfd = os.dup(self._states[index].pidfd)
        self._drop(index)
        select.select([pidfd], [], [], STRAY_SECONDS)
        os.close(pidfd)

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
        if current.frozen and not stands_still(self._proc, current):
            raise BrokenStateError
        current.frozen = False
        self._kill_strays()
        self._files.cut(current.depth)
        if current.shared and self._files.dirty:
            self._files.cut(current.depth - 1)
            self._files.push()
        moved = current.layer != self._files.top
        self._settle(current)
        opened = [each if moved else (each[0], "", *each[2:]) for each in current.opened]
        within_limits = self._goes_back_within_limits()
        last = self._number_after_states()
        current.command((state.RESTORE, current.folder if moved else "", opened), [], within_limits)
        hear(current.channel, state.RESTORED, within_limits)
        wait_for(self._proc, current, within_limits)
        self._count_taken(current)
        self._weigh_if_started(last)
        links = [f"fd/{number}" for number, path, *_ in current.opened if path]
        links += ["cwd"] if current.folder.startswith(self._box) else []
        if any(self._proc.mount_of(f"{current.pid}/{link}") != self._files.mount for link in links):
            raise BrokenStateError  # a file, or its folder, isn't where it should be
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
                self._control.send(bytes([wire.KIND_GIVEN_UP]))
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
        if self._unsure or current.has_folders or current.obstacles & (PROCESS | DELETED_FILE | PIPE):
            self._weigh()
        status = wire.STATUS.pack(wire.KIND_STATUS, current.number, committed, self._held, current.obstacles)
        self._control.send(status)

    @property
    def _unsure(self) -> bool:
        return self._grown + self._shrunk >= UNSURE

    @property
    def _held(self) -> int:
        """Bytes of all states, files and sockets."""
        return int(min(self._weighed + self._grown + self._beside, ENDLESS))

    @property
    def _beside(self) -> int:
        """Bytes of the session's files and sockets, which are no process's."""
        files = os.statvfs(self._settings["layers_folder"])
        return (files.f_blocks - files.f_bfree) * files.f_frsize + self._in_sockets

    def _count(self, new: State) -> None:
        """Note what the cell of a state made."""
        try:
            lines = self._proc.read(f"{new.pid}/smaps_rollup").split(b"\n")
            made = sum(int(line.split()[1]) << 10 for line in lines if line.startswith(OWN_PAGES))
            # Those of a fork are its own, though it shares the pages.
            made += self._proc.status_bytes(str(new.pid), PAGE_TABLES)
        except OSError:  # dead, or not ours to see
            made = UNSURE
        self._made[new] = made
        self._grown += made

    def _weigh(self) -> None:
        """Look exactly at what all states hold, with the outputs that they kept, and the processes beside them."""
        held = self._held_by_states()
        if held >= ENDLESS:
            # A process that hides holds nobody knows what. Above all limits is a verdict and no figure to add up.
            self._end_current()
            self._drop_endless()
            held = self._held_by_states()
        self._weighed, self._grown, self._shrunk = held, 0, 0

    def _drop_endless(self) -> None:
        """Drop the kept states that hold nobody knows what; the first one has run no cell."""
        for each in self._states[1:-1]:
            if self._held_by(Tree(self._proc, time.monotonic(), only=each.pid)) >= ENDLESS:
                self._drop_whole(self._states.index(each))

    def _held_by_states(self) -> int:
        return self._held_by(self._tree([]))

    def _held_by(self, tree: Tree) -> int:
        tree.count_objects()
        return tree.held_exactly() + self._proc.memory_files(tree.pids())

    def _look_at(self, new: State) -> None:
        """Note the folder and open files of a state that waits, what a fork of it would lose, and what it has taken.

        It changes none of them while it waits; only one that can't be forked may, and its open files aren't asked for.
        """
        pid = str(new.pid)
        new.opened, found = self._proc.opened(pid, HARNESS_FDS, self._box)
        new.has_folders = any(self._proc.is_folder(f"{pid}/fd/{number}") for number, *_ in new.opened)
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
        new.taken = self._taken(pid, maps or b"")
        if self._proc.has_timers(pid):
            found.add("timer")
        # A fork has the same `flock`, which a cell could give up, and lacks all other locks.
        if any(b"\nlock:" in self._proc.read(f"{pid}/fdinfo/{each}") for each in self._proc.names(f"{pid}/fd")):
            found.add("lock")
        new.obstacles = sum(1 << wire.OBSTACLES.index(name) for name in found)

    def _taken(self, pid: str, maps: bytes) -> Taken:
        return Taken(self._proc.faults(pid), self._proc.status_bytes(pid, PAGE_TABLES), maps.count(b"\n"))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _tree(self, keep: list[State]) -> Tree:
        kept = list(keep)
        return Tree(self._proc, time.monotonic(), others=lambda: living(kept))


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
