"""What the supervisor cleans up after its servers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_sandbox.inside.layers import remove_folder
from cleaner_sandbox.service.supervisor import SCRATCH, scratch
from tests.nesting import nested


@pytest.fixture
def everyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    remove_folder(str(tmp_path))  # should the test fail: pytest itself could not


def test_what_programs_left_is_removed_however_deep_it_is(everyone: Path) -> None:
    nested(everyone / f"{SCRATCH}of-one-that-was-killed")
    with scratch() as folder:
        assert [str(each) for each in everyone.iterdir()] == [folder]
        nested(Path(folder))
    assert not list(everyone.iterdir())
