"""Hands prompts to the workers that run rollouts, oversampled for GRPO-RoC and numbered for their seeds.

verl's `rollout.n` stays the number of rows that are trained on, because verl sizes its mini-batches by it. The number
of rollouts sampled for each prompt is a column of the batch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ray.exceptions import RayActorError
from tensordict.tensorclass import NonTensorData, NonTensorStack
from verl.trainer.ppo.v1 import AgentLoopManagerTQ

from cleaner_rl.train.verl.liveness import AGAIN, Liveness, Part, PartLostError, Watchdog
from cleaner_rl.train.verl.plan import AGENT, read_plan
from cleaner_rl.train.verl.router import EvenRouter
from cleaner_rl.train.verl.row_rollout import PHASE, ROUND
from cleaner_rl.train.verl.wiring import active_sampler, loop_missing, plugin_missing, refuse, router_missing
from cleaner_rl.trajectory import Phase

SAMPLED = "__rollout_n__"
"""verl's own column for the number of rollouts of a prompt."""


WORKER = "an agent-loop worker"
ROLLOUTS = "its rollouts are lost"


class CleanerManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """Extends verl's manager for our agent loop."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._plan = read_plan(str(self.config.trainer.v1.sampler.sampler_kwargs.folder))
        self._recipe = self._plan.recipe
        active_sampler()
        self._seen: Counter[tuple[int, int]] = Counter()

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        refuse(await asyncio.gather(*self._questions()))
        self._watchdog = Watchdog(Liveness(self._parts()), self._plan.folder)
        self._watchdog.start()

    def _questions(self) -> Iterator[Any]:
        """Ask every process of verl's whether our part is there."""
        trainer = active_sampler().trainer
        for worker in self.agent_loop_workers:
            yield worker.__ray_call__.remote(loop_missing)
        for worker in [*trainer.actor_rollout_wg.workers, *_servers(trainer)]:
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
            raise PartLostError(f"{WORKER} died, and {ROLLOUTS}: {error}. {AGAIN}") from None
        # verl begins with the first worker each time, and a refill has fewer prompts than there are workers.
        served = len(prompts) % len(self.agent_loop_workers)
        self.agent_loop_workers: list[Any] = self.agent_loop_workers[served:] + self.agent_loop_workers[:served]

    def check_parts(self, seconds: float = 0.0) -> None:
        """Raise `PartLostError` if a process of the run has died, or is found to have died within some seconds."""
        self._watchdog.check(seconds)

    def _parts(self) -> Iterator[Part]:
        """Yield the processes that the run can't do without."""
        trainer = active_sampler().trainer
        for worker in self.agent_loop_workers:
            yield Part(WORKER, worker, ROLLOUTS)
        for server in _servers(trainer):
            yield Part("an inference engine", server, "its requests are lost")
        for worker in trainer.actor_rollout_wg.workers:
            yield Part("a training process", worker, "its share of the model is lost")
        yield Part("the router", self.llm_client._load_balancer, "no request finds an engine")

    def _rounds(self, prompts: Any) -> list[int]:
        step = int(prompts["global_steps"])
        rounds = []
        for index in prompts["index"]:
            name = (step, int(index))
            rounds.append(self._seen[name])
            self._seen[name] += 1
        return rounds


def _servers(trainer: Any) -> list[Any]:
    """Return the servers of all engines."""
    return [server for manager in trainer._rollout_server_managers() for server in manager.server_handles]
