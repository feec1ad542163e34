from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from cleaner_rl.evaluate import Evaluation, Repair
from cleaner_rl.evaluate.cache import open_cache
from cleaner_rl.evaluate.recovery import KINDS
from cleaner_rl.evaluate.run import EvalPlan, EvalProgress, RunMode, run_plan
from cleaner_rl.purify import OnUnrepaired, PurifyConfig, Views
from cleaner_rl.rollout import EngineFaultError, journal
from cleaner_rl.tasks import ChoiceGrader, Grade, Grader, Message, Outcome, Task
from cleaner_rl.trajectory import AnyTrajectory, StopReason
from cleaner_rl.trajectory.store import read
from tests.evaluate.standins import RIGHT, WRONG, Rule, RuleEngine, mends, runner, seldom_mends, tasks

SETTINGS = {"model": "stand-in"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.rollout.runner.PAUSE", 0.0)


def ran(folder: Path, plan: EvalPlan, rule: Rule) -> tuple[EvalProgress, RuleEngine, Counter[bool]]:
    """What came of a plan, the policy that was asked, and how much was there before."""
    engine = RuleEngine(rule)
    cached: Counter[bool] = Counter()

    async def go() -> EvalProgress:
        async with runner(engine) as made:
            with open_cache(folder, SETTINGS, plan.tasks) as kept:
                return await run_plan(plan, made, kept, lambda _, before: cached.update([before]))

    return asyncio.run(go()), engine, cached


def results(folder: Path, plan: EvalPlan, rule: Rule) -> Evaluation:
    return ran(folder, plan, rule)[0].results(plan, "stand-in", {})


@pytest.mark.parametrize("config", [PurifyConfig(), PurifyConfig(views=Views.ONE, max_logprob_gap=0.3)])
def test_an_evaluation_that_was_begun_by_an_earlier_version_goes_on(config: PurifyConfig) -> None:
    (with_repair,) = EvalPlan({"set": tasks(1)}, samples=1, repairs=(Repair.ON,), config=config).jobs()
    assert with_repair.key.run == "on-84eb46", "what begun runs have in the store"


def test_repair_off_and_on_side_by_side(tmp_path: Path) -> None:
    plan = EvalPlan({"set": tasks(4)}, samples=2)
    (found,) = results(tmp_path, plan, mends).sets
    off, on = found.runs[Repair.OFF], found.runs[Repair.ON]
    assert off.figures["pass@1"].value == on.figures["pass@1"].value == 1.0
    assert off.figures["errors_residual"].value == off.figures["errors_first"].value == 1.0
    assert on.figures["errors_first"].value == 1.0
    assert on.figures["errors_residual"].value == 0.0, "repair took the failure out of the history"
    assert off.figures["lookahead"].value == 0
    assert (on.figures["lookahead"].value or 0) > 0
    assert off.figures["recovery"].value == 1.0
    assert (off.figures["latency"].value or 0) > 0


def test_what_repair_adds_is_shown_apart_from_what_the_model_can(tmp_path: Path) -> None:
    plan = EvalPlan({"set": tasks(8)}, samples=4)
    (found,) = results(tmp_path, plan, seldom_mends).sets
    off, on = (found.runs[repair].figures["pass@1"].value for repair in Repair)
    assert off is not None
    assert on is not None
    assert off < 0.6 < on, "one chance in three alone, three more with repair"
    assert found.difference is not None
    assert found.difference.value == pytest.approx(on - off)
    assert (found.difference.p or 1) < 0.1


def test_the_same_seeds_with_and_without_repair() -> None:
    jobs = {job.mode: job for job in EvalPlan({"set": tasks(1)}, samples=1, failures=1, seed=7).jobs()}
    assert jobs[RunMode.OFF].seed == jobs[RunMode.ON].seed == 7
    assert jobs[RunMode.RECOVERY].seed != 7


def test_another_repair_is_another_run_in_the_store_and_the_model_alone_stays_the_same() -> None:
    first, second = (
        {job.mode: job.key for job in EvalPlan({"set": tasks(1)}, 1, config=PurifyConfig(attempts=attempts)).jobs()}
        for attempts in (1, 3)
    )
    assert first[RunMode.OFF] == second[RunMode.OFF]
    assert first[RunMode.ON] != second[RunMode.ON]
    assert RunMode.of(first[RunMode.ON]) is RunMode.ON


def test_recovery_begins_with_a_failure_that_really_ran(tmp_path: Path) -> None:
    def rule(context: str, seed: int) -> str:
        return RIGHT if "NameError" in context else WRONG

    plan = EvalPlan({"set": tasks(6)}, samples=1, repairs=(Repair.OFF,), failures=len(KINDS))
    found = results(tmp_path, plan, rule)
    assert found.recovery is not None
    assert set(found.recovery.kinds) == set(KINDS)
    assert {kind: run.faults for kind, run in found.recovery.kinds.items() if run.faults} == {}
    right = {kind for kind, run in found.recovery.kinds.items() if run.figures["pass@1"].value == 1.0}
    assert right == {"name", "lost_state"}, "only they say NameError to the model"
    assert found.recovery.overall.figures["retried"].value == 0.0
    kept = [each for each in read(tmp_path) if RunMode.of(each.key) is RunMode.RECOVERY]
    assert len(kept) == 6 * len(KINDS)
    for each in kept:
        first = each.turns[0]
        assert first.failed
        kind = KINDS[each.info.injected]
        (result,) = first.results
        assert result.status is kind.status
        assert not kind.exceptions or (result.exception and result.exception.type in kind.exceptions)


def test_a_failure_is_put_in_as_tokens_that_the_model_could_have_sampled(tmp_path: Path) -> None:
    from tests.rollout.chats import chat, tokenizer

    plan = EvalPlan({"set": tasks(2)}, samples=1, repairs=(Repair.OFF,), failures=3)
    ran(tmp_path, plan, lambda context, seed: WRONG)
    for each in read(tmp_path):
        if RunMode.of(each.key) is RunMode.RECOVERY:
            first = each.turns[0]
            spans = [first.reasoning, first.action]
            ids = [int(number) for span in spans for number in span.ids]  # type: ignore[union-attr]
            assert ids[-1] == chat().end_id
            assert ids[:-1] == tokenizer("qwen3").encode(first.text.removesuffix("<|im_end|>"))
            assert all(span.sampled is None for span in spans)  # type: ignore[union-attr]


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    small = EvalPlan({"set": tasks(3)}, samples=1)
    first, config, _ = ran(tmp_path, small, mends)
    assert config.requests
    again, config, cached = ran(tmp_path, small, mends)
    assert not config.requests
    assert cached == {True: 6}
    assert again.results(small, "m", {}) == first.results(small, "m", {})
    more = EvalPlan({"set": tasks(3)}, samples=2)
    _, config, cached = ran(tmp_path, more, mends)
    assert cached == {True: 6, False: 6}, "more samples add to those that are there"
    _, config, cached = ran(tmp_path, small, mends)
    assert cached == {True: 6}, "and fewer leave the others out"


def test_a_rollout_without_a_failed_call_is_not_sampled_again_with_repair(tmp_path: Path) -> None:
    def fails_on_1(context: str, seed: int) -> str:
        return mends(context, seed) if "How many are 1 and" in context else RIGHT

    found, engine, _ = ran(tmp_path, EvalPlan({"set": tasks(3)}, samples=2), fails_on_1)
    stored = {str(each.key): each for each in read(tmp_path)}
    assert len(stored) == 12
    on = [each for each in stored.values() if RunMode.of(each.key) is RunMode.ON]
    for each in on:
        alone = stored[each.info.other["reused"]]
        assert (alone.key.task, alone.key.rollout) == (each.key.task, each.key.rollout)
        if each.key.task != "set/1":
            assert each.text == alone.text
    assert sum("/set/0/" in request or "/set/2/" in request for request in engine.requests) == 4
    (result,) = found.results(EvalPlan({"set": tasks(3)}, samples=2), "m", {}).sets
    assert all(sum(rate.judged for rate in run.problems.values()) == 6 for run in result.runs.values())


@pytest.mark.parametrize("again", [False, True])
def test_repair_begins_with_the_failure_of_the_rollout_without_it_whatever_the_engine_draws(
    tmp_path: Path, again: bool
) -> None:
    drawn = iter(range(10_000))

    def never_the_same(context: str, seed: int) -> str:
        reply = mends(context, seed)
        return f"Try {next(drawn)}. {reply}" if reply != RIGHT else reply

    if again:  # and so does one whose rollout without repair was there before
        ran(tmp_path, EvalPlan({"set": tasks(2)}, samples=2, repairs=(Repair.OFF,)), never_the_same)
    ran(tmp_path, EvalPlan({"set": tasks(2)}, samples=2), never_the_same)
    stored = {str(each.key): each for each in read(tmp_path)}
    on = [each for each in stored.values() if RunMode.of(each.key) is RunMode.ON]
    assert len(on) == 4
    for each in on:
        edit = each.turns[0].edit
        assert edit is not None
        assert edit.original[0].text == stored[each.info.other["reused"]].turns[0].text
        assert each.info.other["reused_turns"] == 1


def test_a_task_that_asks_something_else_is_run_again(tmp_path: Path) -> None:
    old = Task("set/0", (Message("user", "How many?"),), "choice", "C")
    new = Task("set/0", (Message("user", "How many now?"),), "choice", "C")
    ran(tmp_path, EvalPlan({"set": [old]}, samples=1), mends)
    assert ran(tmp_path, EvalPlan({"set": [new]}, samples=1), mends)[2] == {False: 2}


def test_a_fault_is_retried_then_reported_apart_and_tried_again_by_the_next_run(tmp_path: Path) -> None:
    tries: Counter[str] = Counter()

    def breaks(context: str, seed: int) -> str:
        broken = "How many are 1 and" in context
        tries[str(broken)] += 1
        if broken:
            raise EngineFaultError("the engine is gone")
        return RIGHT

    plan = EvalPlan({"set": tasks(3)}, samples=2, repairs=(Repair.OFF,))
    run = results(tmp_path, plan, breaks).sets[0].runs[Repair.OFF]
    assert run.faults == {"the engine is gone": 2}
    assert set(run.problems) == {"set/0", "set/2"}
    assert run.figures["pass@1"].value == 1.0, "a fault is no wrong answer"
    assert tries["True"] == 6, "each tried three times"
    found, _, cached = ran(tmp_path, plan, lambda context, seed: RIGHT)
    assert cached == {True: 4, False: 2}
    assert not found.results(plan, "m", {}).sets[0].runs[Repair.OFF].faults
    assert ran(tmp_path, plan, breaks)[2] == {True: 6}, "judged since, so the fault is forgotten"


def test_a_fault_that_passes_is_not_seen_at_all(tmp_path: Path) -> None:
    seen: set[str] = set()

    def breaks_once(context: str, seed: int) -> str:
        if str(seed) not in seen:
            seen.add(str(seed))
            raise EngineFaultError("busy")
        return RIGHT

    plan = EvalPlan({"set": tasks(2)}, samples=1, repairs=(Repair.OFF,))
    run = results(tmp_path, plan, breaks_once).sets[0].runs[Repair.OFF]
    assert (run.faults, run.figures["pass@1"].value) == ({}, 1.0)


def test_a_graders_fault_is_no_wrong_answer(tmp_path: Path) -> None:
    class Broken:
        async def grade(self, task: Task, text: str) -> Grade:
            return Grade(Outcome.FAULT, None, "the verifier died")

    async def go() -> EvalProgress:
        plan = EvalPlan({"set": tasks(1)}, samples=1, repairs=(Repair.OFF,))
        async with runner(RuleEngine(lambda context, seed: RIGHT), {"choice": Broken()}) as made:
            with open_cache(tmp_path, SETTINGS, plan.tasks) as kept:
                return await run_plan(plan, made, kept, lambda _, __: None)

    (sample,) = asyncio.run(go()).samples[RunMode.OFF].values()
    assert (sample.right, sample.fault) == (None, "grader: the verifier died")


def test_after_a_graders_fault_the_next_run_grades_the_same_rollouts_and_samples_none(tmp_path: Path) -> None:
    plan = EvalPlan({"set": tasks(3)}, samples=2)

    class Broken:
        async def grade(self, task: Task, text: str) -> Grade:
            return Grade(Outcome.FAULT, None, "the verifier died")

    async def go(engine: RuleEngine, graders: dict[str, Grader]) -> Evaluation:
        async with runner(engine, graders) as made:
            with open_cache(tmp_path, SETTINGS, plan.tasks) as kept:
                return (await run_plan(plan, made, kept)).results(plan, "m", {})

    def stored() -> dict[str, tuple[str, object]]:
        return {str(each.key): (each.text, each.stop_reason) for each in read(tmp_path)}

    first = asyncio.run(go(RuleEngine(lambda context, seed: RIGHT), {"choice": Broken()}))
    assert first.faults.total() == 12
    before = stored()
    assert {reason for _, reason in before.values()} == {StopReason.ANSWERED}, "they are kept as they ended"
    engine = RuleEngine(lambda context, seed: WRONG)
    again = asyncio.run(go(engine, {"choice": ChoiceGrader()}))
    assert not engine.requests, "a new draw would be another answer"
    assert again.sets[0].runs[Repair.OFF].figures["pass@1"].value == 1.0
    assert stored() == before
    assert not again.faults


def test_an_interrupted_run_keeps_what_is_finished(tmp_path: Path) -> None:
    finished: list[AnyTrajectory] = []

    async def go() -> None:
        enough = asyncio.Event()

        def done(each: AnyTrajectory, _: bool) -> None:
            finished.append(each)
            if len(finished) == 3:
                enough.set()

        plan = EvalPlan({"set": tasks(20)}, samples=1, repairs=(Repair.OFF,))
        async with runner(RuleEngine(mends)) as made:
            with open_cache(tmp_path, SETTINGS, plan.tasks) as kept:
                running = asyncio.create_task(run_plan(plan, made, kept, done))
                await enough.wait()
                running.cancel()
                await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(go())
    assert {each.key for each in finished} == {each.key for each in read(tmp_path)}


def endless(folder: str) -> None:
    """Runs until somebody kills it."""

    async def go() -> None:
        journal.FLUSH_SECONDS = 0.0
        plan = EvalPlan({"set": tasks(300)}, samples=1, repairs=(Repair.OFF,))
        async with runner(RuleEngine(mends)) as made:
            with open_cache(Path(folder), SETTINGS, plan.tasks) as kept:
                await run_plan(plan, made, kept, lambda _, __: None)

    asyncio.run(go())


def test_kill_minus_nine_loses_nothing_that_was_written_and_doubles_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=endless, args=(str(tmp_path),))
    process.start()
    assert process.pid is not None
    while process.is_alive() and len(list(tmp_path.rglob("*.parquet"))) < 5:
        process.join(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)
    before = [each.key for each in read(tmp_path)]
    assert 5 <= len(before) < 300
    assert len(set(before)) == len(before)
    plan = EvalPlan({"set": tasks(len(before) + 8)}, samples=1, repairs=(Repair.OFF,))
    found, _, cached = ran(tmp_path, plan, mends)
    assert len(found.samples[RunMode.OFF]) == len(before) + 8, "no task is lost"
    assert cached[True] >= len(before) - 8, "what was written is not done again"
    keys = [each.key for each in read(tmp_path)]
    assert len(set(keys)) == len(keys), "and none is there twice"


def test_plans_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(ValueError, match="one sample"):
        EvalPlan({"set": tasks(1)}, samples=0)
    with pytest.raises(ValueError, match="better"):
        EvalPlan({"set": tasks(1)}, config=PurifyConfig(on_unrepaired=OnUnrepaired.DROP))
    with pytest.raises(ValueError, match="same id"):
        EvalPlan({"a": tasks(1), "b": tasks(1)})
