"""The public surface is frozen: a change to it is one that was meant, and has a line in CHANGELOG.md."""

from __future__ import annotations

from tests import frozen
from tests.public_api import LIST, listed


def test_the_public_surface_is_the_one_that_is_listed() -> None:
    frozen.check(LIST, listed())
