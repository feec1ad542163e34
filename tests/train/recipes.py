"""The least that a recipe needs."""

from __future__ import annotations

from typing import Any

MINIMAL: dict[str, Any] = {
    "name": "example",
    "method": "saar+roc",
    "model": {"path": "some/model"},
    "tasks": {"train": ["train.parquet"]},
}
ON_CPU = {"trainer.device": "cpu", "actor_rollout_ref.rollout.dtype": "float32"}


def values(**changes: Any) -> dict[str, Any]:
    """The least, with some sections changed."""
    return {**MINIMAL, **changes}
