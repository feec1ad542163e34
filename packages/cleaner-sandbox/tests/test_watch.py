"""What a supervisor makes of what the kernel says of a run: which time was spent waiting for a CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_sandbox.inside import watch, wire
from cleaner_sandbox.inside.proc import ENDLESS, LONGEST_LOOK, LOOKS, Proc
from cleaner_sandbox.inside.slot import Slot
from cleaner_sandbox.inside.watch import Tree

LOOK = 0.025
Look = Callable[..., float]


class Machine(Proc):
    """Processes of one thread each, as told: state and seconds that each has run and waited."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.processes: dict[str, tuple[str, float, float]] = {}

    def pids(self) -> list[str]:
        return list(self.processes)

    def stat(self, pid: str) -> list[bytes]:
        return [self.processes[pid][0].encode(), *[b"0"] * 30]

    def status_bytes(self, pid: str, *names: bytes) -> int:
        return 0

    def kernel_objects(self, pid: str) -> tuple[int, frozenset[str]]:
        return 0, frozenset()

    def threads(self, pid: str) -> dict[str, tuple[int, int]]:
        _, ran, waited = self.processes[pid]
        return {pid: (round(ran * 1e9), round(waited * 1e9))}


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Look:
    """Look at a run that begins now, so many seconds after the last look: what it waited."""
    machine = Machine()
    monkeypatch.setattr(time, "monotonic", lambda: machine.now)
    tree = Tree(machine, machine.now)

    def look(after: float = LOOK, **processes: tuple[str, float, float]) -> float:
        machine.now += after
        machine.processes = processes
        return tree.look()[2]

    return look


def test_a_wait_of_many_looks_counts_in_full(look: Look) -> None:
    """As the kernel tells it: in one lump, when the thread runs again."""
    for turn in range(10):
        for _ in range(7):
            look(main=("R", turn * 0.005, turn * 0.2))
        waited = look(main=("R", turn * 0.005 + 0.005, turn * 0.2 + 0.195))
    assert waited == pytest.approx(10 * 0.2 - 0.005)


def test_a_wait_that_is_not_over_counts_so_far(look: Look) -> None:
    look(main=("R", 0.01, 0.0))
    for looks in range(1, 20):
        assert look(main=("R", 0.01, 0.0)) == pytest.approx(looks * LOOK)
    assert look(main=("R", 0.02, 0.45)) == pytest.approx(0.45)


def test_what_only_looked_like_waiting_is_not_kept(look: Look) -> None:
    look(main=("R", 0.01, 0.0))
    assert look(main=("R", 0.01, 0.0)) == pytest.approx(LOOK)
    assert look(main=("R", 0.06, 0.0)) == 0


@pytest.mark.parametrize("state", ["S", "D", "T", "Z"])
def test_nobody_waits_asleep(look: Look, state: str) -> None:
    for _ in range(40):
        assert look(main=(state, 0.01, 0.0)) == 0


def test_many_that_wait_at_once_wait_once(look: Look) -> None:
    look(a=("R", 0.01, 0.0), b=("R", 0.01, 0.0))
    for _ in range(8):
        look(a=("R", 0.01, 0.0), b=("R", 0.01, 0.0))
    look(a=("R", 0.02, 0.2), b=("R", 0.01, 0.0))
    assert look(a=("R", 0.04, 0.2), b=("R", 0.02, 0.22)) == pytest.approx(0.22)


def test_who_waits_after_another_has_waited_adds_to_it(look: Look) -> None:
    """A program that waits for its children, one after the other, each of which is gone when the next one waits."""
    parent = ("S", 0.01, 0.0)
    look(parent=parent)
    for child in range(5):
        for _ in range(4):
            look(parent=parent, **{f"child{child}": ("R", 0.0, 0.0)})
        look(parent=parent, **{f"child{child}": ("R", 0.01, 0.1)})
        waited = look(parent=parent)
    assert waited == pytest.approx(0.5)


