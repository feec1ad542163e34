"""Fixtures of another folder's tests, too."""

from tests.toy_site import site

__all__ = ["site"]
