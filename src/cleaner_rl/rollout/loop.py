"""The agent loop: sample, parse, execute, repair, observe, until an answer or the end of a budget.

    answered     the model ended a turn without a call
    turn_limit   the last turn that it had has a call; the call ran, nobody saw what it gave
    token_limit  a turn was cut off, or there is no room for what its calls gave
    time_limit   wall time was over; the history ends with the last turn that was whole
    dropped      a failure that nobody mended, under the policy that drops such rollouts
    fault        the engine or a tool broke; `extra["fault"]` says what

It knows nothing of who serves the model or where calls run. Leaving it, by whatever way, leaves no task, no session and
no request behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TypeAlias

from cleaner_rl.purify import Budget, PurifyPolicy, Repair, SampleRequest, Unrepaired, Verdict, repair
from cleaner_rl.rollout.model import Model
from cleaner_rl.rollout.policy import EngineFaultError
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.rollout.toolbox import Hands, Toolbox
from cleaner_rl.tasks import Prompt, Task
from cleaner_rl.tools import ToolResult, feedback
from cleaner_rl.trajectory import Edit, Ending, Granularity, Key, Mode, Seeds, Trajectory, Turn
from cleaner_rl.trajectory.spans import S

Shown: TypeAlias = Callable[[Turn[S], Sequence[ToolResult]], Turn[S]]
"""A turn with the results of its calls, and what the model is shown of them."""


async def rollout(
    task: Task,
    key: Key,
    *,
    prompt: Prompt,
    model: Model[S],
    toolbox: Toolbox,
    seeds: Seeds,
    budget: RolloutBudget = RolloutBudget(),  # noqa: B008 - frozen
    purifier: Purifier | None = None,
) -> Trajectory[S]:
    """One trajectory, not graded yet. Raises nothing about the model, the engine or the tools: those are endings."""
    begun = time.monotonic()
    messages = prompt.messages(task)
    trajectory = Trajectory(model.begin(messages), key=key)
    live = None if purifier is None else purifier.live(seeds, key.step)
    gate = model.gate(key, purifier.max_gap) if live and purifier and purifier.rescore else None
    most = min(len(trajectory) + budget.tokens * model.unit, model.window)
    lookahead = budget.lookahead * model.unit
    ending, fault = Ending.TURN_LIMIT, ""
    if len(trajectory) >= model.window:
        ending, fault = Ending.FAULT, f"the prompt alone, {len(trajectory)}, fills the model's window, {model.window}"
    clock = asyncio.timeout(budget.seconds)
    try:
        # The clock stops before the tools are closed: an answer that came in time stays one.
        async with toolbox.open(key) as hands, clock:

            def shown(turn: Turn[S], results: Sequence[ToolResult]) -> Turn[S]:
                words = [feedback(result) for result in results]
                return replace(turn, results=tuple(results), observation=model.observe(turn, words))

            async def run(turn: Turn[S]) -> Turn[S]:
                return shown(turn, await hands.run(turn.calls))

            async def run_again(turn: Turn[S]) -> Turn[S]:
                await hands.rollback()
                return await run(turn)

            while not fault and len(trajectory.turns) < budget.turns:
                room = most - len(trajectory)
                if room <= 0:
                    ending = Ending.TOKEN_LIMIT
                    break
                seed = seeds.request(len(trajectory.turns))
                draft = await model.sample(SampleRequest(trajectory, seed, room, attempt=0))
                if not draft.complete or not draft.turn.calls:
                    ending = Ending.ANSWERED if draft.complete else Ending.TOKEN_LIMIT
                    trajectory = _grown(trajectory, draft.turn)
                    break
                turn = await run(draft.turn)
                mended = Repair(Verdict.FAULT if turn.faulty else Verdict.UNREPAIRED, (turn,), 0)
                if turn.failed and live is not None:
                    mended = await repair(
                        trajectory,
                        turn,
                        sample=model.sample,
                        execute=run_again,
                        policy=_within(live, budget.turns - len(trajectory.turns)),
                        budget=Budget(lookahead, model.window, room),
                        seeds=seeds,
                        gate=gate,
                    )
                    lookahead -= mended.lookahead
                    if mended.verdict is Verdict.UNREPAIRED and toolbox.stateful:
                        mended = await _restated(mended, hands, shown)
                trajectory = _grown(trajectory, *mended.turns)
                if mended.verdict in (Verdict.FAULT, Verdict.DROPPED):
                    ending = Ending.FAULT if mended.verdict is Verdict.FAULT else Ending.DROPPED
                    fault = _first_fault(mended.turns)
                    break
                if len(trajectory) > most:
                    # What nobody can answer to is left out; the results stay with their calls.
                    ending = Ending.TOKEN_LIMIT
                    trajectory = _without_last_observation(trajectory)
                    break
    except TimeoutError:
        if not clock.expired():
            raise
        ending = Ending.TIME_LIMIT
    except EngineFaultError as error:
        ending, fault = Ending.FAULT, str(error)
    extra: dict[str, object] = {
        "seconds": round(time.monotonic() - begun, 3),
        "lookahead": budget.lookahead * model.unit - lookahead,
        # What it takes to replay it, or to show it to another model.
        "stateful": toolbox.stateful,
        "limits": None if toolbox.limits is None else asdict(toolbox.limits),
        "tool": {"kind": prompt.tool_kind, "options": dict(prompt.tool_options)},
        "messages": [{"role": each.role, "content": each.content} for each in messages],
        "tools": [tool.schema for tool in prompt.tools.values()],
    }
    return replace(trajectory, ending=ending, extra=extra | ({"fault": fault} if fault else {}))


def _within(policy: PurifyPolicy, turns: int) -> PurifyPolicy:
    """The policy for a failure with so many turns left: attempts are kept only if there is room for all of them."""
    if policy.unrepaired is Unrepaired.KEEP_ATTEMPTS and turns < 1 + policy.attempts:
        return replace(policy, unrepaired=Unrepaired.KEEP_FIRST)
    return policy


async def _restated(mended: Repair[S], hands: Hands, shown: Shown[S]) -> Repair[S]:
    """The turns of a repair that failed, with the tools in the state that they lead to.

    Each attempt ran from before the failure. In the history they stand one after the other, so if something in them
    worked, they run again in that order. Where that gives something else, the attempts can't stand there: the failure
    alone does, with them in its ledger, and with the results that its calls gave this time.
    """
    again = await _again(mended.turns, hands, shown)
    if len(again) > 1 and _observed(again) != _observed(mended.turns):
        original = tuple(each for turn in mended.turns for each in (turn.edit.original if turn.edit else (turn,)))
        first = mended.turns[0]
        refusal = first.edit.refusal if first.edit else ""
        alone = replace(first, edit=Edit(Mode.LIVE, Granularity.NONE, original, refusal=refusal))
        again = await _again((alone,), hands, shown)
    broken = any(turn.faulty for turn in again)
    return replace(mended, turns=again, verdict=Verdict.FAULT if broken else mended.verdict)


async def _again(turns: tuple[Turn[S], ...], hands: Hands, shown: Shown[S]) -> tuple[Turn[S], ...]:
    """These turns run from before the first of them, unless none of their calls left anything."""
    await hands.rollback()
    if all(result.failed for turn in turns for result in turn.results):
        return turns
    results = iter(await hands.run([call for turn in turns for call in turn.calls]))
    return tuple(shown(turn, [next(results) for _ in turn.calls]) for turn in turns)


def _observed(turns: Sequence[Turn[S]]) -> list[object]:
    return [result.observed for turn in turns for result in turn.results]


def _grown(trajectory: Trajectory[S], *turns: Turn[S]) -> Trajectory[S]:
    return replace(trajectory, turns=(*trajectory.turns, *turns))


def _without_last_observation(trajectory: Trajectory[S]) -> Trajectory[S]:
    *before, last = trajectory.turns
    return replace(trajectory, turns=(*before, replace(last, observation=None)))


def _first_fault(turns: Sequence[Turn[S]]) -> str:
    for turn in turns:
        for each in (turn, *(turn.edit.original if turn.edit else ())):
            for result in each.results:
                if result.faulty:
                    return result.explanation or "a tool broke"
    return ""
