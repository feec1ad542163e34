"""What doesn't answer gets the wrong answer's reward in a step: neither redrawn nor left out of its group."""

from __future__ import annotations

import asyncio

import pytest

from cleaner_rl.resample import PlainConfig, group_of, select
from cleaner_rl.rollout import RolloutBudget, open_runner
from cleaner_rl.tasks import Message, Task, load_prompt
from cleaner_rl.train.rows import to_row
from cleaner_rl.trajectory import TokenSpan, Trajectory
from tests.rollout.scripted import ScriptedEngine, node, token_model

RIGHT, BOMB = r"\boxed{7}", r"\boxed{9^{9^{9}}}"
CUT_OFF = r"<think>Maybe \boxed{7}? But then the sum is odd, and that can't be, because " + "so " * 400
TASK = Task("odd", (Message("user", "Which is it?"),), grader="math", truth="7")


def rolled(replies: list[str]) -> tuple[list[Trajectory[TokenSpan]], int]:
    """Return the group, and how many requests it took."""
    engine = ScriptedEngine(replies)

    async def go() -> list[Trajectory[TokenSpan]]:
        budget = RolloutBudget(turns=1, tokens=300)
        async with node() as sandbox:
            model = token_model(engine)
            async with open_runner(model, load_prompt("stateless"), sandbox, budget=budget, concurrency=1) as runner:
                return await runner.run_group(TASK, len(replies))

    return asyncio.run(go()), len(engine.asked)


@pytest.mark.timeout(110)
def test_bombs_and_cut_off_thinking_are_wrong_answers_in_an_update() -> None:
    group, requests = rolled([RIGHT, BOMB, CUT_OFF, RIGHT])
    assert requests == 4
    chosen = select(group_of(group), PlainConfig(), 0, dynamic_sampling=False)
    assert sorted(chosen.kept) == [0, 1, 2, 3]
    advantages = dict(zip(chosen.kept, chosen.advantages, strict=True))
    assert advantages[0] == advantages[3] > 0 > advantages[1] == advantages[2]
    rows = [to_row(each) for each in group]
    assert [None if row is None else row.reward for row in rows] == [1.0, -1.0, -1.0, 1.0]
