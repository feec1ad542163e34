"""Tests on TRL, in an environment of its own (deploy/trl/install.sh). Without TRL they are skipped."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.trl.toy import prepared

NEEDED = ("torch", "transformers", "datasets", "trl")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        if missing:
            item.add_marker(pytest.mark.skip(f"needs TRL (deploy/trl/install.sh); not installed: {', '.join(missing)}"))


@pytest.fixture(scope="session")
def toy() -> Any:
    """The example's module, tasks, tokenizer and model, which takes half a minute to make."""
    return prepared()
