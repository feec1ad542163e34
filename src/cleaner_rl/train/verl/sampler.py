"""Extends verl's sampler by fault handling, GRPO-RoC, dynamic sampling and a time limit on waiting.

verl polls its queue until enough groups have ended, and gives a custom sampler none of its own filter settings. Here

- a group with too few rows, because the others were faults, is replaced by another prompt's;
- under dynamic sampling, so is a zero-variance group. This is verl's rule, by success and not by reward: rollouts that
  are all wrong must not be trained on for their length alone;
- of an oversampled group only the rows that RoC keeps are trained on, and of a rescued one all but that whose place the
  rescue takes; the others leave the queue;
- rows get the advantages and the loss masks of `train.rows`, which verl then uses (`advantages`), and the tokens of the
  view that is trained on; a rollout with two views gets a second row;
- too many faults, no group to learn from, a lost process, or no finished group for long end the run with the reason;
- everything that was sampled goes to the store, with whether it was trained on, and to the step's metrics.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from cleaner_rl.rollout import RescueTry
from cleaner_rl.train.record import StepRecord, TooManyFaultsError
from cleaner_rl.train.rows import Graded, TrainRow, View, group_rows
from cleaner_rl.train.verl import advantages  # noqa: F401 - registers our estimator in the trainer's process
from cleaner_rl.train.verl.excluded import told_in
from cleaner_rl.train.verl.liveness import LOOK_SECONDS
from cleaner_rl.train.verl.manager import CleanerManager
from cleaner_rl.train.verl.overrides import ESTIMATOR, POLL_SECONDS, number, overrides
from cleaner_rl.train.verl.packing import SOLVED, unpack
from cleaner_rl.train.verl.plan import read_plan
from cleaner_rl.train.verl.rescues import TOKENS, TRIED_IN
from cleaner_rl.train.verl.settings import ROLLOUT
from cleaner_rl.train.verl.wiring import announce_sampler, manager_missing, refuse

BESIDE = "_recovery"
"""How the key of a recovery view ends that is trained on beside the clean one."""


class StalledError(RuntimeError):
    """No rollout has finished for too long."""


class CleanerSampler(ReplayBuffer):  # type: ignore[misc]
    """Samples groups in trainer mode `sync`."""

    def __init__(self, *, sampler_kwargs: Any, **options: Any) -> None:
        plan = read_plan(str(sampler_kwargs.folder))
        self._recipe = plan.recipe
        batch = self._recipe.batch
        super().__init__(
            sampler_kwargs=sampler_kwargs,
            poll_interval=POLL_SECONDS,
            filter_groups_metric=SOLVED if batch.dynamic_sampling else None,
            train_batch_size=batch.prompts,
            gen_batch_size=1,
            sync_refill_failed_groups=True,
            **options,
        )
        announce_sampler(self)
        self._record = StepRecord(plan.folder, plan.recipe.step_config())
        self._moved = time.monotonic()
        self._last_seen: Counter[str] = Counter()
        self._why: dict[str, str] = {}
        """Why groups are about to be given up; any other group is surplus."""
        settings = overrides(plan.recipe, plan.folder)
        self._samples = int(number(settings, f"{ROLLOUT}.val_kwargs.n"))
        """Rollouts per held-out task."""
        self._estimates = settings["algorithm.adv_estimator"] == ESTIMATOR
        """False if the recipe's section `verl` names another estimator, which needs the prompts' ids."""
        self.advantages: dict[str, float] = {}
        """Advantages of the batch that verl trains on, by the keys of its rows."""

    # ---- verl's hooks

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Return a batch of groups and the step's metrics."""
        refuse([manager_missing(self.trainer.agent_loop_manager, CleanerManager)])
        self._moved = time.monotonic()
        try:
            batch, metrics = super().sample(global_steps, partition_id, batch_size)
        except TooManyFaultsError:
            # A process that has died breaks many rollouts before it is found, and is what has to be looked at.
            self.trainer.agent_loop_manager.check_parts(LOOK_SECONDS)
            raise
        return batch, metrics | self._record.finish(global_steps, partition_id, whole=self._whole(partition_id))

    def _terminal_eviction_reasons(
        self, global_steps: int, partition_id: str
    ) -> tuple[set[str], set[str], set[str], Counter[float]]:
        small = self._too_small(partition_id)
        # verl treats a finished group without rows as an error.
        self.finished_keys[partition_id] -= small
        self.failure_keys[partition_id] -= small
        stale, equal, failed, counts = super()._terminal_eviction_reasons(global_steps, partition_id)
        self.finished_keys[partition_id] |= small
        return stale, equal, failed | small, counts

    def _evict_terminal_groups(self, global_steps: int, partition_id: str, eviction_reasons: Any) -> Any:
        stale, equal, small, _ = eviction_reasons
        self._why = (
            dict.fromkeys(stale, "stale") | dict.fromkeys(equal, "zero_variance") | dict.fromkeys(small, "too_small")
        )
        evicted = super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)
        # Here and not while it waits: if all groups break at once, it never waits.
        self._record.check()
        return evicted

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        rows = self._rows(partition_id)
        for uid in uids:
            drawn = list(_trajectories(partition_id, rows[uid]).values())
            absent = self._absent(partition_id, uid, drawn)
            self._record.evicted(self._why.get(uid, "surplus"), drawn, absent)
        super()._clear_groups(partition_id, uids)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        self._watch(partition_id)
        return super()._wait_for_next_poll(partition_id, last_debug_time)  # type: ignore[no-any-return]

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict[str, Any]]
    ) -> KVBatchMeta:
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        trajectories = _trajectories(partition_id, batch.keys)
        if partition_id == "val":
            asked = len(selected_prompt_uids) * self._samples
            absent = self._faults(partition_id, set(selected_prompt_uids), asked - len(trajectories))
            self._record.evaluated(list(trajectories.values()), absent)
            return batch
        kept = self._kept(selected_prompt_uids, trajectories)
        tags = dict(zip(batch.keys, batch.tags, strict=True))
        dropped = [key for key in batch.keys if key not in kept]
        if dropped:
            tq.kv_clear(partition_id=partition_id, keys=dropped)
        self._show(partition_id, {key: row for key, row in kept.items() if row.view is View.RECOVERY}, tags)
        self._tell(partition_id, kept)
        left = [key for own in batch.keys for key in (own, own + BESIDE) if key in kept]
        update = KVBatchMeta(partition_id=partition_id, keys=left, tags=[tags[key] for key in left])
        return self._filled(update) if self._recipe.rows > self._recipe.batch.rollouts else update

    # ---- ours

    @property
    def trainer(self) -> Any:
        """verl's trainer, reached through the function that it hands to its sampler."""
        return self.refill_fn.__self__

    def _whole(self, partition_id: str) -> bool:
        """Say whether this batch completes the step; verl may ask for a step in several batches."""
        return partition_id == "val" or self.trainer.local_trigger_step + 1 == self.trainer.parameter_sync_step

    def _too_small(self, partition_id: str) -> set[str]:
        if partition_id == "val":
            return set()
        rows = self._rows(partition_id)
        ended = self.finished_keys[partition_id] | self.failure_keys[partition_id]
        return {uid for uid in ended if len(rows[uid]) < self._recipe.smallest_group}

    def _faults(self, partition_id: str, uids: set[str], absent: int) -> int:
        """Return how many of the absent rollouts were faults, that is, weren't reported as excluded."""
        place = told_in(partition_id)
        told = [key for key in self.partitions[place] if key.split("_")[0] in uids]
        if told:
            tq.kv_clear(partition_id=place, keys=told)
            self._record.left_out(len(told))
        return absent - len(told)

    def _absent(self, partition_id: str, uid: str, group: list[Graded]) -> int:
        """Return how many rollouts of a group were faults, and count its rescue."""
        rescued = next((each for each in group if each.info.rescued is not None), None)
        tried = self.partitions[TRIED_IN].get(uid)
        if tried is not None:
            tq.kv_clear(partition_id=TRIED_IN, keys=[uid])
            self._record.tried(RescueTry(tried[TOKENS], rescued))
        return self._faults(partition_id, {uid}, self._recipe.sampled - len(group) + (rescued is not None))

    def _filled(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Fill each group up with verl's padding rows, so that a mini-batch has its groups, rescued or not."""
        keys: list[str] = []
        tags: list[dict[str, Any]] = []
        groups: dict[str, list[int]] = defaultdict(list)
        for place, key in enumerate(batch.keys):
            groups[key.split("_")[0]].append(place)
        for places in groups.values():
            group = KVBatchMeta(
                partition_id=batch.partition_id,
                keys=[batch.keys[place] for place in places],
                tags=[batch.tags[place] for place in places],
            )
            filled = upsample_batch_to_divisible_size(group, self._recipe.rows, self.trainer.tokenizer.eos_token_id)
            keys += filled.keys
            tags += filled.tags
        return KVBatchMeta(partition_id=batch.partition_id, keys=keys, tags=tags)

    def _rows(self, partition_id: str) -> dict[str, list[str]]:
        rows: dict[str, list[str]] = defaultdict(list)
        for key in self.partitions[partition_id]:
            rows[key.split("_")[0]].append(key)
        return rows

    def _tell(self, partition_id: str, rows: dict[str, TrainRow]) -> None:
        """Give verl the advantages and the masks of these rows."""
        self.advantages = {key: row.advantage for key, row in rows.items() if row.advantage is not None}
        columns: list[dict[str, Any]] = [{} for _ in rows]
        for column, (key, row) in zip(columns, rows.items(), strict=True):
            if self._estimates:
                column["uid"] = key
            if self._recipe.method.masks:
                column["response_mask"] = column["loss_mask"] = torch.from_numpy(row.loss_mask.astype(np.int64))
        if any(columns):
            tq.kv_batch_put(keys=list(rows), partition_id=partition_id, fields=list_of_dict_to_tensordict(columns))

    def _show(self, partition_id: str, rows: dict[str, TrainRow], tags: dict[str, dict[str, Any]]) -> None:
        """Put recovery views in the place of the clean ones, which the agent loop has given, or beside them."""
        if not rows:
            return
        clean = {key: key.removesuffix(BESIDE) for key in rows}
        for key, row in rows.items():
            whole = len(row.prompt_ids) + len(row.response_ids)
            tags[key] = {**tags[clean[key]], "response_len": len(row.response_ids), "seq_len": whole}
        columns = list(map(_columns, rows.values()))
        if self._recipe.purify.views.two_rows:
            given = tq.kv_batch_get(keys=list(clean.values()), partition_id=partition_id)
            columns = [{**dict(given[place].items()), **own} for place, own in enumerate(columns)]
        tq.kv_batch_put(
            keys=list(rows),
            partition_id=partition_id,
            fields=list_of_dict_to_tensordict(columns),
            tags=[tags[key] for key in rows],
        )

    def _kept(self, uids: list[str], trajectories: dict[str, Graded]) -> dict[str, TrainRow]:
        """Return the rows to train on, by their keys."""
        keys: dict[str, list[str]] = defaultdict(list)
        for key in trajectories:
            keys[key.split("_")[0]].append(key)
        kept: dict[str, TrainRow] = {}
        config = self._recipe.row_config()
        for uid in uids:
            group = [trajectories[key] for key in keys[uid]]
            made = group_rows(group, config)
            absent = self._absent("train", uid, group)
            self._record.selected(group, made, config.group, absent)
            own = {trajectories[key].key: key for key in keys[uid]}
            kept |= {own[row.key] + self._beside(row): row for row in made.rows}
        return kept

    def _beside(self, row: TrainRow) -> str:
        """Return what a row's key has beyond that of its rollout."""
        return BESIDE if row.view is View.RECOVERY and self._recipe.purify.views.two_rows else ""

    def _watch(self, partition_id: str) -> None:
        """Raise if the run can't continue."""
        now = time.monotonic()
        seen = Counter(
            pending=len(self.pending_keys[partition_id]),
            running=len(self.running_keys[partition_id]),
            ended=len(self.finished_keys[partition_id]) + len(self.failure_keys[partition_id]),
            rows=len(self.partitions[partition_id]),
        )
        if seen != self._last_seen:
            self._last_seen, self._moved = seen, now
        if now - self._moved > 60 * self._recipe.faults.stall_minutes:
            raise StalledError(
                f"no rollout has ended for {self._recipe.faults.stall_minutes:g} minutes (faults.stall_minutes); "
                f"{seen['running']} prompts are running, {seen['pending']} are waiting, {seen['ended']} have ended"
            )
        self.trainer.agent_loop_manager.check_parts()


class CleanerSamplerAsync(CleanerSampler, ReplayBufferAsync):  # type: ignore[misc]
    """Samples groups in trainer modes `colocate_async` and `separate_async`, over verl's other sampler."""


def _columns(row: TrainRow) -> dict[str, Any]:
    """Return a row as verl's agent loop writes one."""
    ids = torch.from_numpy(np.concatenate([row.prompt_ids, row.response_ids]).astype(np.int64))
    mask = torch.from_numpy(row.loss_mask.astype(np.int64))
    scores = torch.zeros(len(mask))
    scores[-1] = row.reward
    return {
        "responses": ids[len(row.prompt_ids) :],
        "response_mask": mask,
        "loss_mask": mask,
        "rollout_log_probs": torch.from_numpy(row.logprobs),
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "rm_scores": scores,
    }


def _trajectories(partition_id: str, keys: list[str]) -> dict[str, Graded]:
    if not keys:
        return {}
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["trajectory"])
    packed = [getattr(value, "data", value) for value in data["trajectory"]]
    return {key: unpack(value) for key, value in zip(keys, packed, strict=True)}
