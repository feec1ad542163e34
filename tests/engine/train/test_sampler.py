"""The sampler on a real TransferQueue; a stand-in plays the trainer, and the rollouts that answer it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from cleaner_rl.purify import PurifyConfig, PurifyScope, purify
from cleaner_rl.train import Recipe, as_arguments, to_recipe
from cleaner_rl.train.record import TooManyFaultsError
from cleaner_rl.train.rows import View, group_rows, to_row
from cleaner_rl.train.verl.overrides import overrides
from cleaner_rl.train.verl.plan import RunPlan
from cleaner_rl.trajectory import Key, RepairMode, StopReason
from cleaner_rl.trajectory.store import read
from tests.builders import answered, failed, trajectory, worked
from tests.train.recipes import values
from tests.train.test_rows import rescored

pytestmark = pytest.mark.timeout(600)  # the first one starts Ray and the queue
MIXED = (True, True, True, False, False, False, False, False)
"""Successes and failures of a group; the first success has a failed call."""
Outcome = bool | StopReason | None
"""Whether a rollout succeeds. A fault, None, has no row; one that was left out has none either, and says why."""
RESCUE_TOKENS, SOURCE = 30, 2
"""What a rescue sampled, and the rollout that it began with."""


@pytest.fixture(scope="module", autouse=True)
def _queue() -> Iterator[None]:
    import ray
    import transfer_queue as tq

    from cleaner_rl.train.verl.compat import compose

    settings = ["transfer_queue.backend.SimpleStorage.num_data_storage_units=1", "actor_rollout_ref.rollout.name=vllm"]
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=4, include_dashboard=False, _temp_dir=folder, _node_ip_address="127.0.0.1")
        tq.init(compose(settings).transfer_queue)
        yield
        tq.close()
        ray.shutdown()


@dataclass
class Trainer:
    """Plays the trainer: each refill is answered at once by the next of `groups`."""

    groups: list[Sequence[Outcome]] = field(default_factory=list)
    """For each prompt: how its rollouts end."""
    refills: list[int] = field(default_factory=list)
    penalty: float = 0.0
    """On a rollout's length; the later of a group are the longer ones."""
    number: int = 0
    repairs: bool = False
    """Whether rollouts are repaired in hindsight."""
    parameter_sync_step: int = 1
    local_trigger_step: int = 0

    @property
    def tokenizer(self) -> Any:
        return SimpleNamespace(eos_token_id=0)

    @property
    def agent_loop_manager(self) -> Any:
        from cleaner_rl.train.verl.manager import CleanerManager

        class Idle(CleanerManager):
            """A manager without workers."""

            def __init__(self) -> None: ...
            def check_parts(self, seconds: float = 0.0) -> None: ...

        return Idle()

    def refill(self, count: int) -> int:
        self.refills.append(count)
        for _ in range(count):
            self.finish(self.groups.pop(0) if self.groups else MIXED)
        return count

    def finish(self, outcomes: Sequence[Outcome], rescued: bool | None = None) -> str:
        """A prompt whose rollouts have all ended; `rescued`: whether the rescue that was tried found a rollout."""
        import transfer_queue as tq
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        from cleaner_rl.train.verl.agent_loop import _output
        from cleaner_rl.train.verl.excluded import tell_absent
        from cleaner_rl.train.verl.rescues import tell_rescue

        uid, self.number = str(uuid4()), self.number + 1
        rows: list[dict[str, Any]] = []
        keys = []
        if rescued is not None:
            asyncio.run(tell_rescue({"uid": uid}, RESCUE_TOKENS))
        for place, success in enumerate((*outcomes, True) if rescued else outcomes):
            if isinstance(success, StopReason):
                asyncio.run(tell_absent({"uid": uid, "session_id": place}, "train", success))
            if not isinstance(success, bool):
                continue
            turns = (failed(), worked(), answered()) if place == 0 else (worked(), answered())
            reward = (1.0 if success else -1.0) - self.penalty * place
            one = replace(
                trajectory(*turns, success=success),
                key=Key("example", 1, f"task{self.number}", place),
                reward=reward,
                stop_reason=StopReason.ANSWERED,
            )
            if place == len(outcomes):
                info = replace(one.info, rescued={"of": SOURCE, "turn": 0}, sampled=RESCUE_TOKENS)
                one = replace(one, info=info)
            if self.repairs:
                one = rescored(purify(one, PurifyConfig(scope=PurifyScope.ALL), RepairMode.HINDSIGHT))
            keys.append(f"{uid}_{place}_0")
            row = to_row(one)
            assert row is not None
            column = _output(row, one, None).as_dict()
            # As verl's worker and its actor add them.
            added = {"uid": uid, "loss_mask": column["response_mask"], "old_log_probs": column["rollout_log_probs"]}
            rows.append({**column, **added})
        if rows:
            tags = [{"status": "success"} for _ in rows]
            tq.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(rows), tags=tags)
        tag = {"is_prompt": True, "status": "finished", "global_steps": 1}
        tq.kv_batch_put(keys=[uid], partition_id="train", tags=[tag])
        return uid


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    import transfer_queue as tq

    yield Trainer()
    left = (tq.kv_list("train") or {}).get("train", {})
    if left:
        tq.kv_clear(keys=list(left), partition_id="train")


