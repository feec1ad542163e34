"""The rows' advantages, loss and gradient beside TRL's own GRPO, on one batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner_rl.resample import advantages
from tests.train.parity import batch, gradient, reference_loss, rows, tiny_model
from tests.trl.tiny import scored

DELTA = 1e-4
"""What TRL adds to a group's standard deviation."""


@pytest.mark.timeout(300)
def test_advantages_loss_and_gradient_equal_trls_grpo(tmp_path: Path) -> None:
    import torch
    from torch.nn.utils.rnn import pad_sequence

    groups = batch()
    made, model = rows(groups), tiny_model()
    ours = [each for group in groups for each in advantages([rollout.reward or 0.0 for rollout in group], DELTA)]
    expected = reference_loss(model, made, ours)
    expected_gradient = gradient(model, expected)

    trainer, inputs = scored(model, groups, tmp_path, method="mask")
    torch.testing.assert_close(inputs["advantages"].double(), torch.tensor(ours).double(), rtol=1e-6, atol=0)
    # As TRL itself has them after the first update on a batch.
    inputs["old_per_token_logps"] = pad_sequence([torch.tensor(row.logprobs).double() for row in made], True)
    inputs["advantages"] = torch.tensor(ours, dtype=torch.float64)
    loss = trainer._compute_loss(trainer.model, inputs)

    assert trainer._metrics["train"]["clip_ratio/region_mean"][-1] > 0
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    # TRL computes log-probs in float32, so an element near 0 has fewer digits: each is within 1e-6 of the largest.
    largest = float(expected_gradient.abs().max())
    torch.testing.assert_close(gradient(trainer.model, loss), expected_gradient, rtol=0, atol=1e-6 * largest)
