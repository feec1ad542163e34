"""Random choices about tasks, derived from names, so that they don't depend on the order of a file."""

from __future__ import annotations

from hashlib import blake2b

from cleaner_rl.tools import derive_seed


def draw(seed: int, *names: str) -> float:
    """A number in [0, 1), the same for the same names anywhere."""
    # 53 of its 63 bits are what a float holds exactly.
    return (derive_seed(seed, *names) >> 10) / 2**53


def short_name(text: str) -> str:
    """A name for a text that has none."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