def recipe(**changes: Any) -> Recipe:
    batch = {"prompts": 2, "mini_batch": 1, "rollouts": 4, "dynamic_sampling": False, **changes.pop("batch", {})}
    roc = {"sample": 8, "min_positive": 1, "min_negative": 1}
    return to_recipe(values(**{"method": "roc", **changes}, batch=batch, roc=roc))


def sampler(plan: Recipe, folder: Path, trainer: Trainer) -> Any:
    from omegaconf import OmegaConf

    from cleaner_rl.train.verl.plan import read_plan
    from cleaner_rl.train.verl.sampler import CleanerSampler

    RunPlan(plan, (), folder).write()
    read_plan.cache_clear()
    return CleanerSampler(
        trainer_mode="sync",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({"folder": str(folder)}),
        refill_fn=trainer.refill,
    )


def sample(it: Any) -> tuple[Any, dict[str, Any]]:
    batch, metrics = it.sample(global_steps=1, partition_id="train", batch_size=2)
    return batch, metrics


def uids(batch: Any) -> set[str]:
    return {key.split("_")[0] for key in batch.keys}


def test_of_an_oversampled_group_the_cleanest_successes_are_trained_on(tmp_path: Path, trainer: Trainer) -> None:
    import transfer_queue as tq

    ours = {trainer.finish(MIXED), trainer.finish(MIXED)}

    batch, metrics = sample(sampler(recipe(), tmp_path, trainer))

    assert uids(batch) == ours
    assert len(batch.keys) == len(batch.tags) == 8
    assert not any(key.endswith("_0_0") for key in batch.keys)  # the success with the failed call
    assert set((tq.kv_list("train") or {})["train"]) == set(batch.keys)  # all others have left the queue
    assert metrics["cleaner/accuracy"] == 3 / 8
    assert metrics["cleaner/roc/errors_kept"] == 0
    assert metrics["cleaner/roc/errors_drawn"] == 1 / 8
    assert len(list(read(tmp_path / "trajectories"))) == 16


@pytest.mark.parametrize("verl", [{}, {"algorithm.adv_estimator": "grpo"}], ids=["ours", "verl's"])
@pytest.mark.parametrize("method", ["roc", "mask"])
def test_the_update_gets_the_rows_of_the_group(
    tmp_path: Path, trainer: Trainer, method: str, verl: dict[str, str]
) -> None:
    import transfer_queue as tq
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from cleaner_rl.train.verl.compat import compose

    trainer.finish((*MIXED[:7], None))
    trainer.finish(MIXED)
    plan = recipe(method=method, verl=verl)
    settings = as_arguments(overrides(plan, tmp_path))
    stand_in: Any = SimpleNamespace(config=compose(settings))

    batch, _ = sample(sampler(plan, tmp_path, trainer))
    PPOTrainer._compute_advantage(stand_in, batch, {})

    names = ["responses", "response_mask", "loss_mask", "advantages"]
    update = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=names)
    stored: list[Any] = list(read(tmp_path / "trajectories"))
    groups = [[each for each in stored if each.key.task == task] for task in ("task1", "task2")]
    expected = [row for group in groups for row in group_rows(group, plan.row_config()).rows]
    assert len(batch.keys) == len(expected) == (8 if method == "roc" else 15)
    for place, row in enumerate(expected):
        found = {name: update[name][place].tolist() for name in names}
        assert found["responses"] == row.response_ids.tolist()
        assert found["response_mask"] == found["loss_mask"] == row.loss_mask.astype(int).tolist()
        assert found["advantages"] == pytest.approx([row.advantage * each for each in found["response_mask"]], rel=1e-6)
    masked = [row.loss_mask.sum() < whole_mask(stored, row.key).sum() for row in expected]
    assert sum(masked) == (2 if method == "mask" else 0)  # the first success of each group has a failed call


