"""Random choices about tasks, derived from names, so that they don't depend on the order of a file.

The room of trajectories has the same idea (`derive_seed`), but stands on the same floor, out of reach from here.
"""

from __future__ import annotations

import json
from hashlib import blake2b


def draw(seed: int, *names: str) -> float:
    """A number in [0, 1), the same for the same names anywhere."""
    # JSON keeps ("a", "b") and ("ab",) apart. 53 bits are what a float holds exactly.
    digest = blake2b(json.dumps([seed, *names]).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def short_name(text: str) -> str:
    """A name for a text that has none."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
