"""What can be wrong with a store."""

from __future__ import annotations


class StoreError(Exception):
    """A store that can't be read or written; the message says what happened and what to do."""
