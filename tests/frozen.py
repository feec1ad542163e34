"""Files that are written from the code and kept: public names, options, the diagram, the reference pages.

python -m tests.frozen      write all of them again, after a change that is meant
"""

from __future__ import annotations

import difflib
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND = "python -m tests.frozen"


def check(file: Path, text: str) -> None:
    """Fail with the lines that are new and those that are gone, if a file isn't what the code says."""
    kept = file.read_text() if file.exists() else ""
    lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    name = file.relative_to(ROOT)
    assert kept == text, "\n".join([f"{name} differs from the code:", *changed, f"if this is meant: {COMMAND}"])


def everything() -> Iterator[tuple[Path, str]]:
    """Each file, and what the code says that it should hold."""
    from tests import architecture, public_api
    from tests.cli import test_flags

    yield public_api.LIST, public_api.listed()
    yield test_flags.FROZEN, test_flags.listed()
    yield architecture.PAGE, architecture.redrawn()
    reference = runpy.run_path(str(ROOT / ".ci" / "reference.py"))
    for page, write in reference["PAGES"].items():
        yield reference["FOLDER"] / page, write()


if __name__ == "__main__":
    for path, expected in everything():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(expected)
