"""The least that a recipe needs."""

from __future__ import annotations

from typing import Any

MINIMAL: dict[str, Any] = {
    "name": "example",
    "method": "saar+roc",
    "model": {"path": "some/model"},
    "tasks": {"train": ["train.parquet"]},
}


def values(**changes: Any) -> dict[str, Any]:
    """The least, with some sections changed."""
    return {**MINIMAL, **changes}
