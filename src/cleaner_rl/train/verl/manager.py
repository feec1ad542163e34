"""Hands prompts to the workers that run rollouts, oversampled for GRPO-RoC and numbered for their seeds.

verl's `rollout.n` stays the number of rows that are trained on, because verl sizes its mini-batches by it. The number
of rollouts sampled for each prompt is a column of the batch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayActorError
from tensordict.tensorclass import NonTensorData, NonTensorStack
from verl.trainer.ppo.v1 import AgentLoopManagerTQ

from cleaner_rl.purify import Phase
from cleaner_rl.train.launch.plan import AGENT, read_plan
from cleaner_rl.train.verl.router import EvenRouter
from cleaner_rl.train.verl.row_rollout import PHASE, ROUND
from cleaner_rl.train.verl.wiring import active_sampler, loop_missing, plugin_missing, refuse, router_missing

SAMPLED = "__rollout_n__"
"""verl's own column for the number of rollouts of a prompt."""


class WorkerLostError(RuntimeError):
    """A process that ran rollouts has died, and the groups that it had begun are lost."""

    def __init__(self, error: RayActorError) -> None:
        super().__init__(f"an agent-loop worker died, and its rollouts are lost: {error}. Run the same command again")


class CleanerManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """Extends verl's manager for our agent loop."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._recipe = read_plan(str(self.config.trainer.v1.sampler.sampler_kwargs.folder)).recipe
        active_sampler()
        self._asked: dict[Any, Any] = {}
        """Health checks that the workers haven't answered yet."""
        self._seen: Counter[tuple[int, int]] = Counter()

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        refuse(await asyncio.gather(*self._questions()))

    def _questions(self) -> Iterator[Any]:
        """Ask every process of verl's whether our part is there."""
        trainer = active_sampler().trainer
        for worker in self.agent_loop_workers:
            yield worker.__ray_call__.remote(loop_missing)
        servers = [server for manager in trainer._rollout_server_managers() for server in manager.server_handles]
        for worker in [*trainer.actor_rollout_wg.workers, *servers]:
            yield worker.__ray_call__.remote(plugin_missing)
        yield self.llm_client._load_balancer.__ray_call__.remote(router_missing, self._recipe, EvenRouter)

    def generate_sequences(self, prompts: Any) -> None:
        """Start the rollouts of a batch of prompts without waiting for them."""
        validating = bool(prompts["validate"]) if "validate" in prompts else False
        prompts[PHASE] = NonTensorData(str(Phase.EVALUATION if validating else Phase.TRAINING))
        # Rows that name another loop, verl's own tool loop for one, would run without any of this.
        prompts["agent_name"] = NonTensorData(AGENT)
        if not validating:
            # A rescue waits in the process that runs its group's rollouts, so it is one of them for verl.
            prompts[SAMPLED] = NonTensorData(self._recipe.sampled + (self._recipe.rescue is not None))
            prompts[ROUND] = NonTensorStack(*self._rounds(prompts))
        try:
            super().generate_sequences(prompts)
        except RayActorError as error:
            raise WorkerLostError(error) from None
        # verl begins with the first worker each time, and a refill has fewer prompts than there are workers.
        served = len(prompts) % len(self.agent_loop_workers)
        self.agent_loop_workers: list[Any] = self.agent_loop_workers[served:] + self.agent_loop_workers[:served]

    def check_workers(self) -> None:
        """Raise `WorkerLostError` if a worker has died. A busy worker may answer later."""
        if not self._asked:
            self._asked = {worker.__ray_ready__.remote(): worker for worker in self.agent_loop_workers}
        answered, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        for answer in answered:
            worker = self._asked.pop(answer)
            try:
                ray.get(answer)
            except RayActorError as error:
                raise WorkerLostError(error) from None
            self._asked[worker.__ray_ready__.remote()] = worker

    def _rounds(self, prompts: Any) -> list[int]:
        step = int(prompts["global_steps"])
        rounds = []
        for index in prompts["index"]:
            name = (step, int(index))
            rounds.append(self._seen[name])
            self._seen[name] += 1
        return rounds
