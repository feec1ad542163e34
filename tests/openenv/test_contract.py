"""The adapter to OpenEnv passes the contract of adapters to trainers, on the traces that it writes.

A trainer on OpenEnv joins the turns of a trace: each one's prompt beyond what it has, and its completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cleaner_rl.contracts.trainers import Rollout, Trained, TrainerContract
from cleaner_rl.train.rows import RowConfig, recovery_view


@pytest.mark.timeout(120)
class TestOpenEnv(TrainerContract):
    def train(self, groups: Sequence[Sequence[Rollout]]) -> Sequence[Sequence[Trained]]:
        return [_trained(group) for group in groups]


def _trained(group: Sequence[Rollout]) -> list[Trained]:
    from cleaner_rl.train.openenv import group_chains, write_trace

    rows = group_chains([[each] for each in group], RowConfig()).rows
    by_key = {each.key: each for each in group}
    found = []
    for row in rows:
        rollout = by_key[row.key]
        assert row.advantage is not None
        ids, mask, logprobs = joined(write_trace(_captured(rollout), [rollout], mask_failed=False))
        start = len(rollout.prompt)
        found.append(Trained(ids, mask[start:], logprobs[start:], row.advantage))
    return found


def joined(trace: Any) -> tuple[list[int], list[int], list[float]]:
    """The sequence of a trace with one chain, as TRL's worker joins it (`_chain_to_sequences`)."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for turn in trace.turns:
        context = turn.prompt_token_ids[len(ids) :]
        assert turn.prompt_token_ids[: len(ids)] == ids
        ids += context + turn.completion_token_ids
        mask += [0] * len(context) + turn.loss_mask[len(turn.prompt_token_ids) :]
        logprobs += [0.0] * len(context) + turn.per_token_logps
    return ids, mask, logprobs


def _captured(rollout: Rollout) -> Any:
    """The trace of a rollout as it was sampled: without its edits."""
    from openenv.core.harness import TrainingTrace, TrainingTurn

    raw = recovery_view(rollout) or rollout
    ids: list[int] = raw.prompt.ids.tolist()
    turns = []
    for number, turn in enumerate(raw.turns):
        spans = [turn.reasoning, *([turn.action] if turn.action is not None else [])]
        sampled = [each for span in spans for each in span.ids.tolist()]
        logprobs = [each for span in spans if span.sampled is not None for each in span.sampled.logprobs.tolist()]
        mask = [0] * len(ids) + [1] * len(sampled)
        turns.append(
            TrainingTurn(
                node_id=f"node{number}", prompt_token_ids=list(ids), completion_token_ids=sampled,
                per_token_logps=logprobs, loss_mask=mask,
            )
        )  # fmt: skip
        ids += sampled + ([] if turn.observation is None else turn.observation.ids.tolist())
    return TrainingTrace(turns=turns)
