from __future__ import annotations

from collections.abc import Iterator

import pytest

from cleaner_rl.view.library import Library
from tests.view.stores import logs, small

ONE_PASS = "test_the_keyboard_alone_is_enough"
"""Goes through every page, so it is the browser test of the short profile."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "view" and item.path.name == "test_browser.py" and item.name != ONE_PASS:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    folder = tmp_path_factory.mktemp("view")
    with Library(small(folder / "run"), folder / "cache") as opened:
        opened.update()
        yield opened


@pytest.fixture(scope="session")
def log_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    folder = tmp_path_factory.mktemp("log")
    with Library(logs(folder / "purified"), folder / "cache") as opened:
        opened.update()
        yield opened
