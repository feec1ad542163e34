"""The page's files, built from `viewer/` (see docs/view.md): not to be edited here."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def asset(name: str) -> bytes:
    """One of them."""
    return (files(__name__) / name).read_bytes()
