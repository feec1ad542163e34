"""verl's agent loop, thin over `cleaner_rl.rollout`: verl's servers are the policy, the sandbox the tool.

The grader runs here and sets the reward, so that verl's reward workers have nothing to do. Whatever isn't the model's
doing (engine, tool, grader) returns no row at all: a masked row would still count in its group's mean and deviation.
"""

from __future__ import annotations

import logging
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from cleaner_rl.purify import Phase
from cleaner_rl.rollout import Sampling, finish, rollout
from cleaner_rl.tasks import from_verl
from cleaner_rl.train.outputs import Row, to_row
from cleaner_rl.train.plan import read_plan
from cleaner_rl.train.policy import VerlPolicy
from cleaner_rl.train.workshop import workshop
from cleaner_rl.trajectory import Key, Seeds, TokenSpan, Trajectory, derive_seed

PHASE = "cleaner_phase"
ROUND = "cleaner_round"
"""Columns that our manager adds to a batch: what it is for, and how often this step has seen the task before."""

_log = logging.getLogger(__name__)


class CleanerOutput(AgentLoopOutput):  # type: ignore[misc]
    """verl's output, with the trajectory that it was made of."""

    trajectory: bytes = b""


class CleanerAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """One rollout."""

    def __init__(self, *, folder: str, **options: Any) -> None:
        """`folder` is the run's; verl gives the rest."""
        super().__init__(**options)
        self._plan = read_plan(folder)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[CleanerOutput]:
        """One rollout of a row: one output, or none if anything but the model failed."""
        recipe, phase = self._plan.recipe, Phase(row[PHASE])
        shop = await workshop(self._plan, self.tokenizer)
        task = from_verl(row)
        step, number = int(row["global_steps"]), int(row["session_id"])
        run = recipe.name if phase is Phase.TRAINING else f"{recipe.name}-evaluation"
        key = Key(run, step, task.id, number)
        # A later look at a task draws anew; an evaluation draws alike at every step.
        drawn = (step, int(row[ROUND])) if phase is Phase.TRAINING else ()
        seeds = Seeds(derive_seed(recipe.seed, phase, *drawn), task.id, number)
        top_k = int(sampling_params["top_k"])
        sampling = Sampling(
            float(sampling_params["temperature"]), float(sampling_params["top_p"]), None if top_k < 1 else top_k
        )
        model = shop.model(
            VerlPolicy(self.server_manager, self.rollout_config.name), sampling, int(self.rollout_config.max_model_len)
        )
        purifier, toolbox = shop.purifier(phase), shop.toolbox()
        if purifier is not None and not purifier.applies(seeds, step):
            purifier = None
        trajectory = await rollout(
            task,
            key,
            prompt=shop.prompt,
            model=model,
            toolbox=toolbox,
            seeds=seeds,
            budget=shop.budget,
            purifier=purifier,
        )
        trajectory = await finish(
            trajectory,
            task,
            model=model,
            toolbox=toolbox,
            graders=shop.graders,
            seeds=seeds,
            scale=recipe.tasks.reward,
            purifier=purifier,
        )
        made = to_row(trajectory, recipe)
        if made is None:
            _log.warning("no row of %s: %s, %s", key, trajectory.ending, trajectory.extra.get("fault", "no reward"))
            return []
        return [_output(made, trajectory)]


def _output(row: Row, trajectory: Trajectory[TokenSpan]) -> CleanerOutput:
    oldest, newest = row.versions
    return CleanerOutput(
        prompt_ids=row.prompt_ids,
        response_ids=row.response_ids,
        response_mask=row.response_mask,
        response_logprobs=row.logprobs,
        reward_score=row.reward,
        num_turns=len(trajectory.turns),
        metrics=AgentLoopMetrics(),
        extra_fields={
            "min_global_steps": oldest,
            "max_global_steps": newest,
            "reward_extra_info": {"acc": float(bool(trajectory.success))},
        },
        trajectory=row.packed,
    )
