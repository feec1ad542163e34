"""What similarity costs at worst for 10 kB: one figure of `benchmarks.core`. Alone:
`python -m benchmarks.core_similarity`.

The pairs are those that cost a quadratic algorithm most (few letters, much repeated), those that cost ours most (just
within or just beyond its bound: letters at random, unlike code), and real code.
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

SIZE = 10_000
REPEATS = 5


def pairs() -> dict[str, tuple[str, str]]:
    """The pairs, by name; each text has 10,000 characters, or up to four fewer."""
    rng = random.Random(0)
    code = Path(typing.__file__).read_text()[:SIZE]
    unlike = Path(textwrap.__file__).read_text()[:SIZE]
    drawn = {n: ["".join(rng.choices("abcdefghijklmnop"[:n], k=SIZE)) for _ in range(2)] for n in (2, 4, 16)}
    return {
        "two letters alternating": ("ab" * (SIZE // 2), "ba" * (SIZE // 2 - 1) + "c"),
        "one line, and a variant": ("x=1\n" * (SIZE // 4), "x=2\n" * (SIZE // 4)),
        "one indented line, and a variant": ((" " * 8 + "x\n") * (SIZE // 10), (" " * 8 + "y\n") * (SIZE // 10)),
        "one letter": ("a" * SIZE, "a" * (SIZE // 2) + "b" + "a" * (SIZE // 2 - 1)),
        **{f"{n} letters at random": (one, other) for n, (one, other) in drawn.items()},
        "code, lines shuffled": (code, "".join(rng.sample(code.splitlines(keepends=True), code.count("\n") + 1))),
        "code, a name changed": (code, code.replace("type", "kind")),
        "code, unlike": (code, unlike),
    }


def milliseconds() -> dict[str, float]:
    """CPU time of each pair: the median of five runs."""
    figures = {}
    for name, (a, b) in pairs().items():
        times = []
        for _ in range(REPEATS):
            started = time.process_time()
            similarity(a, b)
            times.append(1e3 * (time.process_time() - started))
        figures[name] = statistics.median(times)
    return figures


def similarity_worst_ms() -> float:
    """CPU time of the pair that takes longest."""
    similarity("a", "b")  # what is imported and compiled on first use isn't the pair's
    return max(milliseconds().values())


if __name__ == "__main__":
    print(json.dumps(milliseconds(), indent=1))