def test_the_update_gets_the_view_that_is_drawn(tmp_path: Path, trainer: Trainer) -> None:
    import transfer_queue as tq

    trainer.repairs = True
    for _ in range(2):
        trainer.finish(MIXED)
    # With this seed one of the two repaired rollouts is shown as it was sampled.
    plan = recipe(method="hindsight", purify={"views": "one"}, batch={"rollouts": 8}, seed=4)

    batch, _ = sample(sampler(plan, tmp_path, trainer))

    names = ["responses", "response_mask", "loss_mask", "rollout_log_probs", "input_ids", "position_ids", "rm_scores"]
    stored: list[Any] = list(read(tmp_path / "trajectories"))
    groups = [[each for each in stored if each.key.task == task] for task in ("task1", "task2")]
    expected = [row for group in groups for row in group_rows(group, plan.row_config()).rows]
    shown = [place for place, row in enumerate(expected) if row.view is View.RECOVERY]
    assert len(shown) == 1
    assert [each.info.verdict.get("views") for each in stored].count(["recovery"]) == 1
    for place, row in enumerate(expected):
        update = tq.kv_batch_get(keys=[batch.keys[place]], partition_id="train", select_fields=names[:4])
        found = {name: update[name][0].tolist() for name in names[:4]}
        assert found["responses"] == row.response_ids.tolist()
        assert found["response_mask"] == found["loss_mask"] == row.loss_mask.astype(int).tolist()
        assert found["rollout_log_probs"] == pytest.approx(row.logprobs.tolist())
    (place,) = shown
    row, tag = expected[place], batch.tags[place]
    update = tq.kv_batch_get(keys=[batch.keys[place]], partition_id="train", select_fields=names[4:])
    whole = [*row.prompt_ids.tolist(), *row.response_ids.tolist()]
    assert update["input_ids"][0].tolist() == whole
    assert update["position_ids"][0].tolist() == list(range(len(whole)))
    assert float(update["rm_scores"][0].sum()) == row.reward
    assert (tag["response_len"], tag["seq_len"]) == (len(row.response_ids), len(whole))


