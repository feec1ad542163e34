"""The simulator under `benchmarks.balance`: cases worked out by hand, and what holds of every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.balance_limits import Oracle, even_pace
from benchmarks.balance_replica import Replica, Request
from benchmarks.balance_rivals import LeastRequests, RoundRobin, StaticSplit, StickyLeastRequests
from benchmarks.balance_simulator import simulate
from benchmarks.balance_world import CAP, MEAN, Script, Speed, Turn, bound, scripts
from cleaner_rl.rollout.balance import Scheduler
from tests.profile import examples

# A step takes 10 s, and 1 s more for each sequence; a token of prefill takes 2 s.
PLAIN = Speed(step=10, sequence=1, context=0, token=2, attention=0)
FULL = Speed(step=10, sequence=1, context=0.5, token=2, attention=0.25)


def one(*turns: Turn) -> Script:
    return Script(turns)


def test_a_trajectory_alone_takes_prefill_steps_and_waits() -> None:
    script = one(Turn(read=3, sampled=4, wait=7), Turn(read=2, sampled=1, wait=0))
    # 3 x 2 + 4 x 11, wait 7, then only what is new: 2 x 2 + 1 x 11.
    assert script.alone(PLAIN) == 6 + 44 + 7 + 4 + 11
    ran = simulate([script], RoundRobin(), PLAIN, replicas=1, room=100)
    assert ran.makespan == pytest.approx(72)
    assert ran.recomputed == 0


def test_attention_costs_by_what_it_attends_to() -> None:
    script = one(Turn(read=4, sampled=3, wait=0))
    # Prefill 4 x 2 + 0.25 x 16 / 2; steps of 11 + 0.5 x (4, 5, 6).
    assert script.alone(FULL) == pytest.approx(8 + 2 + 33 + 7.5)
    assert simulate([script], RoundRobin(), FULL, 1, 100).makespan == pytest.approx(50.5)


def test_sequences_share_steps_and_a_prefill_holds_up_the_others() -> None:
    pair = [one(Turn(1, 2, 0)), one(Turn(1, 5, 0))]
    # Both are read (2 s each), 2 steps of two (12 s), then 3 of one (11 s).
    assert simulate(pair, RoundRobin(), PLAIN, 1, 100).makespan == pytest.approx(4 + 24 + 33)


def test_a_request_joins_when_the_step_under_way_is_over() -> None:
    replica = Replica(PLAIN, room=100)
    replica.submit(Request(0, 1, 10), now=0)
    assert replica.next_end() == 2 + 10 * 11
    replica.submit(Request(1, 1, 10), now=2 + 11 + 5)
    assert replica.clock == 2 + 22 + 2
    assert (replica.steps, replica.used) == (2, 1 + 2 + 1)


def test_the_last_admitted_is_preempted_and_pays_again_for_what_it_lost() -> None:
    replica = Replica(PLAIN, room=20)
    replica.submit(Request(0, 6, 10), now=0)
    replica.submit(Request(1, 6, 10), now=0)
    # 12 of 20 are used: 4 steps of two fit.
    assert replica.next_end() == 24 + 4 * 12
    assert replica.advance() == []
    assert (replica.preemptions, list(replica.running), replica.used, replica.cached) == (1, [0], 10, {1: 10})
    # The first ends 6 steps later at 16 tokens, which leaves 4 of the other's 10.
    assert replica.advance() == [0]
    assert replica.clock == 24 + 48 + 6 * 11 + 6 * 2
    assert (replica.recomputed, replica.used) == (6, 10)
    assert replica.advance() == [1]
    assert replica.steps == 4 + 6 + 6


def test_a_context_stays_cached_during_a_tool_call_until_its_room_is_needed() -> None:
    kept = Replica(PLAIN, room=30)
    kept.submit(Request(0, 10, 1), now=0)
    kept.advance()
    kept.submit(Request(1, 10, 2), now=kept.clock)
    kept.advance()
    assert kept.cached == {0: 11, 1: 12}
    kept.submit(Request(2, 10, 1), now=kept.clock)
    assert kept.cached == {0: 8, 1: 12}, "the least recently used loses its end"


def test_a_request_that_never_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="never fit"):
        Replica(PLAIN, room=10).submit(Request(0, 6, 5), now=0)


def test_bound_is_the_larger_of_the_work_and_the_longest() -> None:
    short, long = one(Turn(1, 1, 0)), one(Turn(1, 40, 0))
    assert bound([long, short], PLAIN, replicas=2, room=100) == 2 + 40 * 11
    # 40 tokens in 40 replicas; steps hold 4 sequences of a token at most.
    work = bound([short] * 40, replace(PLAIN, token=100), replicas=1, room=4)
    assert work == 40 * 100 + 40 * 1 + 10 * 10


def test_lengths_are_as_the_papers() -> None:
    lengths = [script.tokens for seed in range(12) for script in scripts(seed)]
    assert sum(lengths) / len(lengths) == pytest.approx(MEAN, rel=0.03)
    assert max(lengths) == CAP
    assert 0.03 < sum(length == CAP for length in lengths) / len(lengths) < 0.07


def test_a_static_split_preempts_and_a_spread_one_does_not() -> None:
    speed = Speed(0.08, 0.001, 1e-6, 0.001, 0)
    work = scripts(0)
    assert simulate(work, StaticSplit(len(work)), speed).preemptions > 0
    assert simulate(work, StickyLeastRequests(0), speed).preemptions == 0


turns = st.builds(Turn, st.integers(1, 8), st.integers(1, 8), st.floats(0, 50))
trajectories = st.lists(turns, min_size=1, max_size=4).map(lambda made: one(*made[:-1], replace(made[-1], wait=0)))
works = st.lists(trajectories, min_size=1, max_size=12)
rivals: list[Callable[[int], Scheduler]] = [StaticSplit, lambda _: RoundRobin(), LeastRequests, StickyLeastRequests]
speeds = st.sampled_from([PLAIN, FULL, replace(FULL, step=0)])


@given(works, st.sampled_from(rivals), speeds, st.integers(1, 3), st.integers(64, 100))
def test_no_run_beats_the_bound_or_loses_work(
    work: list[Script], rival: Callable[[int], Scheduler], speed: Speed, replicas: int, room: int
) -> None:
    ran = simulate(work, rival(len(work)), speed, replicas, room)
    assert ran.makespan >= bound(work, speed, replicas, room) * (1 - 1e-9)
    least = sum(script.sampled * speed.sequence + script.attended() * speed.context for script in work)
    least += sum(script.prefilled(speed) for script in work)
    if speed.step == 0 and ran.recomputed == 0:
        assert ran.busy == pytest.approx(least), "each token is paid for once"
    else:
        assert ran.busy >= least * (1 - 1e-9)
    assert ran.makespan * replicas >= ran.busy * (1 - 1e-9)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30), st.floats(0, 100)), min_size=1, max_size=20))
def test_the_kv_cache_never_overflows(requests: list[tuple[int, int, float]]) -> None:
    replica = Replica(FULL, room=64)
    now, sampled, ended = 0.0, 0, []

    def check() -> None:
        held = sum(each.context + replica.steps - each.started for each in replica.running.values())
        assert replica.used == held
        assert replica.used + sum(replica.cached.values()) <= replica.room

    for index, (context, left, gap) in enumerate(requests):
        now += gap
        while (end := replica.next_end()) is not None and end <= now:
            ended += replica.advance()
            check()
        replica.submit(Request(index, context, left), now)
        sampled += left
        check()
    while replica.next_end() is not None:
        ended += replica.advance()
        check()
    assert sorted(ended) == list(range(len(requests)))
    assert not replica.waiting


def test_an_oracle_starts_nothing_that_does_not_fit_and_lockstep_is_above_the_bound() -> None:
    work = scripts(3, prompts=8)
    speed = Speed(0.04, 0.0004, 2.7e-6, 0.0008, 2.5e-7)
    ran = simulate(work, Oracle(work, speed, replicas=4), speed, replicas=4)
    assert ran.preemptions == 0
    assert ran.makespan >= bound(work, speed, replicas=4)
    assert even_pace(work, speed, replicas=4) >= bound(work, speed, replicas=4)
