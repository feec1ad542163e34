"""CPU time of similarity in the worst case up to 10 kB, one figure of `benchmarks.core`.

`python -m benchmarks.core_similarity` prints it for each kind of pair, in milliseconds. The kinds are those that cost
`difflib` most (few letters, much repeated), code with shuffled lines, code with a changed name, and unlike code. Beyond
the bound of `difflib` a pair is given up early, so the worst size is often a small one: each kind is measured at
several sizes.
"""

from __future__ import annotations

import json
import random
import statistics
import textwrap
import time
import typing
from pathlib import Path

from cleaner_rl.purify.similarity import similarity

SIZES = (200, 300, 400, 600, 800, 1_000, 1_500, 2_000, 4_000, 10_000)
REPEATS = 5


def pairs(size: int) -> dict[str, tuple[str, str]]:
    """Return the pairs by name; each text has `size` characters, or up to nine fewer."""
    rng = random.Random(0)
    code = Path(typing.__file__).read_text()[:size]
    unlike = Path(textwrap.__file__).read_text()[:size]
    drawn = {n: ["".join(rng.choices("abcdefghijklmnop"[:n], k=size)) for _ in range(2)] for n in (2, 4, 16)}
    lines = code.splitlines(keepends=True)
    return {
        "two letters alternating": ("ab" * (size // 2), "ba" * (size // 2 - 1) + "c"),
        "one line, and a variant": ("x=1\n" * (size // 4), "x=2\n" * (size // 4)),
        "one indented line, and a variant": ((" " * 8 + "x\n") * (size // 10), (" " * 8 + "y\n") * (size // 10)),
        "one letter": ("a" * size, "a" * (size // 2) + "b" + "a" * (size // 2 - 1)),
        **{f"{n} letters at random": (one, other) for n, (one, other) in drawn.items()},
        "code, lines shuffled": (code, "".join(rng.sample(lines, len(lines)))),
        "code, a name changed": (code, code.replace("type", "kind")),
        "code, unlike": (code, unlike),
    }


def milliseconds() -> dict[str, float]:
    """Return the CPU time of each kind at its worst size: the median of five runs."""
    figures: dict[str, float] = {}
    for size in SIZES:
        for name, (a, b) in pairs(size).items():
            times = []
            for _ in range(REPEATS):
                started = time.process_time()
                similarity(a, b)
                times.append(1e3 * (time.process_time() - started))
            figures[name] = max(figures.get(name, 0.0), statistics.median(times))
    return figures


def similarity_worst_ms() -> float:
    """Return the CPU time of the pair that takes longest."""
    similarity("a", "b")  # importing rapidfuzz is not the cost of a pair
    return max(milliseconds().values())


if __name__ == "__main__":
    print(json.dumps(milliseconds(), indent=1))
