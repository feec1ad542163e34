"""Fixtures of another folder's tests, too."""

from tests.taught_site import site

__all__ = ["site"]
