"""The package stands alone: nothing in it names the package that is built on it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
OTHER = "_".join(("cleaner", "rl"))


def test_no_source_names_the_package_that_uses_it() -> None:
    files = [file for file in (ROOT / "src").rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert len(files) > 100
    assert [str(file) for file in files if OTHER in file.read_text()] == []
