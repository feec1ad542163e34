"""verl's agent loop, thin over `cleaner_rl.rollout`: verl's servers are the policy, the sandbox the tool.

The grader runs here and sets the reward, so that verl's reward workers have nothing to do. Whatever isn't the model's
doing (engine, tool, grader) returns no row at all: a masked row would still count in its group's mean and deviation.
What is left out for another reason returns none either, and says so. With rescue on, one rollout more is asked for: the
rescue of the group (`rescues`).
"""

from __future__ import annotations

import logging
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from cleaner_rl.train.rows import Exclusion, Graded, TrainRow, exclusion, to_row
from cleaner_rl.train.verl.engine import VerlEngine
from cleaner_rl.train.verl.excluded import tell_absent
from cleaner_rl.train.verl.packing import SOLVED, pack
from cleaner_rl.train.verl.plan import read_plan
from cleaner_rl.train.verl.rescues import RunningGroups, tell_rescue
from cleaner_rl.train.verl.row_rollout import PHASE, rescue, rescues, roll
from cleaner_rl.train.verl.runner import shared_runner
from cleaner_rl.trajectory import Phase

_log = logging.getLogger(__name__)
_GROUPS = RunningGroups()


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
        engine = VerlEngine(self.server_manager, self.rollout_config.name)
        runner = await shared_runner(self._plan, self.tokenizer, engine)
        window = int(self.rollout_config.max_model_len)
        recipe = self._plan.recipe
        uid, number = str(row["uid"]), int(row["session_id"])
        if rescues(recipe, row) and number == recipe.sampled:
            group = await _GROUPS.group(uid, number)
            # A group that faults left too small is sampled again.
            if group is None or sum(exclusion(each) is None for each in group) < recipe.smallest_group:
                return []
            tried = await rescue(runner, recipe, engine, row, sampling_params, window, group)
            if tried is None:
                return []
            await tell_rescue(row, tried.tokens)
            return [] if tried.rescued is None else self._outputs(tried.rescued, engine)
        rolled = roll(runner, recipe, engine, row, sampling_params, window)
        trajectory = await (_GROUPS.ended(uid, number, rolled) if rescues(recipe, row) else rolled)
        outputs = self._outputs(trajectory, engine)
        if exclusion(trajectory, recipe.purify.graft_logprobs) is Exclusion.LEFT_OUT:
            await tell_absent(row, "train" if row[PHASE] == Phase.TRAINING else "val", trajectory.stop_reason)
        return outputs

    def _outputs(self, graded: Graded, engine: VerlEngine) -> list[CleanerOutput]:
        recipe = self._plan.recipe
        trajectory = recipe.overlong().shape(graded)
        made = to_row(trajectory, recipe.purify.graft_logprobs)
        if made is None:
            why = trajectory.info.fault or "no reward"
            _log.warning("no row of %s: %s, %s", trajectory.key, trajectory.stop_reason, why)
            return []
        return [_output(made, trajectory, engine.oldest)]


def _output(row: TrainRow, trajectory: Graded, begun: int | None) -> CleanerOutput:
    """`begun` is the oldest weights that its policy saw: of a turn that they began, the row knows who ended it."""
    oldest, newest = row.versions
    return CleanerOutput(
        prompt_ids=row.prompt_ids.tolist(),
        response_ids=row.response_ids.tolist(),
        response_mask=row.loss_mask.astype(int).tolist(),
        response_logprobs=row.logprobs.tolist(),
        reward_score=row.reward,
        num_turns=len(trajectory.turns),
        metrics=AgentLoopMetrics(),
        extra_fields={
            "min_global_steps": oldest if begun is None else min(oldest, begun),
            "max_global_steps": newest,
            "reward_extra_info": {SOLVED: float(bool(trajectory.success))},
        },
        trajectory=pack(trajectory),
    )
