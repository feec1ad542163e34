"""Tests on verifiers, in the environment that deploy/trl/install.sh makes. Without verifiers they are skipped."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        if find_spec("verifiers") is None:
            item.add_marker(pytest.mark.skip("needs verifiers (deploy/trl/install.sh)"))


@pytest.fixture(scope="session", autouse=True)
def _plugins() -> None:
    """Verifiers finds a taskset as a module of its own: none inside a package."""
    sys.path.insert(0, str(HERE / "plugins"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model that is nothing but a tokenizer."""
    from tests.rollout.chats import tokenizer

    folder = tmp_path_factory.mktemp("model")
    tokenizer("qwen3").save_pretrained(folder)
    return str(folder)