def test_both_views_of_a_rollout_are_rows_of_the_update(tmp_path: Path, trainer: Trainer) -> None:
    import transfer_queue as tq
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    from cleaner_rl.train.verl.compat import compose

    trainer.repairs = True
    for _ in range(2):
        trainer.finish(MIXED)
    plan = recipe(method="hindsight", purify={"views": "full"}, batch={"rollouts": 8})
    stand_in: Any = SimpleNamespace(config=compose(as_arguments(overrides(plan, tmp_path))))

    batch, _ = sample(sampler(plan, tmp_path, trainer))
    for key in batch.keys:  # by the actor, on verl
        own = tq.kv_batch_get(keys=[key], partition_id="train", select_fields=["rollout_log_probs"])[0]
        actors = list_of_dict_to_tensordict([{"old_log_probs": own["rollout_log_probs"]}])
        tq.kv_batch_put(keys=[key], partition_id="train", fields=actors)
    PPOTrainer._compute_advantage(stand_in, batch, {})

    names = ["responses", "response_mask", "loss_mask", "rollout_log_probs", "advantages"]
    stored: list[Any] = list(read(tmp_path / "trajectories"))
    groups = [[each for each in stored if each.key.task == task] for task in ("task1", "task2")]
    expected = [group_rows(group, plan.row_config()).rows for group in groups]
    assert [len(rows) for rows in expected] == [9, 9]
    assert [each.info.verdict.get("views") for each in stored].count(["clean", "recovery"]) == 2
    filled = 2 * 8
    assert len(batch.keys) == 2 * filled
    for place, row in [
        (filled * number + index, row) for number, rows in enumerate(expected) for index, row in enumerate(rows)
    ]:
        update = tq.kv_batch_get(keys=[batch.keys[place]], partition_id="train", select_fields=names)
        found = {name: update[name][0].tolist() for name in names}
        assert found["responses"] == row.response_ids.tolist()
        assert found["response_mask"] == found["loss_mask"] == row.loss_mask.astype(int).tolist()
        assert found["rollout_log_probs"] == pytest.approx(row.logprobs.tolist())
        assert found["advantages"] == pytest.approx([row.advantage * each for each in found["response_mask"]], rel=1e-6)
        if row.view is View.RECOVERY:
            whole = [*row.prompt_ids.tolist(), *row.response_ids.tolist()]
            ids = tq.kv_batch_get(keys=[batch.keys[place]], partition_id="train", select_fields=["input_ids"])
            assert ids["input_ids"][0].tolist() == whole
            assert batch.tags[place]["seq_len"] == len(whole)
    filling = [place for place in range(2 * filled) if place % filled >= 9]
    assert all(batch.tags[place]["is_padding"] for place in filling)


@pytest.mark.parametrize("advantage", ["group", "capped", "rescue_only"])
@pytest.mark.parametrize("rows", ["join", "replace"])
def test_a_rescue_is_trained_on_as_the_recipe_says(tmp_path: Path, trainer: Trainer, rows: str, advantage: str) -> None:
    import transfer_queue as tq
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from cleaner_rl.train.verl.compat import compose

    wrong = trainer.finish([False] * 8, rescued=True)
    in_vain = trainer.finish([False] * 8, rescued=False)
    plan = recipe(method="hindsight", batch={"rollouts": 8}, rescue={"rows": rows, "advantage": advantage})
    stand_in: Any = SimpleNamespace(config=compose(as_arguments(overrides(plan, tmp_path))))

    batch, metrics = sample(sampler(plan, tmp_path, trainer))
    PPOTrainer._compute_advantage(stand_in, batch, {})

    padding = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")]
    own = [key for key in batch.keys if key not in padding]
    assert len(batch.keys) == 2 * plan.rows
    assert len(padding) == (1 if rows == "join" else 0)  # in the group without a rescue
    names = ["responses", "response_mask", "loss_mask", "advantages"]
    update = tq.kv_batch_get(keys=own, partition_id="train", select_fields=names)
    stored: list[Any] = list(read(tmp_path / "trajectories"))
    groups = [[each for each in stored if each.key.task == task] for task in ("task1", "task2")]
    expected = [row for group in groups for row in group_rows(group, plan.row_config()).rows]
    assert len(own) == len(expected)
    for place, row in enumerate(expected):
        found = {name: update[name][place].tolist() for name in names}
        assert found["responses"] == row.response_ids.tolist()
        assert found["response_mask"] == found["loss_mask"] == row.loss_mask.astype(int).tolist()
        assert found["advantages"] == pytest.approx([row.advantage * each for each in found["response_mask"]], rel=1e-6)
    rescue = next(row for row in expected if row.key == Key("example", 1, "task1", 8))
    usual = {"join": 8 / 3, "replace": 7 / 8**0.5}[rows]
    assert rescue.advantage == pytest.approx(1.0 if advantage == "capped" else usual, rel=1e-5)
    if padding:
        loss = tq.kv_batch_get(keys=padding, partition_id="train", select_fields=["loss_mask", "advantages"])
        assert not loss["loss_mask"][0].any()
        assert not loss["advantages"][0].any()
    left_out = {f"{wrong}_{SOURCE}_0"} if rows == "replace" else set()
    sampled_keys = {f"{uid}_{place}_0" for uid in (wrong, in_vain) for place in range(8)} | {f"{wrong}_8_0"}
    assert set(own) == sampled_keys - left_out
    figures = [
        metrics[f"cleaner/{name}"] for name in ("rescue_tries", "rescues", "rescue_tokens", "faults", "accuracy")
    ]
    assert figures == [2, 1, 2 * RESCUE_TOKENS, 0, 0]
    assert not (tq.kv_list() or {}).get("train-rescues")


def test_a_rescued_group_has_variance_under_dynamic_sampling(tmp_path: Path, trainer: Trainer) -> None:
    rescued = trainer.finish([*[False] * 7, None], rescued=True)
    trainer.finish(MIXED)
    plan = recipe(method="hindsight", batch={"rollouts": 8, "dynamic_sampling": True}, rescue={})

    batch, metrics = sample(sampler(plan, tmp_path, trainer))

    assert rescued in uids(batch)
    assert trainer.refills == []
    assert metrics["cleaner/faults"] == 1


def test_a_group_waits_for_its_rescue_and_no_other_does(
    tmp_path: Path, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's own worker runs two groups; rollouts and rescue are given."""
    import transfer_queue as tq
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    from cleaner_rl.rollout import RescueTry
    from cleaner_rl.train.verl import agent_loop
    from cleaner_rl.train.verl.plan import read_plan
    from cleaner_rl.train.verl.row_rollout import PHASE

    plan = recipe(method="hindsight", batch={"rollouts": 2}, rescue={})
    RunPlan(plan, (), tmp_path).write()
    read_plan.cache_clear()
    status: list[dict[str, str]] = []
    seen: list[int] = []
    other_ended = asyncio.Event()

    def told() -> dict[str, str]:
        tags = (tq.kv_list("train") or {})["train"]
        return {key: tag["status"] for key, tag in tags.items() if tag.get("is_prompt")}

    def ended(row: dict[str, Any], success: bool) -> Any:
        key = Key("example", 1, row["uid"], int(row["session_id"]))
        one = replace(trajectory(worked(), answered(), success=success), key=key, stop_reason=StopReason.ANSWERED)
        return replace(one, reward=1.0 if success else -1.0)

    async def roll(_runner: Any, _recipe: Any, _engine: Any, row: dict[str, Any], *_: Any) -> Any:
        await asyncio.sleep(0)
        return ended(row, success=row["uid"] == "right")

    async def rescue(_runner: Any, _recipe: Any, _engine: Any, row: dict[str, Any], *rest: Any) -> Any:
        (*_, group) = rest
        seen.append(len(group))
        if row["uid"] == "right":
            return None
        await other_ended.wait()
        one = ended(row, success=True)
        return RescueTry(7, replace(one, info=replace(one.info, rescued={"of": 0, "turn": 0})))

    async def opened(*_: Any) -> None: ...

    for name, stand_in in {"roll": roll, "rescue": rescue, "shared_runner": opened}.items():
        monkeypatch.setattr(agent_loop, name, stand_in)
    monkeypatch.setattr(agent_loop, "VerlEngine", lambda *_: SimpleNamespace(oldest=None))
    kind = AgentLoopWorkerTQ.__ray_metadata__.modified_class
    worker = object.__new__(kind)
    worker.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(n=2)))
    loop = object.__new__(agent_loop.CleanerAgentLoop)
    loop._plan, loop.server_manager, loop.tokenizer = read_plan(str(tmp_path)), None, None
    loop.rollout_config = SimpleNamespace(name="vllm", max_model_len=100)

    async def run_loop(sampling: Any, *, trajectory: Any, trace: bool, **row: Any) -> None:
        for place, output in enumerate(await loop.run(sampling, **row)):
            key, tag = f"{row['uid']}_{row['session_id']}_{place}", {"status": "success"}
            await tq.async_kv_put(key=key, partition_id="train", tag=tag, fields={"reward": output.reward_score})

    worker._run_agent_loop = run_loop

    async def both() -> None:
        prompts = [{"uid": uid, PHASE: "training", "__rollout_n__": plan.sampled + 1} for uid in ("wrong", "right")]
        for prompt in prompts:
            tag = {"is_prompt": True, "status": "pending", "global_steps": 1}
            await tq.async_kv_put(key=str(prompt["uid"]), partition_id="train", tag=tag)
        wrong, right = (asyncio.ensure_future(worker._run_prompt(each, {}, {"validate": False})) for each in prompts)
        await right
        status.append(told())
        other_ended.set()
        await wrong

    asyncio.run(both())

    assert status == [{"wrong": "running", "right": "finished"}]
    assert told() == {"wrong": "finished", "right": "finished"}
    assert seen == [2, 2]
    keys = set((tq.kv_list("train") or {})["train"])
    assert keys == {"wrong", "right", "wrong_0_0", "wrong_1_0", "wrong_2_0", "right_0_0", "right_1_0"}
    tries = (tq.kv_list("train-rescues") or {})["train-rescues"]
    assert {uid: tag["tokens"] for uid, tag in tries.items()} == {"wrong": 7}
    tq.kv_clear(keys=list(tries), partition_id="train-rescues")


