"""The agent loop: sample, parse, execute, repair, observe, until an answer or the end of a budget.

    answered     the model ended a turn without a call
    turn_limit   the last turn that it had has a call; the call ran, nobody saw what it gave
    token_limit  a turn was cut off, or the results of its calls do not fit
    time_limit   wall time was over; the history ends with the last turn that was whole
    dropped      a failed call without a correction, under the setting that drops such rollouts
    fault        the engine or a tool had a fault; `info.fault` says what

It knows nothing of who serves the model or where calls run. Leaving it, by whatever way, leaves no task, no session and
no request behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TypeAlias

from cleaner_rl.purify import (
    OnUnrepaired,
    PurifyConfig,
    RepairBudget,
    RepairOutcome,
    RepairResult,
    SampleRequest,
    repair,
)
from cleaner_rl.rollout.engine import EngineFaultError
from cleaner_rl.rollout.model import Model
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.rollout.tool_env import ToolEnv, ToolSession, prepared_for
from cleaner_rl.tasks import Prompt, Task
from cleaner_rl.tools import ToolResult, ToolSet, feedback
from cleaner_rl.trajectory import (
    Edit,
    Key,
    RepairKind,
    RepairMode,
    RolloutInfo,
    S,
    Seeds,
    StopReason,
    Trajectory,
    Turn,
    sampled_turns,
)

Shown: TypeAlias = Callable[[Turn[S], Sequence[ToolResult]], Turn[S]]
"""A turn with the results of its calls, and what the model is shown of them."""


async def rollout(
    task: Task,
    key: Key,
    *,
    prompt: Prompt,
    model: Model[S],
    tool_env: ToolEnv,
    seeds: Seeds,
    budget: RolloutBudget = RolloutBudget(),  # noqa: B008 - frozen
    purifier: Purifier | None = None,
    repair_only: int | None = None,
) -> Trajectory[S]:
    """Run one rollout and return its trajectory, not graded yet.

    Faults of the engine or of a tool are stop reasons of the trajectory; they are not raised. `RolloutRunner` calls
    this function for many tasks, and grades and purifies what it returns. With `repair_only`, SAAR repairs the turn of
    this number alone.

    Examples:
        >>> import asyncio
        >>> from cleaner_rl.rollout import Connection, StatelessToolEnv, rollout
        >>> from cleaner_rl.rollout.engines import connect
        >>> from cleaner_sandbox import open_sandbox
        >>> from cleaner_rl.tasks import Message, Task, load_prompt
        >>> from cleaner_rl.trajectory import Key, Seeds
        >>> async def main() -> None:
        ...     prompt = load_prompt("stateless")
        ...     served = Connection(("http://127.0.0.1:8000",), "Qwen/Qwen3-4B")
        ...     task = Task("sum", (Message("user", "What is 1 + 1?"),), grader="math", truth="2")
        ...     async with open_sandbox() as sandbox, connect(served, prompt) as model:
        ...         tools, seeds = StatelessToolEnv(sandbox), Seeds(0, task.id, 0)
        ...         key = Key("run", 0, task.id, 0)
        ...         print(await rollout(task, key, prompt=prompt, model=model, tool_env=tools, seeds=seeds))
        >>> asyncio.run(main())  # doctest: +SKIP
    """
    begun = time.monotonic()
    tool_env = prepared_for(task, tool_env)
    messages = prompt.messages(task)
    trajectory = Trajectory(model.begin(messages), key=key)
    saar = None if purifier is None else purifier.saar(seeds, key.step)
    gate = model.gate(key, purifier.config.max_logprob_gap) if saar and purifier and purifier.rescore else None
    most = min(len(trajectory) + budget.tokens * model.unit, model.window)
    lookahead = budget.lookahead * model.unit
    stop_reason, fault, checked = StopReason.TURN_LIMIT, "", None
    if len(trajectory) >= model.window:
        stop_reason, fault = (
            StopReason.FAULT,
            f"the prompt alone, {len(trajectory)}, fills the model's window, {model.window}",
        )
    clock = asyncio.timeout(budget.seconds)
    try:
        # The clock stops before the tools are closed: an answer that came in time stays one.
        async with tool_env.open(key) as tool_session, clock:

            def shown(turn: Turn[S], results: Sequence[ToolResult]) -> Turn[S]:
                words = [feedback(result) for result in results]
                return replace(turn, results=tuple(results), observation=model.observe(turn, words))

            async def run(turn: Turn[S]) -> Turn[S]:
                return shown(turn, await tool_session.run(turn.calls))

            async def run_again(turn: Turn[S]) -> Turn[S]:
                await tool_session.rollback()
                return await run(turn)

            while not fault and len(trajectory.turns) < budget.turns:
                room = most - len(trajectory)
                if room <= 0:
                    stop_reason = StopReason.TOKEN_LIMIT
                    break
                seed = seeds.request(len(trajectory.turns))
                draft = await model.sample(SampleRequest(trajectory, seed, room, attempt=0))
                if not draft.complete or not draft.turn.calls:
                    stop_reason = StopReason.ANSWERED if draft.complete else StopReason.TOKEN_LIMIT
                    trajectory = _grown(trajectory, draft.turn)
                    break
                turn = await run(draft.turn)
                repaired = RepairResult(RepairOutcome.FAULT if turn.faulty else RepairOutcome.UNREPAIRED, (turn,), 0)
                left = budget.turns - len(trajectory.turns)
                wanted = repair_only in (None, len(trajectory.turns))
                if turn.failed and wanted and saar is not None and not (saar.skip_last_turn and left == 1):
                    repaired = await repair(
                        trajectory,
                        turn,
                        sample=model.sample,
                        execute=run_again,
                        config=_within(saar, left),
                        budget=RepairBudget(lookahead, model.window, room),
                        seeds=seeds,
                        gate=gate,
                    )
                    lookahead -= repaired.lookahead
                    if repaired.verdict is RepairOutcome.UNREPAIRED and tool_env.stateful:
                        repaired = await _restated(repaired, tool_session, shown)
                trajectory = _grown(trajectory, *repaired.turns)
                if repaired.verdict in (RepairOutcome.FAULT, RepairOutcome.DROPPED):
                    stop_reason = StopReason.FAULT if repaired.verdict is RepairOutcome.FAULT else StopReason.DROPPED
                    fault = _first_fault(repaired.turns)
                    break
                if len(trajectory) > most:
                    # What nobody can answer to is left out; the results stay with their calls.
                    stop_reason = StopReason.TOKEN_LIMIT
                    trajectory = _without_last_observation(trajectory)
                    break
            if task.check and stop_reason is StopReason.ANSWERED:
                checked, fault = await _checked(task.check, prompt, tool_session)
                stop_reason = StopReason.FAULT if fault else stop_reason
    except TimeoutError:
        if not clock.expired():
            raise
        stop_reason = StopReason.TIME_LIMIT
    except EngineFaultError as error:
        stop_reason, fault = StopReason.FAULT, str(error)
    info = RolloutInfo(
        seconds=round(time.monotonic() - begun, 3),
        lookahead=budget.lookahead * model.unit - lookahead,
        # Counted before anything is cut: attempts of lookaheads were sampled too.
        sampled=sampled_length(trajectory),
        # What it takes to replay it, or to show it to another model.
        stateful=tool_env.stateful,
        limits=None if tool_env.limits is None else asdict(tool_env.limits),
        tool={
            "kind": prompt.tool_kind,
            "options": dict(prompt.tool_options),
            **{name: value for name in ("environment", "setup") if (value := getattr(task, name))},
        },
        messages=[{"role": each.role, "content": each.content} for each in messages],
        tools=[tool.schema for tool in prompt.tools.values()],
        fault=fault,
        checked=checked,
    )
    return replace(trajectory, stop_reason=stop_reason, info=info)


async def _checked(check: str, prompt: Prompt, tool_session: ToolSession) -> tuple[str, str]:
    """Run a task's check where the model has worked; return what it printed, and what broke."""
    tool = prompt.tool
    assert tool.code_argument is not None  # a session's tool has one
    (result,) = await tool_session.run([ToolSet(tool).read(tool.name, {tool.code_argument: check}, 0, 0)])
    return ("", result.explanation or "the check had a fault") if result.faulty else (result.output, "")


