"""ARCHITECTURE.md says what the code does."""

from __future__ import annotations

import re

from tests.architecture import DIAGRAM, PAGE, drawn, rooms

TEXT = PAGE.read_text()


def test_the_diagram_is_the_one_that_the_imports_draw() -> None:
    found = DIAGRAM.search(TEXT)
    assert found
    assert found[0] == drawn(rooms()), "python -m tests.architecture draws it again"


def test_every_room_has_its_row_and_every_row_a_room() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|", TEXT, re.MULTILINE)
    assert sorted(rows) == sorted(rooms())


def test_a_file_that_the_page_sends_a_reader_to_is_there() -> None:
    source = PAGE.parent / "src" / "cleaner_rl"
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", TEXT)
    assert len(named) > 5
    assert [name for name in named if not (source / name).is_file()] == []
