"""What can be wrong with a store."""

from __future__ import annotations

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a file raises that says it is a store and isn't one, or not one of ours."""


class StoreError(Exception):
    """A store that can't be read or written; the message says what happened and what to do."""
