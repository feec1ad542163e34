"""The scheduler alone: it is told what happens, and asked what starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from benchmarks.balance_simulator import simulate
from benchmarks.balance_world import CAP, Script, Speed, scripts
from cleaner_rl.rollout.balance import EvenConfig, EvenScheduler
from tests.profile import examples

POLICY = EvenConfig(longest=10_000)


def scheduler(replicas: int = 2) -> EvenScheduler:
    made = EvenScheduler(POLICY)
    for place in range(replicas):
        made.add(f"r{place}")
    return made


def started(made: EvenScheduler, *requests: str, tokens: int = 100, now: float = 0.0) -> dict[str, str]:
    for request in requests:
        made.arrive(request, tokens, now)
    return dict(made.dispatch(now))


def test_new_trajectories_spread_and_following_turns_stay() -> None:
    made = scheduler(4)
    where = started(made, *"abcdefgh")
    assert sorted(where.values()) == ["r0", "r0", "r1", "r1", "r2", "r2", "r3", "r3"]
    made.release("c", 500, 1.0)
    assert made.home("c") == where["c"]
    assert started(made, "c", tokens=600, now=2.0) == {"c": where["c"]}


def test_a_turn_moves_away_from_a_replica_that_is_behind() -> None:
    made = scheduler(2)
    where = started(made, *"abcdefgh")
    there = [request for request, replica in where.items() if replica == "r1"]
    here = [request for request, replica in where.items() if replica == "r0"]
    for request in there:
        made.release(request, 200, 1.0)
    made.release(here[0], 300, 1.0)
    assert started(made, here[0], tokens=400, now=2.0) == {here[0]: "r1"}
    assert made.moves == 1


def test_no_turn_is_held_back() -> None:
    made = scheduler(2)
    assert len(started(made, *map(str, range(500)), tokens=9_000)) == 500


@pytest.mark.parametrize("said", [3_000, None])
def test_a_trajectory_that_stays_away_has_ended_and_the_others_are_expected_to_be_as_short(said: int | None) -> None:
    made = scheduler(1)
    for number in range(400):
        started(made, str(number), tokens=3_000, now=number)
        made.release(str(number), said, number)
    started(made, "new", now=1_000.0)
    assert made.home("399") is None
    assert made._lengths.remaining(100) == pytest.approx(2_900, rel=0.05)


def test_without_replicas_everything_waits_for_one() -> None:
    made = scheduler(1)
    started(made, "a")
    made.release("a", 300, 1.0)
    made.remove("r0")
    assert started(made, "a", "b", now=2.0) == {}
    made.add("r9")
    assert dict(made.dispatch(3.0)) == {"a": "r9", "b": "r9"}


def test_a_dead_replicas_turns_can_be_released_and_come_again() -> None:
    made = scheduler(2)
    where = started(made, "a", "b")
    made.remove(where["a"])
    made.release("a", 100, 1.0)
    assert started(made, "a", now=1.0) == {"a": where["b"]}
    assert made.moves == 0


def test_a_withdrawn_turn_never_starts() -> None:
    made = scheduler(0)
    made.arrive("a", 100, 0.0)
    made.withdraw("a", 1.0)
    made.add("r0")
    assert not made.dispatch(2.0)


def test_the_same_story_gives_the_same_schedule() -> None:
    speed, work = Speed(0.04, 0.0004, 2.7e-6, 0.0008, 2.5e-7), scripts(5, prompts=8)
    first, second = (simulate(work, EvenScheduler(EvenConfig(longest=CAP)), speed, replicas=4) for _ in range(2))
    assert first == second


class Stories(RuleBasedStateMachine):
    """Whatever happens, in whatever order: each turn starts once, on a replica that is there, and the counts add up."""

    def __init__(self) -> None:
        super().__init__()
        self.made = EvenScheduler(replace(POLICY, patience=20.0))
        self.now = 0.0
        self.names = 0
        self.alive: set[str] = set()
        self.waiting: dict[str, int] = {}
        self.running: dict[str, str] = {}
        self.tokens: dict[str, int] = {}

    def idle(self) -> list[str]:
        return sorted(set(self.tokens) - set(self.waiting) - set(self.running))

    @rule()
    def add(self) -> None:
        self.names += 1
        self.alive.add(f"r{self.names}")
        self.made.add(f"r{self.names}")

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.remove(gone)
        self.made.remove(gone)

    @rule(tokens=st.integers(1, 3_000), seconds=st.floats(0, 30))
    def arrive_new(self, tokens: int, seconds: float) -> None:
        self.now += seconds
        name = f"t{len(self.tokens)}"
        self.tokens[name] = self.waiting[name] = tokens
        self.made.arrive(name, tokens, self.now)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), more=st.integers(-50, 500), seconds=st.floats(0, 30))
    def arrive_again(self, data: st.DataObject, more: int, seconds: float) -> None:
        self.now += seconds
        name = data.draw(st.sampled_from(self.idle()))
        self.tokens[name] = self.waiting[name] = max(1, self.tokens[name] + more)
        self.made.arrive(name, self.tokens[name], self.now)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[name]
        self.made.withdraw(name, self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), more=st.integers(0, 2_000))
    def release(self, data: st.DataObject, more: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[name]
        self.tokens[name] += more
        self.made.release(name, self.tokens[name], self.now)

    @rule()
    def dispatch(self) -> None:
        for name, where in self.made.dispatch(self.now):
            del self.waiting[name]
            assert where in self.alive
            self.running[name] = where

    @invariant()
    def all_run_if_there_is_a_replica(self) -> None:
        if self.alive:
            self.dispatch()
            assert not self.waiting

    @invariant()
    def the_work_is_that_of_the_turns_that_run(self) -> None:
        known = self.made._trajectories
        for replica, work in self.made._work.items():
            there = [known[name].work for name, where in self.running.items() if where == replica]
            assert work == pytest.approx(sum(there), abs=1e-3)


Stories.TestCase.settings = settings(max_examples=examples(25, short=10), stateful_step_count=40, deadline=None)
TestStories = Stories.TestCase


def test_a_script_of_one_turn_runs_through() -> None:
    tiny = [Script(scripts(0, prompts=1)[0].turns[:1])]
    assert simulate(tiny, EvenScheduler(EvenConfig(longest=CAP)), Speed(1, 1, 0, 1, 0), 1).makespan > 0