def whole_mask(stored: list[Any], key: Key) -> Any:
    """The whole loss mask of a stored rollout."""
    return next(each.loss_mask() for each in stored if each.key == key)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", [0, 3])
def test_s2_a_group_that_faults_left_too_small_goes_back(
    tmp_path: Path, trainer: Trainer, rows: int, dynamic: bool
) -> None:
    small = trainer.finish([*MIXED[2 : 2 + rows], *[None] * (8 - rows)])
    trainer.finish(MIXED)
    plan = recipe(batch={"dynamic_sampling": dynamic}, faults={"max_share": 0.9})

    batch, metrics = sample(sampler(plan, tmp_path, trainer))

    assert small not in uids(batch)
    assert len(batch.keys) == 8
    assert trainer.refills == [1]
    assert metrics["cleaner/groups/too_small"] == 1
    assert metrics["cleaner/faults"] == 8 - rows


def test_a_group_that_faults_left_large_enough_is_used_without_them(tmp_path: Path, trainer: Trainer) -> None:
    trainer.finish([*MIXED[:6], None, None])
    trainer.finish(MIXED)

    batch, metrics = sample(sampler(recipe(), tmp_path, trainer))

    assert (len(batch.keys), trainer.refills, metrics["cleaner/faults"]) == (8, [], 2)


@pytest.mark.parametrize("stop_reason", [StopReason.DROPPED, StopReason.TIME_LIMIT])
def test_what_is_left_out_by_choice_is_no_fault(tmp_path: Path, trainer: Trainer, stop_reason: StopReason) -> None:
    import transfer_queue as tq

    trainer.finish([*MIXED[:4], *[stop_reason] * 4])
    trainer.finish([*MIXED[:7], None])

    batch, metrics = sample(sampler(recipe(faults={"max_share": 0.1}), tmp_path, trainer))

    assert len(batch.keys) == 8
    assert (metrics["cleaner/faults"], metrics["cleaner/left_out"]) == (1, 4)
    assert not (tq.kv_list() or {}).get("train-absent")


def test_a_run_whose_rollouts_are_all_left_out_is_ended_with_the_reason(tmp_path: Path, trainer: Trainer) -> None:
    from cleaner_rl.train.record import TooFewRowsError

    trainer.groups = [[StopReason.DROPPED] * 8] * 50
    trainer.finish([StopReason.DROPPED] * 8)
    trainer.finish(MIXED)

    with pytest.raises(TooFewRowsError, match=r"purify\.on_unrepaired"):
        sample(sampler(recipe(), tmp_path, trainer))


@pytest.mark.parametrize("penalty", [0.0, 0.001])
def test_groups_that_all_solved_or_none_are_refilled_under_dynamic_sampling(
    tmp_path: Path, trainer: Trainer, penalty: float
) -> None:
    trainer.penalty = penalty
    equal = trainer.finish([False] * 8)
    trainer.finish(MIXED)

    batch, metrics = sample(sampler(recipe(batch={"dynamic_sampling": True}), tmp_path, trainer))

    assert equal not in uids(batch)
    assert trainer.refills == [2]  # verl's own rule: two for one
    assert metrics["cleaner/groups/zero_variance"] == 1
    assert metrics["cleaner/groups/surplus"] == 1  # one of the two wasn't needed
    assert len(list(read(tmp_path / "trajectories"))) == 4 * 8


