"""The adapter to verl passes the contract of adapters to trainers.

Our agent loop, verl's worker that runs it, a real TransferQueue, our sampler and verl's computation of advantages are
those of a run. Given rollouts stand for sampled ones, and a stand-in for the rest of the trainer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cleaner_rl.contracts.trainers import ROLLOUTS, Rollout, Trained, TrainerContract
from cleaner_rl.train import Recipe, as_arguments, to_recipe
from cleaner_rl.train.verl.overrides import overrides
from cleaner_rl.train.verl.plan import RunPlan
from cleaner_rl.train.verl.row_rollout import PHASE
from cleaner_rl.trajectory import Phase
from tests.engine.train.test_sampler import Trainer, _queue, sampler, trainer  # noqa: F401 - two are fixtures
from tests.train.recipes import values

COLUMNS = ("prompts", "responses", "loss_mask", "rollout_log_probs", "advantages")


def recipe(groups: int) -> Recipe:
    """A recipe whose batch is these groups. A group may have a fault, and isn't sampled again for it."""
    batch = {"prompts": groups, "mini_batch": groups, "rollouts": ROLLOUTS, "dynamic_sampling": False}
    return to_recipe(values(method="grpo", batch=batch, faults={"max_share": 0.9, "min_rollouts": 2}))


@pytest.mark.timeout(600)  # the first one starts Ray and the queue
class TestVerl(TrainerContract):
    groups: Sequence[Sequence[Rollout]]

    @pytest.fixture(autouse=True)
    def _given(self, tmp_path: Path, trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # noqa: F811
        from cleaner_rl.train.verl import agent_loop

        async def rolled(_runner: object, _recipe: object, _engine: object, row: Any, *_: object) -> Rollout:
            return self.groups[int(row["index"])][int(row["session_id"])]

        async def no_runner(*_: object) -> None: ...

        monkeypatch.setattr(agent_loop, "roll", rolled)
        monkeypatch.setattr(agent_loop, "shared_runner", no_runner)
        self.folder, self.trainer = tmp_path, trainer
        yield
        assert not trainer.refills, "a group was given up, and another one asked for"

    def train(self, groups: Sequence[Sequence[Rollout]]) -> Sequence[Sequence[Trained]]:
        import transfer_queue as tq
        from verl.trainer.ppo.v1.trainer_base import PPOTrainer

        from cleaner_rl.train.verl.compat import compose

        self.groups = groups
        plan = recipe(len(groups))
        config = compose(as_arguments(overrides(plan, self.folder)))
        uids = [f"prompt{number}" for number in range(len(groups))]
        asyncio.run(run_prompts(worker(plan, self.folder, config), uids))

        batch, _ = sampler(plan, self.folder, self.trainer).sample(1, "train", len(groups))
        actor_computes_logprobs(batch.keys)
        stand_in: Any = SimpleNamespace(config=config)
        PPOTrainer._compute_advantage(stand_in, batch, {})

        update = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=list(COLUMNS))
        rows: dict[str, list[Trained]] = {uid: [] for uid in uids}
        for place, key in enumerate(batch.keys):
            prompt, response, mask, logprobs, advantages = (update[name][place].tolist() for name in COLUMNS)
            known = {advantage for advantage, trained in zip(advantages, mask, strict=True) if trained}
            assert len(known) == 1, f"{key} has several advantages: {known}"
            rows[key.split("_")[0]].append(Trained([*prompt, *response], mask, logprobs, known.pop()))
        tq.kv_clear(keys=batch.keys, partition_id="train")
        return list(rows.values())


def worker(plan: Recipe, folder: Path, config: Any) -> Any:
    """verl's worker of agent loops over a model that nobody asks."""
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    from cleaner_rl.train.verl.agent_loop import CleanerAgentLoop

    class Loop(CleanerAgentLoop):
        def __init__(self) -> None:
            self._plan = RunPlan(plan, (), folder)
            self.server_manager = SimpleNamespace(generate=None)
            self.tokenizer = None
            self.rollout_config = SimpleNamespace(name="vllm", max_model_len=512)

    base: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class  # Ray has made an actor of it

    class Worker(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.config, self.processor, self.reward_loop_worker_handles = config, None, None
            self.distillation_enabled = False

        async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **row: Any) -> None:
            del row["trace"]
            outputs = await Loop().run(sampling_params, **row)
            await self._agent_loop_postprocess(outputs, trajectory["validate"], **row)

    return Worker()


async def run_prompts(running: Any, uids: Sequence[str]) -> None:
    import transfer_queue as tq

    for index, uid in enumerate(uids):
        tag = {"is_prompt": True, "status": "pending", "global_steps": 1}
        await tq.async_kv_put(key=uid, partition_id="train", tag=tag)
        row = {"uid": uid, "index": index, "global_steps": 1, PHASE: Phase.TRAINING, "__rollout_n__": ROLLOUTS}
        await running._run_prompt(row, {}, {"validate": False})


def actor_computes_logprobs(keys: Sequence[str]) -> None:
    """Put verl's column of the actor's log-probs there, equal to the rollout's."""
    import transfer_queue as tq
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    found = tq.kv_batch_get(keys=list(keys), partition_id="train", select_fields=["rollout_log_probs"])
    columns = [{"old_log_probs": row} for row in found["rollout_log_probs"]]
    tq.kv_batch_put(keys=list(keys), partition_id="train", fields=list_of_dict_to_tensordict(columns))
