from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.train_screen import COLUMNS, drawn, record


def test_a_terminal_is_recorded_line_by_line(tmp_path: Path) -> None:
    lines = record(["sh", "-c", 'test -t 1; echo "a terminal: $?"; echo "$PWD/runs"'], tmp_path)
    assert [text for _, text in lines] == ["a terminal: 0", "runs"]
    assert 0 < lines[0][0] <= lines[1][0]


def test_a_command_that_fails_is_told_with_what_it_showed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such recipe\nthe command ended with 3"):
        record(["sh", "-c", "echo no such recipe; exit 3"], tmp_path)


def test_lines_come_in_their_order_and_waits_are_short() -> None:
    picture = drawn("train <it>", [(1.0, "begun"), (61.0, "x " * COLUMNS), (61.5, "done")])
    shown = list(ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}g"))
    delays = [group.attrib["style"] for group in shown]
    assert delays == [f"animation-delay:{seconds}s" for seconds in (0.0, 1.0, 3.0, 3.5)]
    assert ["".join(group.itertext()).strip() for group in shown[:2]] == ["$ train <it>", "0:01begun"]
    assert [len(group) for group in shown] == [1, 2, 4, 1]  # the time, and the rows of the line