def test_a_step_in_two_batches_is_told_of_once(tmp_path: Path, trainer: Trainer) -> None:
    trainer.parameter_sync_step = 2
    it = sampler(recipe(), tmp_path, trainer)
    for _ in range(4):
        trainer.finish(MIXED)
    assert "cleaner/accuracy" not in sample(it)[1]
    trainer.local_trigger_step = 1
    assert sample(it)[1]["cleaner/accuracy"] == 3 / 8
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1


def test_without_dynamic_sampling_they_are_kept(tmp_path: Path, trainer: Trainer) -> None:
    equal = trainer.finish([False] * 8)
    trainer.finish(MIXED)
    batch, _ = sample(sampler(recipe(), tmp_path, trainer))
    assert equal in uids(batch)


def test_too_many_faults_end_the_run(tmp_path: Path, trainer: Trainer) -> None:
    trainer.groups = [[None] * 8] * 50
    trainer.finish([None] * 8)
    trainer.finish(MIXED)

    with pytest.raises(TooManyFaultsError):
        sample(sampler(recipe(), tmp_path, trainer))
    assert len(trainer.refills) < 10


def test_a_run_that_stands_still_is_ended_with_the_reason(tmp_path: Path, trainer: Trainer) -> None:
    from cleaner_rl.train.verl.sampler import StalledError

    trainer.finish(MIXED)
    with pytest.raises(StalledError, match="no rollout"):
        sample(sampler(recipe(faults={"stall_minutes": 0.01}), tmp_path, trainer))


def test_a_sampler_beside_another_manager_refuses_to_work(tmp_path: Path, trainer: Trainer) -> None:
    from cleaner_rl.train.verl.wiring import NotActiveError

    class Stranger(Trainer):
        agent_loop_manager = object()

    with pytest.raises(NotActiveError, match="object"):
        sample(sampler(recipe(), tmp_path, Stranger()))


def test_a_manager_beside_another_sampler_refuses_to_start() -> None:
    from cleaner_rl.train.verl.wiring import NotActiveError, active_sampler, announce_sampler

    announce_sampler(None)

    with pytest.raises(NotActiveError, match="verl's own sampler"):
        active_sampler()


def test_a_process_without_our_parts_is_named() -> None:
    import ray

    from cleaner_rl.train.verl.router import EvenRouter
    from cleaner_rl.train.verl.wiring import plugin_missing, router_missing

    class Bare:
        """Stands for a process of verl's that didn't load us."""

    actor: Any = ray.remote(num_cpus=0)(Bare).remote()
    even = to_recipe(values(run={"router": "even"}))
    asked = [(plugin_missing,), (router_missing, even, EvenRouter)]
    problems = ray.get([actor.__ray_call__.remote(*question) for question in asked])
    assert "Bare" in problems[0]
    assert "Bare" in problems[1]


def test_verl_starts_our_router_and_it_gives_out_its_servers(tmp_path: Path) -> None:
    import ray
    from verl.workers.rollout.router import get_router_handle

    from cleaner_rl.train.verl.plan import router_file
    from cleaner_rl.train.verl.router import EvenRouter
    from cleaner_rl.train.verl.wiring import router_missing

    even = to_recipe(values(run={"router": "even"}))
    RunPlan(even, (), tmp_path).write()
    router = get_router_handle({"a": "handle"}, str(router_file(tmp_path)))
    assert not ray.get(router.__ray_call__.remote(router_missing, even, EvenRouter))
    turns = [router.acquire_server.remote(str(number), prompt_ids=[0] * 90) for number in range(1_100)]
    assert ray.get(turns, timeout=60) == [("a", "handle")] * 1_100
    ray.get([router.release_server.remote("a", request_id=str(number)) for number in range(1_100)], timeout=60)
    assert ray.get(router.get_total_inflight.remote(), timeout=60) == 0