def test_processes_that_take_turns_add_up(look: Look) -> None:
    look(a=("S", 0.01, 0.0), b=("S", 0.01, 0.0))
    for turn in range(1, 5):
        look(0.1, a=("R", 0.01 * turn, 0.1 * turn), b=("S", 0.01 * turn, 0.1 * (turn - 1)))
        look(a=("S", 0.01 * turn, 0.1 * turn), b=("S", 0.01 * turn, 0.1 * (turn - 1)))
        waited = look(0.1, a=("S", 0.01 * turn, 0.1 * turn), b=("R", 0.01 * turn, 0.1 * turn))
    assert waited == pytest.approx(0.8)


def test_what_was_waited_before_the_run_is_none_of_it(look: Look) -> None:
    """A session's interpreter has the waits of all its cells."""
    assert look(main=("S", 9.0, 60.0)) <= LOOK
    assert look(1.0, main=("R", 9.1, 60.5)) == pytest.approx(0.5 + LOOK)


def test_no_run_waits_longer_than_it_is_there(look: Look) -> None:
    look(main=("R", 0.01, 0.02))
    assert look(main=("R", 0.01, 5.0)) == pytest.approx(2 * LOOK)


def used(monkeypatch: pytest.MonkeyPatch, short: tuple[str, float, float], waited_for: float = 0.0) -> float:
    """Return what counts as the CPU time of four seconds in which each look sees another short process."""
    machine = Machine()
    monkeypatch.setattr(time, "monotonic", lambda: machine.now)
    tree = Tree(machine, machine.now)
    cpu = 0.0
    for number in range(160):
        machine.now += LOOK
        machine.processes = {"2": ("S", waited_for * number / 160, 0.0), str(number + 3): short}
        cpu = tree.look()[0]
    return cpu


def test_finding_short_processes_that_nobody_waits_for_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert used(monkeypatch, ("R", 0.0005, 0.0)) == pytest.approx(4.0, rel=0.1)


def test_short_processes_that_wait_for_a_cpu_are_estimated_by_what_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert used(monkeypatch, ("R", 0.0005, 0.0005)) == pytest.approx(2.0, rel=0.1)


def test_an_estimate_near_what_was_counted_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert used(monkeypatch, ("R", 0.0005, 0.0), waited_for=2.5) == pytest.approx(2.5 + 0.08, rel=0.1)


def test_short_processes_that_sleep_use_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert used(monkeypatch, ("S", 0.0005, 0.0)) == pytest.approx(0.08)