def _within(config: PurifyConfig, turns: int) -> PurifyConfig:
    """Return the settings for a failure with so many turns left: attempts are kept only if all of them fit."""
    if config.on_unrepaired is OnUnrepaired.KEEP_ATTEMPTS and turns < 1 + config.attempts:
        return replace(config, on_unrepaired=OnUnrepaired.KEEP_FIRST)
    return config


async def _restated(repaired: RepairResult[S], tool_session: ToolSession, shown: Shown[S]) -> RepairResult[S]:
    """The turns of a repair that failed, with the tools in the state that they lead to.

    Each attempt ran from before the failure. In the history they stand one after the other, so if something in them
    worked, they run again in that order. Where that gives something else, the attempts can't be part of it: the
    failure alone is, with the attempts in its edit, and with the results that its calls gave this time.
    """
    again = await _again(repaired.turns, tool_session, shown)
    if len(again) > 1 and _observed(again) != _observed(repaired.turns):
        original = tuple(each for turn in repaired.turns for each in (turn.edit.original if turn.edit else (turn,)))
        first = repaired.turns[0]
        refusal = first.edit.refusal if first.edit else ""
        alone = replace(first, edit=Edit(RepairMode.SAAR, RepairKind.NONE, original, refusal=refusal))
        again = await _again((alone,), tool_session, shown)
    broken = any(turn.faulty for turn in again)
    return replace(repaired, turns=again, verdict=RepairOutcome.FAULT if broken else repaired.verdict)


async def _again(turns: tuple[Turn[S], ...], tool_session: ToolSession, shown: Shown[S]) -> tuple[Turn[S], ...]:
    """These turns run from before the first of them, unless none of their calls left anything."""
    await tool_session.rollback()
    if all(result.failed for turn in turns for result in turn.results):
        return turns
    results = iter(await tool_session.run([call for turn in turns for call in turn.calls]))
    return tuple(shown(turn, [next(results) for _ in turn.calls]) for turn in turns)


def _observed(turns: Sequence[Turn[S]]) -> list[object]:
    return [result.observed for turn in turns for result in turn.results]


def sampled_length(trajectory: Trajectory[S]) -> int:
    """Return the length of all that the model sampled for a trajectory."""
    turns = [each.turn for each in sampled_turns(trajectory)]
    return sum(len(span) for turn in turns for span in (turn.reasoning, turn.action) if span is not None)


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
                    return result.explanation or "a tool had a fault"
    return ""
