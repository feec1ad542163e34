"""What the lab's trainer can do beyond a recipe, which says only what verl can take."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner_rl.rollout import RescueConfig
from cleaner_rl.train.rows import Views


@dataclass(frozen=True, slots=True)
class Beyond:
    """Settings of one run."""

    views: Views | None = None
    """Instead of the recipe's."""
    rescue: RescueConfig | None = None
