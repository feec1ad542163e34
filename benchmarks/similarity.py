"""Agreement and cost of the similarity measures: `python -m benchmarks.similarity --json`.

The decision is `similarity >= 0.5` (graft, else replacement). It is compared with the decision of the standard
library's `difflib` without junk heuristic and without a bound, as the larger value of both orders (`exact`). The pairs
are those of `benchmarks.code_pairs`, the same number from each package as far as the package has them. `papers` is the
call in the papers' code: `SequenceMatcher(None, original, verified).ratio()`, with junk heuristic, in one order.

The cost is CPU time of each pair: the median of three runs, except for `exact` and `papers`, which run once. The
benchmark takes about ten minutes, nearly all of it in `exact`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.code_pairs import PACKAGES, Pair, Release, edits, others, read_packages, slips
from benchmarks.record import save
from cleaner_rl.purify.similarity import Similarity, bounded, similarity

THRESHOLD = 0.5
PER_PACKAGE = 80
REPEATS = 3
SIZES = (250, 500, 750, 1_000, 1_500, 2_000, 4_000)
PER_SIZE = 60
MEASURES = ("difflib", "indel", "tokens", "ast")


def main() -> None:
    """Print one line per set of pairs, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    parser.add_argument("--seed", type=int, default=0, help="draws other pairs (default: 0)")
    arguments = parser.parse_args()
    figures = run(arguments.seed)
    settings = {
        "threshold": THRESHOLD,
        "seed": arguments.seed,
        "repeats": REPEATS,
        "max_steps": bounded.MAX_STEPS,
        "packages": PACKAGES,
    }
    if arguments.save:
        save(arguments.save, figures, settings)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, each in figures["sets"].items():
        print(f"{name}: {each['pairs']} pairs; agreement with exact difflib:", each["agreement"])


def run(seed: int) -> dict[str, Any]:
    """Measure everything on the pairs that this seed draws."""
    releases = read_packages()
    rng = random.Random(seed)
    sets: dict[str, list[Pair]] = {"edits": [], "slips": [], "others": []}
    for old, new in releases.values():
        for name, pairs in (("edits", edits(old, new)), ("slips", slips(new, rng)), ("others", others(new, rng))):
            sets[name] += rng.sample(pairs, min(PER_PACKAGE, len(pairs)))
    similarity("a", "b", "indel")  # importing rapidfuzz is not the cost of the first pair
    return {
        "sets": {name: _figures(pairs) for name, pairs in sets.items()},
        "exact_by_size": _exact_by_size(releases, rng),
    }


def _figures(pairs: list[Pair]) -> dict[str, Any]:
    values: dict[str, list[float]] = {name: [] for name in (*MEASURES, "papers", "exact")}
    cpu_ms: dict[str, list[float]] = {name: [] for name in values}
    fallbacks = dict.fromkeys(MEASURES, 0)
    papers_reversed, forward, backward = [], [], []
    unequal = 0
    for a, b in pairs:
        alike: dict[str, Similarity] = {}
        for measure in MEASURES:
            runs = [_milliseconds(similarity, a, b, measure) for _ in range(REPEATS)]
            cpu_ms[measure].append(median(spent for _, spent in runs))
            alike[measure] = runs[0][0]
            values[measure].append(alike[measure].value)
            fallbacks[measure] += ">" in alike[measure].measure
        papers, spent = _milliseconds(lambda a, b: SequenceMatcher(None, a, b).ratio(), a, b)
        values["papers"].append(papers)
        cpu_ms["papers"].append(spent)
        papers_reversed.append(SequenceMatcher(None, b, a).ratio())
        orders = [_milliseconds(_without_junk, *pair) for pair in ((a, b), (b, a))]
        forward.append(orders[0][0])
        backward.append(orders[1][0])
        values["exact"].append(max(forward[-1], backward[-1]))
        cpu_ms["exact"].append(sum(spent for _, spent in orders))
        unequal += alike["difflib"].measure == "difflib" and alike["difflib"].value != values["exact"][-1]
    return {
        "pairs": len(pairs),
        "characters": _quantiles([len(text) for pair in pairs for text in pair]),
        "similarity": {name: _quantiles(each) for name, each in values.items()},
        "grafted": {name: _share(np.array(each) >= THRESHOLD) for name, each in values.items()},
        "agreement": {name: round(1 - _flips(each, values["exact"]), 4) for name, each in values.items()},
        "disagreements": {name: _disagreements(values[name], values["exact"]) for name in MEASURES},
        "cpu_ms": {name: {**_quantiles(each), "mean": round(float(np.mean(each)), 4)} for name, each in cpu_ms.items()},
        "flips": {
            "autojunk": _flips(values["papers"], forward),
            "order_with_autojunk": _flips(values["papers"], papers_reversed),
            "order_without_autojunk": _flips(forward, backward),
        },
        "difflib_within_bound": round(1 - fallbacks["difflib"] / len(pairs), 4),
        "difflib_within_bound_not_exact": unequal,
        "ast_by_tokens": round(fallbacks["ast"] / len(pairs), 4),
    }


def _without_junk(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b, autojunk=False).ratio()


def _milliseconds(function: Callable[..., Any], *arguments: str) -> tuple[Any, float]:
    started = time.process_time()
    value = function(*arguments)
    return value, 1e3 * (time.process_time() - started)


def _exact_by_size(releases: dict[str, tuple[Release, Release]], rng: random.Random) -> list[dict[str, Any]]:
    """Share of pairs within the bound, for beginnings of modules: in both releases, and of two modules of a release."""
    rows = []
    for size in SIZES:
        edited, unlike = [], []
        for old, new in releases.values():
            fitting = [path for path, module in new.items() if len(module.source) >= size]
            edited += [
                (old[path].source[:size], new[path].source[:size])
                for path in fitting
                if path in old and len(old[path].source) >= size
            ]
            unlike += [
                (new[one].source[:size], new[other].source[:size])
                for one, other in rng.sample(list(combinations(fitting, 2)), min(PER_SIZE, len(fitting) // 2))
            ]
        row: dict[str, Any] = {"characters": size}
        for name, pairs in (("edited", edited), ("unlike", unlike)):
            sample = [pair for pair in rng.sample(pairs, len(pairs)) if pair[0] != pair[1]][:PER_SIZE]
            within = [similarity(a, b).measure == "difflib" for a, b in sample]
            row[name] = {"pairs": len(sample), "within_bound": _share(np.array(within))}
        rows.append(row)
    return rows


def _disagreements(values: list[float], exact: list[float]) -> list[dict[str, float]]:
    """Return both values of each pair that is decided otherwise, the farthest from the threshold first."""
    pairs = [pair for pair in zip(exact, values, strict=True) if (pair[0] >= THRESHOLD) != (pair[1] >= THRESHOLD)]
    pairs.sort(key=lambda pair: -abs(pair[0] - THRESHOLD))
    return [{"exact": round(each, 4), "value": round(value, 4)} for each, value in pairs]


def _flips(one: list[float], other: list[float]) -> float:
    return _share((np.array(one) >= THRESHOLD) != (np.array(other) >= THRESHOLD))


def _share(truths: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    return round(float(np.mean(truths)), 4)


def _quantiles(values: list[float] | list[int]) -> dict[str, float]:
    return {f"p{percent}": round(float(np.percentile(values, percent)), 4) for percent in (5, 25, 50, 75, 95, 100)}


if __name__ == "__main__":
    main()
