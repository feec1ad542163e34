"""How long the documentation is: words per page, in all, and what two pages both say.

python -m tests.docs_size            the totals
python -m tests.docs_size --json     all figures

A page's words are those of `wc -w`, without comments. What two pages share is counted in runs of ten words.
`tests/docs_budget.txt` has the most words that each page may have.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[1]
BUDGET = ROOT / "tests" / "docs_budget.txt"
PATTERNS = ("README.md", "CHANGELOG.md", "docs/**/*.md", "packages/*/*.md", "packages/*/docs/**/*.md")
UNLISTED = "any other page"
RUN = 10


class DocsSize(TypedDict):
    """The figures of one checkout."""

    words: int
    pages: dict[str, int]
    shared: int
    """Runs of ten words that two pages share, over all pairs of pages."""
    shared_by: dict[str, int]
    """The same for each pair of pages that shares any, most first."""


def measure(root: Path = ROOT) -> DocsSize:
    """Measure a checkout."""
    pages = {
        str(page.relative_to(root)): re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for pattern in PATTERNS
        for page in sorted(root.glob(pattern))
    }
    words = {name: len(text.split()) for name, text in pages.items()}
    holders: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for name, text in pages.items():
        said = re.findall(r"\w+", text.lower())
        for run in zip(*(said[at:] for at in range(RUN)), strict=False):
            holders[run].add(name)
    pairs: dict[str, int] = defaultdict(int)
    for names in holders.values():
        for pair in combinations(sorted(names), 2):
            pairs[" and ".join(pair)] += 1
    by_pair = dict(sorted(pairs.items(), key=lambda each: (-each[1], each[0])))
    return {"words": sum(words.values()), "pages": words, "shared": sum(by_pair.values()), "shared_by": by_pair}


def budget() -> dict[str, int]:
    """Return the most words of each page, of `shared` runs, and of any page that isn't listed."""
    lines = [line.partition("  ") for line in BUDGET.read_text().splitlines() if line and not line.startswith("#")]
    return {name: int(most) for most, _, name in lines}


def over(size: DocsSize, most: dict[str, int]) -> list[str]:
    """Name each page with more words than it may have, and a share of the same words above its bound."""
    pages = [
        f"{name}: {words} words of {most.get(name, most[UNLISTED])}"
        for name, words in size["pages"].items()
        if words > most.get(name, most[UNLISTED])
    ]
    if size["words"] > most["total"]:
        pages.append(f"total: {size['words']} words of {most['total']}")
    if size["shared"] > most["shared"]:
        pages.append(f"shared: {size['shared']} runs of {RUN} words, of {most['shared']}: {[*size['shared_by']][:3]}")
    return pages


if __name__ == "__main__":
    measured = measure()
    if sys.argv[1:] == ["--json"]:
        sys.stdout.write(json.dumps(measured, indent=1) + "\n")
    else:
        sys.stdout.write(
            f"{measured['words']:,} words on {len(measured['pages'])} pages; {measured['shared']:,} shared\n"
        )
