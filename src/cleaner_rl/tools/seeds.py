"""Every random choice derives from names, so the same inputs give the same bytes, in any order and on any machine."""

from __future__ import annotations

import json
from hashlib import blake2b


def derive_seed(run_seed: int, *path: str | int) -> int:
    """Return a seed of 63 bits, derived from the run's seed and the names of what it is for."""
    # JSON keeps 1 and "1", and ("a", "b") and ("ab",), apart.
    digest = blake2b(json.dumps([run_seed, *path]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