class Threads(Machine):
    """Processes of many threads: what each thread ran, and what the kernel keeps of those that ended."""

    def __init__(self) -> None:
        super().__init__()
        self.state = "S"
        self.living: dict[str, dict[str, int]] = {}
        """Nanoseconds of each living thread, by process."""
        self.over: dict[str, int] = {}
        """Nanoseconds of each process' ended threads."""
        self.waited_for: dict[str, int] = {}
        """Nanoseconds of the children that each process waited for."""

    def start(self, pid: str) -> None:
        self.living[pid], self.over[pid], self.waited_for[pid] = {pid: 0}, 0, 0

    def end(self, pid: str) -> int:
        """Away with a process; the nanoseconds that whoever waits for it is told."""
        return sum(self.living.pop(pid).values()) + self.over.pop(pid) + self.waited_for.pop(pid)

    def ran(self, pid: str) -> int:
        return self.over[pid] + sum(self.living[pid].values())

    def pids(self) -> list[str]:
        return list(self.living)

    def stat(self, pid: str) -> list[bytes]:
        ticks = [self.ran(pid), 0, self.waited_for[pid], 0]
        tail = [b"%d" % (each // round(watch.TICK * 1e9)) for each in ticks]
        return [self.state.encode(), *[b"0"] * 10, *tail, *[b"0"] * 4, b"7", *[b"0"] * 11]

    def threads(self, pid: str) -> dict[str, tuple[int, int]]:
        return {name: (ran, 0) for name, ran in self.living[pid].items()}


PIDS, NAMES = st.sampled_from(["2", "3", "4"]), st.sampled_from(["2", "3", "4", "5", "6"])
STEPS = st.one_of(
    st.tuples(st.just("run"), PIDS, NAMES, st.integers(0, 40_000_000)),
    st.tuples(st.just("end thread"), PIDS, NAMES, st.just(0)),
    st.tuples(st.just("end process"), PIDS, PIDS, st.just(0)),
    st.tuples(st.just("look"), PIDS, NAMES, st.integers(0, 2_000_000_000)),
)


@given(before=st.lists(STEPS, max_size=12), during=st.lists(STEPS, max_size=30), state=st.sampled_from("RS"))
def test_whatever_ends_the_cpu_time_never_falls_and_misses_nothing_of_what_lives(
    before: list[tuple[str, str, str, int]], during: list[tuple[str, str, str, int]], state: str
) -> None:
    machine = Threads()
    machine.state = state
    machine.start("2")

    def do(kind: str, pid: str, name: str, number: int) -> None:
        if pid not in machine.living:
            machine.start(pid)
        threads = machine.living[pid]
        if kind == "run":
            threads[name] = threads.get(name, 0) + number
        elif kind == "end thread":
            machine.over[pid] += threads.pop(name, 0) if len(threads) > 1 else 0
        elif kind == "end process":
            told = machine.end(pid)
            if name in machine.living:
                machine.waited_for[name] += told
        else:
            machine.now += number / 1e9

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: machine.now)
        for step in before:
            do(*step)
        tree = Tree(machine, machine.now)
        tree.begin()
        at_begin = {pid: machine.ran(pid) for pid in machine.living}
        reported = 0.0
        for step in during:
            do(*step)
            if step[0] == "end process":
                at_begin.pop(step[1], None)
            cpu = tree.look()[0]
            assert cpu >= reported
            reported = cpu
            used = sum(machine.ran(pid) - at_begin.get(pid, 0) for pid in machine.living) / 1e9
            assert cpu >= used - watch.TICK * len(machine.living) - 1e-6


def test_finding_a_process_that_ends_while_its_threads_are_listed_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Proc, "names", lambda _self, _path: [])
    with pytest.raises(ProcessLookupError):
        Proc(-1).threads("2")


def test_finding_swapped_pages_are_held_like_resident_ones(tmp_path: Path) -> None:
    process = tmp_path / "7"
    (process / "task" / "7").mkdir(parents=True)
    (process / "task" / "7" / "schedstat").write_text("0 0 0")
    (process / "stat").write_text("7 (name) S " + " ".join(["0"] * 49))
    (process / "status").write_text("Name:\tVmSwap: 9\nVmPTE:\t  8 kB\nVmSwap:\t  4096 kB\n")
    (process / "smaps_rollup").write_text("Rss: 0 kB\nPss: 0 kB\nSwap: 4096 kB\nSwapPss: 1024 kB\n")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        tree = Tree(Proc(folder), time.monotonic(), only=7)
        assert tree.look()[1] == (4096 + 8) << 10
        assert tree.held_exactly() == (1024 + 8) << 10
    finally:
        os.close(folder)


def test_finding_processes_that_sleep_are_looked_at_exactly_for_a_tenth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, exact_looks, faults = Machine(), [0], [0]
    machine.processes = {"2": ("S", 0.0, 0.0)}
    monkeypatch.setattr(time, "monotonic", lambda: machine.now)
    monkeypatch.setattr(machine, "stat", lambda _: [b"S", *[b"0"] * 6, b"%d" % faults[0], *[b"0"] * 23], raising=False)

    def held_exactly(_: Tree) -> int:
        machine.now += 0.02
        exact_looks[0] += 1
        return 1000 * exact_looks[0]

    monkeypatch.setattr(Tree, "held_exactly", held_exactly)
    tree = Tree(machine, machine.now)
    for _ in range(80):
        machine.now += LOOK
        tree.look()
        assert tree.held_lately() == 1000 * exact_looks[0]
    assert exact_looks[0] in range(7, 11)
    before = exact_looks[0]
    for number in range(10):
        machine.now += LOOK
        machine.processes = {"2": ("S", 0.0, 0.0)} | ({"3": ("S", 0.0, 0.0)} if number == 0 else {})  # one ends
        faults[0] += watch.LITTLE // watch.PAGE
        tree.look()
        tree.held_lately()
    assert exact_looks[0] == before + 10


