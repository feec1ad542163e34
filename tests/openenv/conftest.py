"""Tests on OpenEnv, in an environment of its own with the extra `openenv`. Without openenv they are skipped."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        if find_spec("openenv") is None:
            item.add_marker(pytest.mark.skip("needs openenv (the extra `openenv`)"))
