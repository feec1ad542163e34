from __future__ import annotations

from collections.abc import Iterator

import pytest

from cleaner_rl.view.library import Library
from tests.view.stores import small


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    folder = tmp_path_factory.mktemp("view")
    with Library(small(folder / "run"), folder / "cache") as opened:
        opened.update()
        yield opened
