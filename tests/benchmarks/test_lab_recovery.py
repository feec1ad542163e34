"""Failed first calls: the same for everybody, and they really fail."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.lab.environments import DRIFT, HELD_OUT, SLIPS, STARVED, UNHINTED, toy_environment
from benchmarks.lab.recovery import counted, failed_first
from benchmarks.lab.served import Begun
from benchmarks.toy.folder import tasks
from benchmarks.toy.questions import TEST
from benchmarks.toy.regimes import REGIMES
from benchmarks.toy.sandboxes import toy_tool_envs
from cleaner_rl.rollout import Sampling
from cleaner_rl.tools import ToolResult, ToolSet, call_format
from cleaner_rl.trajectory import Ids, Key, StopReason
from tests.builders import answered, failed, trajectory, worked
from tests.rollout.scripted import ScriptedEngine
from tests.toy_site import site

__all__ = ["site"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [DRIFT, UNHINTED, SLIPS, STARVED])
def test_every_one_of_them_fails(name: str, site: Path) -> None:
    regime = REGIMES[name]
    words = [failed_first(task, regime) for task in toy_environment(name, 0).failed_first()[:40]]
    tools, parser = ToolSet(regime.prompt.tool), call_format(regime.prompt.call_format)

    async def run() -> list[ToolResult]:
        shop = toy_tool_envs(site / name, [regime.current], regime.tool, hint=regime.hint)
        async with shop as (tool_env,), tool_env.open(Key()) as tool_session:
            return [(await tool_session.run(parser.parse(each, tools).calls))[0] for each in words]

    results = asyncio.run(run())
    assert all(result.failed for result in results)
    assert len({result.exception.type for result in results if result.exception}) >= 3


def test_they_are_the_same_for_all_and_on_tasks_of_their_own() -> None:
    one, other = toy_environment(DRIFT, 0), toy_environment(DRIFT, 1)
    assert one.folder != other.folder
    words = [[failed_first(task, each.regime) for task in each.failed_first()] for each in (one, other)]
    assert words[0] == words[1]
    evaluated = {task.id for task in tasks(one.regime, TEST, HELD_OUT)}
    assert evaluated.isdisjoint(task.id for task in one.failed_first())


def test_only_the_first_words_are_given() -> None:
    own = ScriptedEngine(["mine"])
    given: Ids = failed().reasoning.ids

    async def twice() -> list[list[int]]:
        begun = Begun(own, given)
        drawn = [
            await begun.sample(given, max_tokens=9, seed=1, sampling=Sampling(), stop_ids=(7,), request="x")
            for _ in range(2)
        ]
        return [each.ids_T.tolist() for each in drawn]

    first, second = asyncio.run(twice())
    assert first == given.tolist()
    assert second != first
    assert len(own.asked) == 1


def test_a_rollout_that_didnt_begin_with_a_failure_says_nothing_of_recovery() -> None:
    graded = [
        replace(trajectory(*turns, success=success), stop_reason=StopReason.ANSWERED)
        for turns, success in [
            ((failed(), worked(), answered()), True),
            ((failed(), failed()), False),
            ((worked(), answered()), True),
        ]
    ]
    assert counted(graded) == {"rollouts": 2, "right": 0.5, "next_call_works": 0.5}
