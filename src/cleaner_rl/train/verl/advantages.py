"""Gives verl our advantages, under the name of an advantage estimator of its own.

verl's estimators see rewards and the prompt's id alone. The sampler, which runs in the same process, has compared the
groups already (`train.rows`), and puts each row's key in the place of the prompt's id. So a rollout counts once in its
group's mean and deviation, however many rows it gives, and a row's advantage is the one that the store holds.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from cleaner_rl.train.verl.overrides import ESTIMATOR
from cleaner_rl.train.verl.wiring import active_sampler

PADDING = "pad"
"""How the ids of verl's own padding rows begin. They have no advantage and an empty loss mask."""


@register_adv_est(ESTIMATOR)  # type: ignore[untyped-decorator]
def row_advantages(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's advantage at all of its tokens in the loss, as advantages and as returns."""
    known = active_sampler().advantages
    values = [0.0 if str(key).startswith(PADDING) else known[str(key)] for key in index]
    column = torch.tensor(values, dtype=token_level_rewards.dtype, device=token_level_rewards.device)
    advantages = column.unsqueeze(-1) * response_mask
    return advantages, advantages
