"""How often the measures of similarity agree on the decision they are for: `python -m benchmarks.similarity --json`.

The decision is `similarity >= 0.5` (graft, else replace). The pairs are those of `benchmarks.code_pairs`, the same
number from each package as far as it has them. Beside our four measures stands `papers`, the call in the papers' code:
`SequenceMatcher(None, original, verified).ratio()`, autojunk on, in one order. Takes some minutes, nearly all of it in
the standard library's `difflib`, which is run on every pair in both orders to compare with.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import time
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.code_pairs import PACKAGES, Pair, Release, edits, others, read_packages, slips
from benchmarks.record import machine
from cleaner_rl.purify.similarity import ratcliff, similarity

THRESHOLD = 0.5
SEED = 0
PER_PACKAGE = 80
SIZES = (2_000, 4_000, 6_000, 8_000, 10_000, 15_000, 20_000)
PER_SIZE = 60
MEASURES = ("difflib", "indel", "tokens", "ast")


def main() -> None:
    """Prints the figures, as text or as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a few lines")
    arguments = parser.parse_args()
    result = run()
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    for name, figures in result["sets"].items():
        print(f"{name}: {figures['pairs']} pairs; agreement with difflib:", figures["agreement"]["difflib"])


def run() -> dict[str, Any]:
    """All figures."""
    releases = read_packages()
    rng = random.Random(SEED)
    sets: dict[str, list[Pair]] = {"edits": [], "slips": [], "others": []}
    for old, new in releases.values():
        for name, pairs in (("edits", edits(old, new)), ("slips", slips(new, rng)), ("others", others(new, rng))):
            sets[name] += rng.sample(pairs, min(PER_PACKAGE, len(pairs)))
    return {
        "threshold": THRESHOLD,
        "seed": SEED,
        "packages": PACKAGES,
        "commit": subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        ).stdout.strip(),
        "machine": machine(),
        "max_work": ratcliff.MAX_WORK,
        "sets": {name: _figures(pairs) for name, pairs in sets.items()},
        "exact_by_size": _exact_by_size(releases, rng),
    }


def _figures(pairs: list[Pair]) -> dict[str, Any]:
    values: dict[str, list[float]] = {name: [] for name in (*MEASURES, "papers")}
    fell_back = dict.fromkeys(MEASURES, 0)
    reversed_papers, forward, backward, ours_ms, difflib_ms = [], [], [], [], []
    equal = 0
    for a, b in pairs:
        for measure in MEASURES:
            started = time.process_time()
            alike = similarity(a, b, measure)
            if measure == "difflib":
                ours_ms.append(1e3 * (time.process_time() - started))
            values[measure].append(alike.value)
            fell_back[measure] += ">" in alike.measure
        values["papers"].append(SequenceMatcher(None, a, b).ratio())
        reversed_papers.append(SequenceMatcher(None, b, a).ratio())
        started = time.process_time()
        forward.append(SequenceMatcher(None, a, b, autojunk=False).ratio())
        backward.append(SequenceMatcher(None, b, a, autojunk=False).ratio())
        difflib_ms.append(1e3 * (time.process_time() - started))
        equal += values["difflib"][-1] == max(forward[-1], backward[-1])
    return {
        "pairs": len(pairs),
        "characters": _quantiles([len(text) for pair in pairs for text in pair]),
        "similarity": {name: _quantiles(each) for name, each in values.items()},
        "grafted": {name: _share(np.array(each) >= THRESHOLD) for name, each in values.items()},
        "agreement": _agreement(values),
        "all_four_agree": _share(
            np.isin(np.sum([np.array(values[name]) >= THRESHOLD for name in MEASURES], axis=0), (0, 4))
        ),
        "flips": {
            "autojunk": _flips(values["papers"], forward),
            "order_with_autojunk": _flips(values["papers"], reversed_papers),
            "order_without_autojunk": _flips(forward, backward),
            "papers_against_ours": _flips(values["papers"], values["difflib"]),
        },
        "difflib_exact": 1 - fell_back["difflib"] / len(pairs),
        "difflib_equals_standard_library": equal / len(pairs),
        "ast_fell_back": fell_back["ast"] / len(pairs),
        "ours_ms": _quantiles(ours_ms),
        "standard_library_both_orders_ms": _quantiles(difflib_ms),
    }


def _exact_by_size(releases: dict[str, tuple[Release, Release]], rng: random.Random) -> list[dict[str, Any]]:
    """Beginnings of whole modules: of both releases, and of two modules of a release."""
    rows = []
    for size in SIZES:
        edited, unrelated = [], []
        for old, new in releases.values():
            fitting = [path for path, module in new.items() if len(module.source) >= size]
            edited += [
                (old[path].source[:size], new[path].source[:size])
                for path in fitting
                if path in old and len(old[path].source) >= size
            ]
            unrelated += [
                (new[one].source[:size], new[other].source[:size])
                for one, other in rng.sample(list(combinations(fitting, 2)), min(PER_SIZE, len(fitting) // 2))
            ]
        row: dict[str, Any] = {"characters": size}
        for name, pairs in (("edited", edited), ("unrelated", unrelated)):
            sample = [pair for pair in rng.sample(pairs, len(pairs)) if pair[0] != pair[1]][:PER_SIZE]
            started = time.process_time()
            exact = [similarity(a, b).measure == "difflib" for a, b in sample]
            milliseconds = 1e3 * (time.process_time() - started) / len(sample)
            row[name] = {"pairs": len(sample), "exact": _share(np.array(exact)), "mean_ms": round(milliseconds, 2)}
        rows.append(row)
    return rows


def _agreement(values: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    return {one: {other: 1 - _flips(values[one], values[other]) for other in values} for one in values}


def _flips(one: list[float], other: list[float]) -> float:
    return _share((np.array(one) >= THRESHOLD) != (np.array(other) >= THRESHOLD))


def _share(truths: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    return round(float(np.mean(truths)), 4)


def _quantiles(values: list[float] | list[int]) -> dict[str, float]:
    return {f"p{percent}": round(float(np.percentile(values, percent)), 4) for percent in (5, 25, 50, 75, 95, 100)}


if __name__ == "__main__":
    main()