class Relay(Proc):
    """A process whose first thread has ended, and whose others come one after the other, each for so many looks."""

    def __init__(self, looks: list[int], ending: bool = False) -> None:
        self._looks = looks
        self._flags = b"4" if ending else b"0"

    def names(self, path: str) -> list[str]:
        return ["2", str(1000 - len(self._looks))]

    def stat(self, pid: str) -> list[bytes]:
        if pid == "2":
            return [b"Z", *[b"0"] * 16, b"2"]
        if pid != self.names("")[1]:
            raise FileNotFoundError
        return [b"S", *[b"0"] * 5, self._flags, *[b"0"] * 10, b"2"]

    def kernel_objects(self, pid: str) -> tuple[int, frozenset[str]]:
        self._looks[0] -= 1
        if self._looks[0] == 0:
            self._looks.pop(0)
            return 0, frozenset()  # its files were gone when they were looked at
        return 7, frozenset()


def test_finding_a_thread_that_ends_while_it_is_looked_at_hides_nothing() -> None:
    proc = Relay([1, 1, 9])
    assert proc.through_holder("2", proc.kernel_objects) == (7, frozenset())


def test_finding_a_process_none_of_whose_threads_lives_for_a_look_hides() -> None:
    proc = Relay([1] * 99)
    assert proc.through_holder("2", proc.kernel_objects) is None


def test_a_process_all_of_whose_threads_are_ending_does_not_hide() -> None:
    proc = Relay([9], ending=True)
    with pytest.raises(ProcessLookupError):
        proc.through_holder("2", proc.kernel_objects)


def test_finding_a_process_whose_threads_end_while_they_are_read_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_self: Proc, _path: str) -> bytes:
        raise FileNotFoundError

    monkeypatch.setattr(Proc, "names", lambda _self, _path: ["2"])
    monkeypatch.setattr(Proc, "read", gone)
    with pytest.raises(ProcessLookupError):
        Proc(-1).threads("2")


@pytest.mark.parametrize(("elapsed", "reason"), [(9.0, wire.EXITED), (11.0, wire.STARVED)])
def test_finding_a_short_wall_limit_is_no_short_way_to_a_fault(
    elapsed: float, reason: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short processes of its own, which are too few to be estimated, keep a program waiting."""
    monkeypatch.setattr("cleaner_sandbox.inside.slot.flooded", lambda *_: False)
    slot = SimpleNamespace(_layers={"watch"}, _holds_too_much=lambda *_: False, _counted=None)
    tree = SimpleNamespace(look=lambda: (0.3, 0, elapsed))
    start = (0, 1.0, 0.012, 1 << 30, 1 << 20, 0)
    assert Slot._judge(cast(Slot, slot), cast(Tree, tree), start, [], elapsed) == (reason, elapsed)


@pytest.mark.parametrize(("stolen", "endless"), [(0, False), (LOOKS - 1, False), (LOOKS, True)])
def test_finding_a_look_that_the_host_held_up_is_repeated(
    stolen: int, endless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other virtual machines take counts as time of whoever runs just then."""
    now, begun = [0.0], [0]

    def told(_self: Proc, _path: str, _most: int) -> bytes:
        if begun[0] <= stolen:
            now[0] += 2 * LONGEST_LOOK
        return b""

    def names(_self: Proc, _path: str) -> list[str]:
        begun[0] += 1
        return ["0"]

    monkeypatch.setattr(Proc, "maps", lambda _self, _pid: b"\n")
    monkeypatch.setattr(Proc, "names", names)
    monkeypatch.setattr(Proc, "_read_up_to", told)
    monkeypatch.setattr(Proc, "short_link", lambda _self, _path: "")
    monkeypatch.setattr(Proc, "_ancestors", lambda _self, _pid: 0)
    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    held, _ = Proc(-1).kernel_objects("2")
    assert (held == ENDLESS) == endless
