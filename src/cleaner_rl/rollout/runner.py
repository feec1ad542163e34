"""One object that runs rollouts: a model, its tools, a prompt, graders and a purifier, with retries for faults.

`cleaner rollout`, `cleaner eval`, verl's agent loop and `examples/train_loop.py` all run their rollouts through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeAlias

from cleaner_rl.rollout.engine import Connection
from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.rollout.grading import grade_rollout, purify_graded
from cleaner_rl.rollout.loop import rollout
from cleaner_rl.rollout.model import Model
from cleaner_rl.rollout.rescue import (
    RescueConfig,
    RescueEndedError,
    RescueTry,
    marked,
    rescue_model,
    rescue_purifier,
    rescue_start,
)
from cleaner_rl.rollout.rewards import ANSWER_ALONE, check_weights
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.rollout.tool_env import Sandbox, ToolEnv, prepared_for
from cleaner_rl.rollout.tool_plugins import tool_env_of
from cleaner_rl.tasks import AnyGrader, MathPool, Prompt, RewardScale, Task, check_gradable, load_prompt
from cleaner_rl.trajectory import Key, S, Seeds, StopReason, Trajectory
from cleaner_sandbox.protocol import SessionRequest

PAUSE = 1.0
"""Seconds before a rollout that ended in a fault is tried again; twice as long each time."""
PURIFY_RETRIES = 2
"""How often a graded rollout is replayed and re-scored again after a fault of the tool or the engine."""

Job: TypeAlias = tuple[Task, Key]


@dataclass(frozen=True, slots=True)
class RolloutRunner(Generic[S]):
    """Runs a model on tasks, and returns graded, purified trajectories.

    `open_runner` makes one and closes what it opened. A runner holds no state of its rollouts: `dataclasses.replace`
    gives another one that shares the sandbox and the graders, for instance without a purifier for evaluation.

    Examples:
        >>> from cleaner_rl.rollout import Connection, open_runner
        >>> from cleaner_sandbox import open_sandbox
        >>> async def print_rewards(tasks) -> None:
        ...     model = Connection(("http://127.0.0.1:8000",), "Qwen/Qwen3-4B")
        ...     async with open_sandbox() as sandbox, open_runner(model, "stateless", sandbox) as runner:
        ...         async for trajectory in runner.run(tasks, samples=8):
        ...             print(trajectory.key.task, trajectory.reward)
    """

    model: Model[S]
    tool_env: ToolEnv
    prompt: Prompt
    graders: Mapping[str, AnyGrader]
    budget: RolloutBudget = field(default_factory=RolloutBudget)
    purifier: Purifier | None = None
    """How rollouts are purified; None: they stay as they were sampled."""
    scale: RewardScale = RewardScale.SIGNED
    seed: int = 0
    """Seed of all random choices; each rollout derives its own from it, by task and number."""
    retries: int = 2
    """How often a rollout is sampled again after a fault of the engine or a tool."""
    concurrency: int = 64
    """Rollouts that run at the same time."""
    rescue: RescueConfig | None = None
    """How groups are rescued in which every rollout is wrong; None: not at all."""
    weights: Mapping[str, float] = field(default_factory=lambda: ANSWER_ALONE)
    """Weight of each grader in the reward; `answer` is the grader that the task names."""

    def __post_init__(self) -> None:
        check_weights(self.weights, self.graders)

    async def run(
        self, tasks: Iterable[Task], samples: int = 1, *, run: str = "rollout", step: int = 0
    ) -> AsyncGenerator[Trajectory[S], None]:
        """Run each task `samples` times, and yield the finished trajectories as they finish.

        Whoever stops early should close the iterator (`contextlib.aclosing`): that cancels what still runs.

        Raises:
            UngradableError: Some tasks can't be graded; nothing was sampled.

        Examples:
            >>> from contextlib import aclosing
            >>> async def first_solved(runner, tasks):
            ...     async with aclosing(runner.run(tasks, samples=8)) as trajectories:
            ...         async for trajectory in trajectories:
            ...             if trajectory.success:
            ...                 return trajectory
        """
        tasks = list(tasks)
        check_gradable(tasks, self.graders)
        jobs = [(task, Key(run, step, task.id, number)) for task in tasks for number in range(samples)]
        async with aclosing(finished(jobs, self.run_one, self.concurrency)) as trajectories:
            async for trajectory in trajectories:
                yield trajectory

    async def run_group(
        self, task: Task, samples: int = 8, *, run: str = "rollout", step: int = 0
    ) -> list[Trajectory[S]]:
        """Run one task `samples` times, and return the group in the order of its rollouts; a rescue comes last."""
        group = [trajectory async for trajectory in self.run([task], samples, run=run, step=step)]
        group.sort(key=lambda trajectory: trajectory.key.rollout)
        rescue = await self.try_rescue(task, group)
        return group if rescue is None or rescue.rescued is None else [*group, rescue.rescued]

    async def try_rescue(self, task: Task, group: Sequence[Trajectory[S]]) -> RescueTry[S] | None:
        """Look for a right rollout for a finished group in which every rollout is wrong.

        Returns:
            What was sampled, and the rollout if one was found. None if nothing was tried: rescue is off, a rollout is
            right, or none has a failed call to begin with.
        """
        if self.rescue is None or (start := rescue_start(group, self.seed, self.budget)) is None:
            return None
        key = replace(group[0].key, rollout=1 + max(each.key.rollout for each in group))
        model = rescue_model(self.rescue, self.model, group, start)
        try:
            made = await rollout(
                task,
                key,
                prompt=self.prompt,
                model=model,
                tool_env=self.tool_env,
                seeds=Seeds(self.seed, key.task, key.rollout),
                budget=self.budget,
                purifier=rescue_purifier(self.rescue, self.purifier),
                repair_only=start.turn,
            )
        except RescueEndedError:
            return RescueTry(model.allowance.spent)
        made = await self._graded(task, made)
        right = made.usable and made.success
        return RescueTry(model.allowance.spent, marked(made, start, model.allowance) if right else None)

    async def run_one(self, task: Task, key: Key) -> Trajectory[S]:
        """Run one rollout. A fault of the engine or a tool that stays is its stop reason, never a failure of the model.

        A rollout that is complete is never sampled again: a model that could break its grader would get new tries at an
        answer. `grade_one` says what happens to it.
        """
        seeds, purifier = self._of(key)

        async def sample() -> Trajectory[S]:
            return await rollout(
                task,
                key,
                prompt=self.prompt,
                model=self.model,
                tool_env=self.tool_env,
                seeds=seeds,
                budget=self.budget,
                purifier=purifier,
            )

        return await self.grade_one(task, await _tried(sample, self.retries))

    async def grade_one(self, task: Task, trajectory: Trajectory[S]) -> Trajectory[S]:
        """Grade and purify a rollout that was sampled.

        A grader that has a fault is asked about the same text three times in all. If the fault stays, the rollout is
        returned as it was sampled, with its own stop reason and the fault in `info.fault`: it is `ungraded`, and can be
        graded later. The same holds if it can't be replayed or re-scored. A rollout that itself ended in a fault is
        returned as it is.
        """
        if trajectory.stop_reason is StopReason.FAULT:
            return trajectory
        seeds, purifier = self._of(trajectory.key)
        sampled = replace(trajectory, info=replace(trajectory.info, fault=""))
        graded = await self._graded(task, sampled)

        async def purify() -> Trajectory[S]:
            tool_env = prepared_for(task, self.tool_env)
            return await purify_graded(graded, model=self.model, tool_env=tool_env, seeds=seeds, purifier=purifier)

        done = graded if graded.stop_reason is StopReason.FAULT else await _tried(purify, PURIFY_RETRIES)
        if done.stop_reason is StopReason.FAULT:
            return replace(sampled, info=replace(sampled.info, fault=done.info.fault))
        return done

    async def _graded(self, task: Task, trajectory: Trajectory[S]) -> Trajectory[S]:
        return await grade_rollout(
            trajectory, task, model=self.model, graders=self.graders, scale=self.scale, weights=self.weights
        )

    def _of(self, key: Key) -> tuple[Seeds, Purifier | None]:
        """The seeds of a rollout, and how it is purified."""
        seeds = Seeds(self.seed, key.task, key.rollout)
        return seeds, None if self.purifier is None else self.purifier.for_rollout(seeds, key.step)


async def _tried(attempt: Callable[[], Awaitable[Trajectory[S]]], retries: int) -> Trajectory[S]:
    """The first attempt without a fault, or the last one."""
    for number in range(retries):
        trajectory = await attempt()
        if trajectory.stop_reason is not StopReason.FAULT:
            return trajectory
        await asyncio.sleep(PAUSE * 2**number)
    return await attempt()


@asynccontextmanager
async def open_runner(
    model: Model[Any] | Connection,
    prompt: Prompt | str | Path,
    sandbox: Sandbox,
    *,
    request: SessionRequest = SessionRequest(),  # noqa: B008 - frozen
    graders: Mapping[str, AnyGrader] | None = None,
    weights: Mapping[str, float] = ANSWER_ALONE,
    budget: RolloutBudget = RolloutBudget(),  # noqa: B008 - frozen
    purifier: Purifier | None = None,
    scale: RewardScale = RewardScale.SIGNED,
    seed: int = 0,
    retries: int = 2,
    concurrency: int = 64,
    rescue: RescueConfig | None = None,
) -> AsyncIterator[RolloutRunner[Any]]:
    """Open a runner: connect to the model, find the prompt's tool, and start the graders.

    Args:
        model: A model, or the addresses of one, which is then connected to.
        prompt: A prompt, or the name or file of one.
        sandbox: Where programs run: a `Node`, a `SandboxClient`, or what `sandbox.open_sandbox` gives.
        request: What is asked of the sandbox for each call or session, such as limits.
        graders: Graders of your own and plain functions, by name, beside those that are installed.
        weights: Weight of each grader in the reward, such as `{"answer": 1.0, "failed_calls": 0.1, "mine": 0.5}`;
            `answer` is the grader that the task names, and all of the reward by default.
        budget: The most that one rollout may use.
        purifier: How rollouts are purified; None: not at all.
        scale: Rewards of -1 and 1, or of 0 and 1, for grades without a score.
        seed: Seed of all random choices.
        retries: How often a rollout is sampled again after a fault of the engine or a tool.
        concurrency: Rollouts that run at the same time.
        rescue: How `run_group` rescues groups in which every rollout is wrong; None: not at all.

    Raises:
        RescoringRefusedError: The purifier re-scores, and the model doesn't sample from its own distribution.

    Examples:
        >>> import asyncio
        >>> from cleaner_rl.rollout import Connection, Purifier, open_runner
        >>> from cleaner_sandbox import open_sandbox
        >>> from cleaner_rl.tasks import Message, Task
        >>> async def main() -> None:
        ...     model = Connection(("http://127.0.0.1:8000",), "Qwen/Qwen3-4B")
        ...     task = Task("sum", (Message("user", "What is 1 + 1?"),), grader="math", truth="2")
        ...     async with (
        ...         open_sandbox() as sandbox,
        ...         open_runner(model, "stateless", sandbox, purifier=Purifier()) as runner,
        ...     ):
        ...         print([trajectory.reward for trajectory in await runner.run_group(task, samples=8)])
        >>> asyncio.run(main())  # doctest: +SKIP
    """
    async with AsyncExitStack() as stack:
        found = prompt if isinstance(prompt, Prompt) else load_prompt(prompt)
        if isinstance(model, Connection):
            from cleaner_rl.rollout.engines import connect  # needs HTTP and a tokenizer, which other models do not

            model = await stack.enter_async_context(connect(model, found))
        if rescue is not None or (purifier is not None and purifier.rescore):
            # Refused at once where it would be refused later.
            model.gate(Key(), None if purifier is None else purifier.config.max_logprob_gap)
        try:
            pool = stack.enter_context(MathPool())
        except ImportError:
            if graders is None:
                raise
            pool = None
        yield RolloutRunner(
            model,
            tool_env_of(found, sandbox, request),
            found,
            standard_graders(sandbox, pool, graders),
            budget,
            purifier,
            scale,
            seed,
            retries,
            concurrency,
            rescue,
            weights,
        )


async def finished(
    jobs: Iterable[Job], run_one: Callable[[Task, Key], Awaitable[Trajectory[S]]], concurrency: int
) -> AsyncGenerator[Trajectory[S], None]:
    """Run the jobs in their order, a limited number at a time, and yield each trajectory when it is finished."""
    waiting = iter(jobs)
    running: set[asyncio.Future[Trajectory[S]]] = set()
    try:
        while True:
            for task, key in islice(waiting, concurrency - len(running)):
                running.add(asyncio.ensure_future(run_one(task, key)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                yield each.result()
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
