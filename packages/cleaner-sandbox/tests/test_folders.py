"""Whatever a program left is removed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from cleaner_sandbox.inside.layers import remove_folder
from tests.nesting import nested


def test_folders_go_however_deep_they_are(tmp_path: Path) -> None:
    top = tmp_path / "top"
    nested(top)
    remove_folder(str(top))
    assert not list(tmp_path.iterdir())


def test_links_go_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    (outside / "inner").mkdir(parents=True, mode=0o750)
    (outside / "file").write_text("kept")
    (top / "inner").mkdir(parents=True)
    (top / "inner" / "folder").symlink_to(outside)
    (top / "inner" / "file").symlink_to(outside / "file")
    (top / "inner" / "hard").hardlink_to(outside / "file")
    (top / "nowhere").symlink_to("missing")
    os.mkfifo(top / "pipe")
    remove_folder(str(top))
    assert not top.exists()
    assert (outside / "file").read_text() == "kept"
    assert (outside / "inner").stat().st_mode & 0o777 == 0o750


def test_what_was_closed_to_its_owner_goes(tmp_path: Path) -> None:
    """Root may do everything anyhow: this says something only where the tests run as somebody else."""
    inner = tmp_path / "top" / "inner"
    (inner / "folder").mkdir(parents=True)
    (inner / "file").touch()
    for folder in (inner / "folder", inner, tmp_path / "top"):
        folder.chmod(0)
    remove_folder(str(tmp_path / "top"))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    remove_folder(str(tmp_path / "missing"))
    assert not list(tmp_path.iterdir())
