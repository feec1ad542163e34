"""The public surface is frozen: a change to it is one that was meant."""

from __future__ import annotations

import difflib

from tests.public_api import LIST, surface


def test_the_public_surface_is_the_one_that_is_listed() -> None:
    listed, found = LIST.read_text().splitlines(), list(surface())
    changed = [
        line for line in difflib.unified_diff(listed, found, "listed", "found", n=0, lineterm="") if line[:2] != "@@"
    ]
    assert not changed, "\n".join(
        [*changed, "If this is meant: python -m tests.public_api, and a line in CHANGELOG.md"]
    )
