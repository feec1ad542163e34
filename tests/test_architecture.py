"""ARCHITECTURE.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import architecture, frozen
from tests.architecture import DIAGRAM, PAGE, cycles, imports, packages, past_a_face, redrawn

TEXT = PAGE.read_text()


def test_the_diagram_is_the_one_that_the_imports_draw() -> None:
    assert DIAGRAM.search(TEXT)
    frozen.check(PAGE, redrawn())


def test_no_package_imports_past_the_face_of_another() -> None:
    assert [f"{importer} imports {other}" for importer, other in past_a_face()] == []


def test_no_modules_import_each_other() -> None:
    assert cycles(imports()) == []


def test_an_import_past_a_face_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("purify/saar.py", "purify/hindsight.py", "purify/__init__.py", "rollout/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "rollout/a.py").write_text(
        "from cleaner_rl.purify import hindsight, saar\n"  # a function of the face, and a module that it hides
        "from cleaner_rl.purify.saar import repair\n"
        "from cleaner_rl.trajectory.store import read\n"  # a face of its own
        "from cleaner_sandbox.client import SandboxClient\n"  # and one of the other distribution
        "from cleaner_sandbox.node.node import Node\n"
    )
    monkeypatch.setattr(architecture, "SOURCE", tmp_path)
    assert list(past_a_face()) == [
        ("rollout.a", "purify.saar"),
        ("rollout.a", "purify.saar"),
        ("rollout.a", "cleaner_sandbox.node.node"),
    ]


def test_a_cycle_is_found() -> None:
    made = {"one": frozenset({"two"}), "two": frozenset({"two.b"}), "two.b": frozenset({"two.c", "one.x"})}
    assert cycles({**made, "two.c": frozenset({"two"})}) == [["two", "two.b", "two.c"]]
    assert cycles(made) == []


def test_every_package_has_its_row_and_every_row_a_package() -> None:
    table = TEXT.partition("## Packages")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(packages())


def test_a_file_that_the_page_sends_a_reader_to_is_there() -> None:
    packages = PAGE.parent / "src" / "cleaner_rl", PAGE.parent / "packages/cleaner-sandbox/src/cleaner_sandbox"
    places = PAGE.parent, *packages
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", TEXT)
    assert len(named) > 5
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []
