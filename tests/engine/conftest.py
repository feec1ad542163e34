"""Tests on the real engines: torch, verl and vLLM. Without them installed they are skipped, as is the whole folder."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

NEEDED = ("torch", "transformers", "ray", "verl", "vllm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.engine)
        # The engines warn about themselves and each other.
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        if missing:
            item.add_marker(pytest.mark.skip(f"needs the engines; not installed: {', '.join(missing)}"))
