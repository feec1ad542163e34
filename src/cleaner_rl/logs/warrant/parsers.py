"""Says whether the parsers that repairs of logs need are installed."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from cleaner_rl.logs.containers import ExtraMissingError

PARSERS = {"sqlglot": "sqlglot", "tree_sitter": "tree-sitter", "tree_sitter_bash": "tree-sitter-bash"}
"""Modules of the extra `logs`, each with the name of its package."""


@cache
def needed_parsers() -> None:
    """Raise `ExtraMissingError` if a parser is not installed. An answer that may change is not kept."""
    missing = [package for module, package in PARSERS.items() if find_spec(module) is None]
    if missing:
        names = ", ".join(missing)
        raise ExtraMissingError(
            f"Logs can't be repaired: {names} not installed. Install the parsers: pip install 'cleaner-rl[logs]'"
        )
