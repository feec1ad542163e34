"""How hard property tests try: `pytest --hypothesis-profile=thorough` before a release."""

from __future__ import annotations

from hypothesis import settings

# Shared machines stall: a test is bounded by its time-out, not by the time of one example.
settings.register_profile("default", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.register_profile("mutation", deadline=None, max_examples=20, derandomize=True, database=None)
settings.load_profile("default")
