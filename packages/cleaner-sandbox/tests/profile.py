"""How much the tests try. `CLEANER_TESTS=ci` is the short profile of `.ci/run`; anything else, or nothing, is all.

The short profile gives a property test few examples, always the same ones, and leaves out the tests marked `slow`.
"""

from __future__ import annotations

import os

SHORT = os.environ.get("CLEANER_TESTS") == "ci"
EXAMPLES = 20
"""Examples of a property test in the short profile."""


def examples(full: int, short: int = EXAMPLES) -> int:
    """Return `max_examples` for a property test that has a number of its own."""
    return min(full, short) if SHORT else full
