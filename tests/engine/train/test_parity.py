"""The rows' advantages, loss and gradient beside verl's own GRPO, on one batch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.train.parity import CLIP_HIGH, CLIP_LOW, batch, gradient, reference_loss, rows, tiny_model, token_logprobs

pytestmark = pytest.mark.timeout(300)  # verl's import takes long


def test_advantages_loss_and_gradient_equal_verls_grpo() -> None:
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, compute_policy_loss_vanilla
    from verl.workers.config import ActorConfig

    made, model = rows(batch()), tiny_model()
    mask = pad_sequence([torch.tensor(row.loss_mask).long() for row in made], batch_first=True)
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    rewards[:, 0] = torch.tensor([row.reward for row in made])
    prompts = np.array([row.key.task for row in made], dtype=object)
    theirs, _ = compute_grpo_outcome_advantage(rewards, mask, prompts)
    ours = torch.tensor([row.advantage for row in made], dtype=torch.float64)
    torch.testing.assert_close(theirs, ours[:, None] * mask, rtol=1e-6, atol=0)

    expected = reference_loss(model, made, ours.tolist())
    expected_gradient = gradient(model, expected)
    config = ActorConfig(
        strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1, use_dynamic_bsz=False,
        clip_ratio_low=CLIP_LOW, clip_ratio_high=CLIP_HIGH, clip_ratio_c=10.0,
    )  # fmt: skip
    new = pad_sequence([token_logprobs(model, row) for row in made], batch_first=True)
    old = pad_sequence([torch.tensor(row.logprobs).double() for row in made], batch_first=True)
    loss, metrics = compute_policy_loss_vanilla(old, new, theirs, mask, "token-mean", config)

    assert metrics["actor/pg_clipfrac"] > 0
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient(model, loss), expected_gradient, rtol=1e-6, atol=1e-12)