def test_a_process_that_was_killed_is_noticed_and_a_busy_one_is_not_blamed() -> None:
    import ray
    import torch
    from tensordict import TensorDict
    from tensordict.tensorclass import NonTensorData

    from cleaner_rl.train.verl.liveness import Liveness, Part, PartLostError
    from cleaner_rl.train.verl.manager import CleanerManager

    class Worker:
        """Stands for an agent-loop worker."""

        async def work(self) -> None:
            time.sleep(3)  # noqa: ASYNC251 - a worker whose loop is busy

        async def generate_sequences(self, prompts: Any) -> None: ...

    remote: Any = ray.remote(num_cpus=0)(Worker)
    workers = [remote.remote(), remote.remote()]
    busy = workers[1].work.remote()
    liveness = Liveness(Part("an agent-loop worker", worker, "its rollouts are lost") for worker in workers)
    liveness.check()
    ray.get(busy, timeout=60)
    liveness.check()

    ray.kill(workers[0])
    with pytest.raises(PartLostError, match=r"an agent-loop worker .*died, and its rollouts are lost"):
        _keep_checking(liveness, seconds=60)
    manager = object.__new__(CleanerManager)
    manager.agent_loop_workers = workers
    prompts = TensorDict({"index": torch.arange(2)}, batch_size=2)
    prompts["validate"] = NonTensorData(True)
    with pytest.raises(PartLostError, match="agent-loop worker"):
        manager.generate_sequences(prompts)


def test_an_engine_that_died_behind_its_server_ends_the_run(tmp_path: Path) -> None:
    import ray

    from cleaner_rl.train.verl.liveness import Liveness, Part, PartLostError, Watchdog
    from cleaner_rl.train.verl.plan import lost_file

    class Server:
        """Stands for verl's server, whose engine is a process of its own."""

        def __init__(self) -> None:
            self.engine = SimpleNamespace(errored=False, dead_error=RuntimeError("EngineCore has died"))

        async def die(self) -> None:
            self.engine.errored = True

    class Trainer:
        """Stands for the trainer's process, whose main thread polls or hangs."""

        def __init__(self, server: Any, folder: Path) -> None:
            engine = Part("an inference engine", server, "its requests are lost")
            self._watchdog = Watchdog(Liveness([engine]), folder)
            self._watchdog.start()

        def poll(self) -> None:
            self._watchdog.check(600)

        def hang(self) -> None:
            time.sleep(600)

    server = ray.remote(num_cpus=0)(Server).remote()
    trainer: Any = ray.remote(num_cpus=0)(Trainer)
    polling, hanging = trainer.remote(server, tmp_path), trainer.remote(server, tmp_path)
    polls, hangs = polling.poll.remote(), hanging.hang.remote()
    ray.get(server.die.remote(), timeout=120)
    words = "died, and its requests are lost: EngineCore has died"
    with pytest.raises(PartLostError, match=words):
        ray.get(polls, timeout=120)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(hangs, timeout=120)
    assert lost_file(tmp_path).read_text().startswith("an inference engine on ")
    assert words in lost_file(tmp_path).read_text()


def test_refills_go_to_one_worker_after_the_other() -> None:
    import ray
    import torch
    from tensordict import TensorDict
    from tensordict.tensorclass import NonTensorData

    from cleaner_rl.train.verl.manager import CleanerManager

    class Worker:
        """Counts the prompts that it gets."""

        def __init__(self) -> None:
            self._got = 0

        async def generate_sequences(self, prompts: Any) -> None:
            self._got += len(prompts)

        async def got(self) -> int:
            return self._got

    remote: Any = ray.remote(num_cpus=0)(Worker)
    workers = [remote.remote() for _ in range(3)]
    manager = object.__new__(CleanerManager)
    manager.agent_loop_workers = workers
    for count in (3, 1, 1, 2, 2):
        prompts = TensorDict({"index": torch.arange(count)}, batch_size=count)
        prompts["validate"] = NonTensorData(True)
        manager.generate_sequences(prompts)
    assert ray.get([worker.got.remote() for worker in workers], timeout=60) == [3, 3, 3]


def _keep_checking(liveness: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        liveness.check()
        time.sleep(0.2)
