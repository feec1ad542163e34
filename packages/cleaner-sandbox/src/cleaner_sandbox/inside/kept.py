"""The states that one session keeps, and going back to one of them.

The first state has run no cell, the last one is the current one, which the next cell begins from. Those between are
checkpoints: stopped, and dropped when they don't stand still any more.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from cleaner_sandbox.inside import state, wire
from cleaner_sandbox.inside.account import Account
from cleaner_sandbox.inside.layers import Layers
from cleaner_sandbox.inside.proc import ENDLESS, Opened, Proc, ended
from cleaner_sandbox.inside.states import (
    DYING_SECONDS,
    MOMENT,
    BrokenStateError,
    Check,
    State,
    hear,
    living,
    stands_still,
    wait_for,
)
from cleaner_sandbox.inside.watch import Tree

MOST_BROKEN = 2
"""States that are gone back to in vain, each of which may take long to be given up, before all is begun anew."""
HARNESS_FDS = 5
"""Stdin, stdout, stderr, report, channel."""
STRAY_SECONDS = 30.0
"""Within which the processes that a cell left have to be dead, or the session is given up. They are in milliseconds,
but for those that have made the kernel much to clean up."""
BLOCKED = (1 << 64) - 1 - (1 << signal.SIGKILL - 1) - (1 << signal.SIGSTOP - 1)
UNKNOWN = 1 << wire.OBSTACLES.index("unknown")
"""It could not be looked at."""
PROCESS = 1 << wire.OBSTACLES.index("process")


class KeptStates:
    """The states, their files and what they hold."""

    def __init__(
        self,
        proc: Proc,
        files: Layers,
        account: Account,
        settings: dict[str, Any],
        last_pid: int,
        *,
        fork_first: Callable[[], State],
        exceeds: Callable[[Tree, float, int], bool],
        give_up: Callable[[], NoReturn],
    ) -> None:
        """`fork_first` makes a state that no cell has touched. `exceeds` says whether processes are above the limits of
        a cell, by what a look found, and `give_up` ends the session."""
        self.files, self.account = files, account
        self._proc, self._last_pid = proc, last_pid
        self._box: str = settings["box"]
        self._most: int = settings["checkpoints"] + 2
        """The first, the current one, and the checkpoints between them."""
        bound = [os.fsencode(path) + b"/" for path, kind in settings["layout"] if kind == "bind"]
        self._read_only = (b"/etc/", os.fsencode(settings["files_folder"]) + b"/", *bound)
        self._fork_first, self._exceeds, self._give_up = fork_first, exceeds, give_up
        self.all: list[State] = []

    @property
    def current(self) -> State:
        """The state that the next cell begins from."""
        return self.all[-1]

    @property
    def earlier(self) -> list[State]:
        """All but the current one."""
        return self.all[:-1]

    def tree(self, keep: list[State]) -> Tree:
        """Return the session's processes but for these states."""
        kept = list(keep)
        return Tree(self._proc, time.monotonic(), others=lambda: living(kept))

    def begin(self) -> None:
        """A first state, from an interpreter that no cell has touched."""
        self._kill_strays()
        self._reap()
        self.files.cut(0)
        self.files.push()
        first = self._fork_first()
        self._settle(first)
        self.all.append(first)
        self.look_at(first)
        self.weigh()

    def keep(self, new: State, in_place: bool) -> None:
        """Keep the state that a cell has made: a new one, or the current one if the cell ran `in_place`."""
        new.number += 1
        if not in_place:
            self.all.append(new)
        self._settle(new)
        new.obstacles = UNKNOWN
        with contextlib.suppress(OSError):  # dead already, or it changes while we look
            self.look_at(new)
        self.account.count(new)
        # The first state stays, to begin anew from; of the others the latest ones.
        while len(self.all) > self._most:
            self._drop(1)
        self._reap()

    def freeze(self, current: State) -> tuple[str, Opened] | None:
        """Make the current state a checkpoint; what its fork has to open again if its files go to a new layer."""
        current.shared = not self.files.dirty
        if current.shared:
            return None
        self.files.push()
        return current.folder, current.opened

    def go_back(self, number: int) -> None:
        """Stand at the latest state that isn't later than `number` and still does what it is told."""
        broken = 0
        while True:
            while self.all and (self.current.number > number or broken >= MOST_BROKEN):
                self._drop(-1)
            if not self.all:
                self.begin()
                return
            try:
                self._return_to(self.current)
            except (BrokenStateError, OSError):  # the latter if its programs have left no room for a layer
                number = self.current.number - 1
                broken += 1
            else:
                return

    def shed(self, most: int) -> None:
        """Drop the oldest kept states until all hold no more than that; the first and the current one stay."""
        self.weigh()
        while self.account.held > most and len(self.all) > 2:
            self._drop_whole(1)
            self.weigh()
        self._reap()

    def drop_woken(self, frozen: Iterable[State]) -> None:
        """Drop the checkpoints that were woken or killed: they aren't what they were."""
        for each in [each for each in frozen if not stands_still(self._proc, each)]:
            self._drop(self.all.index(each))

    def end_current(self) -> None:
        """Kill the current state with all that it left: the next cell will find it so."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.current.pidfd, signal.SIGKILL)
        self._kill_strays()

    def weigh(self) -> None:
        """Look exactly at what all states hold."""
        held = self.account.weigh()
        if held >= ENDLESS:
            # A process that hides holds nobody knows what. Above all limits is a verdict and no figure to add up.
            self.end_current()
            self._drop_endless()
            held = self.account.weigh()
        self.account.set_weighed(held)

    def weigh_if_started(self, last: int) -> None:
        """Look exactly at what all states hold, unless the process or thread that was started last has this number.

        Any other may have had the memory of the state that started it, and its faults are in no count.
        """
        if self._last_pid < 0 or int(os.pread(self._last_pid, 32, 0)) != last:
            self.weigh()

    def number_after_states(self) -> int:
        """Have processes get the numbers after those of the states; the last of these.

        They are the same whatever undone cells have started: those could leave word by them.
        """
        last = max(each.pid for each in self.all)
        if self._last_pid >= 0:
            os.pwrite(self._last_pid, b"%d" % last, 0)
        return last

    def look_at(self, new: State) -> None:
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
        if any(self._is_left(other, new) for other in self.tree(self.all).pids()):
            found.add("process")
        maps = self._proc.maps(pid)
        if maps is None or shared_mapping(maps, self._read_only):
            found.add("shared mapping")
        new.taken = self.account.taken(pid, maps or b"")
        if self._proc.has_timers(pid):
            found.add("timer")
        # A fork has the same `flock`, which a cell could give up, and lacks all other locks.
        if any(b"\nlock:" in self._proc.read(f"{pid}/fdinfo/{each}") for each in self._proc.names(f"{pid}/fd")):
            found.add("lock")
        new.obstacles = sum(1 << wire.OBSTACLES.index(name) for name in found)

    def _is_left(self, pid: str, new: State) -> bool:
        """Whether a process goes on, or has ended and is a child of a state, which alone can ask for its exit code."""
        try:
            fields = self._proc.stat(pid)
        except OSError:  # it ended while we looked
            return False
        return not ended(fields) or int(fields[1]) == new.pid

    def require_unchanged(self, checkpoint: State) -> None:
        """Raise `BrokenStateError` if a checkpoint isn't what it was when its cell ended; count what it took since.

        It was told to fork, by code that cells can change, so it has run once more between that look and its stop.
        Whether it has started more than the fork is `is_apart`'s to see.
        """
        before = checkpoint.folder, checkpoint.opened, checkpoint.taken
        self.look_at(checkpoint)
        if checkpoint.obstacles & ~PROCESS or (checkpoint.folder, checkpoint.opened) != before[:2]:
            raise BrokenStateError
        checkpoint.obstacles = 0
        self.account.add_taken(checkpoint, before[2])

    def is_apart(self, pid: str, left: bool) -> bool:
        """Whether a fork is alone and, where it has to have `left` the files of its checkpoint, has done so.

        Code that cells can change has told it to. It isn't if it has started a process or shares memory with a file
        before its cell has begun: either may still be there.
        """
        tree = self.tree(self.all)
        deadline = time.monotonic() + DYING_SECONDS
        try:
            while any(other != pid and not self._proc.dead(other) for other in tree.pids()):
                if time.monotonic() > deadline:  # states that were dropped just now have ended by then
                    return False
                time.sleep(MOMENT)
            maps = self._proc.maps(pid)
            if maps is None or shared_mapping(maps, self._read_only):
                return False
            return not left or not self._proc.mounts(pid) & self.files.frozen
        except OSError:
            return False

    def _return_to(self, current: State) -> None:
        """Undo what was done after a state was frozen."""
        if current.frozen and not stands_still(self._proc, current):
            raise BrokenStateError
        current.frozen = False
        self._kill_strays()
        self.files.cut(current.depth)
        if current.shared and self.files.dirty:
            self.files.cut(current.depth - 1)
            self.files.push()
        moved = current.layer != self.files.top
        self._settle(current)
        opened = [each if moved else (each[0], "", *each[2:]) for each in current.opened]
        within_limits = self._within_limits()
        last = self.number_after_states()
        current.command((state.RESTORE, current.folder if moved else "", opened), [], within_limits)
        hear(current.channel, state.RESTORED, within_limits)
        wait_for(self._proc, current, within_limits)
        self.account.count_taken(current)
        self.weigh_if_started(last)
        links = [f"fd/{number}" for number, path, *_ in current.opened if path]
        links += ["cwd"] if current.folder.startswith(self._box) else []
        if any(self._proc.mount_of(f"{current.pid}/{link}") != self.files.mount for link in links):
            raise BrokenStateError  # a file, or its folder, isn't where it should be
        self._reap()
        if self._proc.signals(str(current.pid))[1] & BLOCKED:
            raise BrokenStateError  # signals of what was undone, which it should have taken and forgotten

    def _within_limits(self) -> Check:
        """Whether the current state, which goes back, keeps to the limits of a cell from now on."""
        tree = self.tree(keep=self.earlier)
        tree.begin()
        return lambda: not self._exceeds(tree, *tree.look()[:2])

    def _settle(self, current: State) -> None:
        """Note where a state's files are."""
        current.depth, current.layer = self.files.depth, self.files.top

    def _drop(self, index: int) -> None:
        dropped = self.all.pop(index)
        self.account.forget(dropped)
        dropped.close()

    def _drop_whole(self, index: int) -> None:
        """Drop a state, and wait until its memory is free, which it is when it has ended."""
        pidfd = os.dup(self.all[index].pidfd)
        self._drop(index)
        select.select([pidfd], [], [], STRAY_SECONDS)
        os.close(pidfd)

    def _drop_endless(self) -> None:
        """Drop the kept states that hold nobody knows what; the first one has run no cell."""
        for each in self.all[1:-1]:
            if self.account.weigh(only=each) >= ENDLESS:
                self._drop_whole(self.all.index(each))

    def _kill_strays(self) -> None:
        """Kill every process that isn't one of the kept states, until none is left."""
        tree = self.tree(self.all)
        deadline = time.monotonic() + STRAY_SECONDS
        while living := [pid for pid in tree.pids() if not self._proc.dead(pid)]:
            if time.monotonic() > deadline:
                self._give_up()
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

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def shared_mapping(maps: bytes, read_only: tuple[bytes, ...]) -> bool:
    """Whether a process could write to memory that its forks share. A mapping that is only read now can be made
    writable later, unless its file is below a path that nobody may write to."""
    if b"-s " not in maps and b"xs " not in maps:
        return False
    lines = [line.split(maxsplit=5) for line in maps.split(b"\n") if line]
    # By the text alone: what a path leads to is the program's choice where it may make links.
    return any(line[1].endswith(b"s") and not b"".join(line[5:]).startswith(read_only) for line in lines)
