"""Plans: logs cut into units without loss or doubling, and compared with the plan of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.logs import LogSettings, purify
from cleaner_rl.logs.containers import Kind, Piece
from cleaner_rl.logs.jobs import OtherRunError
from cleaner_rl.logs.plans import NO_CHECK, PIECES_IN_UNIT, TAPER, _units, differences, options_of
from cleaner_rl.replay import ReplayCheck, ReplaySettings
from tests.logs.cases import CASES
from tests.logs.rendering import openai

MISSING = object()

SIZE = 8_000


def weighed(sizes: list[int]) -> list[tuple[Piece, str, int]]:
    return [
        (Piece("a", "a", Kind.PARQUET, number, number + 1, number), "openai", each) for number, each in enumerate(sizes)
    ]


@given(st.lists(st.integers(0, 2 * SIZE), max_size=200))
def test_every_piece_is_in_one_unit_and_no_unit_is_too_large(sizes: list[int]) -> None:
    pieces = weighed(sizes)
    units = list(_units(pieces, SIZE))
    assert [each for unit in units for each in unit.pieces] == [(piece, form) for piece, form, _ in pieces]
    assert [unit.number for unit in units] == list(range(len(units)))
    left = sum(sizes)
    for unit in units:
        weight = sum(sizes[piece.number] for piece, _ in unit.pieces)
        assert len(unit.pieces) == 1 or weight <= min(SIZE, max(left // TAPER, SIZE // TAPER))
        left -= weight


def test_many_units_are_whole_and_the_last_ones_an_eighth() -> None:
    units = list(_units(weighed([SIZE // TAPER] * 400), SIZE))
    counts = [len(unit.pieces) for unit in units]
    assert counts == sorted(counts, reverse=True)
    assert counts.count(TAPER) > 30
    assert counts[-TAPER:] == [1] * TAPER


def test_of_empty_files_only_so_many_share_a_unit() -> None:
    assert [len(unit.pieces) for unit in _units(weighed([0] * (PIECES_IN_UNIT + 1)), SIZE)] == [PIECES_IN_UNIT, 1]


def planned(tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    """A finished run whose plan.json was changed: an option set, or left out if it is `MISSING`."""
    source = tmp_path / "a.jsonl"
    source.write_text(json.dumps(openai(CASES[0])) + "\n")
    purify(source, tmp_path / "out")
    file = tmp_path / "out/plan.json"
    kept = json.loads(file.read_text())
    for name, value in changes.items():
        kept["options"][name] = value
        if value is MISSING:
            del kept["options"][name]
    file.write_text(json.dumps(kept))
    return source, tmp_path / "out"


def test_a_plan_of_before_a_setting_goes_on(tmp_path: Path) -> None:
    kept = json.dumps(options_of(LogSettings()))
    for name in json.loads(kept):
        before = {"options": json.loads(kept), "files": [], "units": []}
        del before["options"][name]
        assert differences(before, {**before, "options": json.loads(kept)}) == [], name
    source, out = planned(tmp_path, threshold=MISSING, same=MISSING, text_match=MISSING)
    assert purify(source, out).summary.trajectories == 1


def test_a_piece_of_before_a_field_is_the_same_piece(tmp_path: Path) -> None:
    source, out = planned(tmp_path)
    kept = json.loads((out / "plan.json").read_text())
    del kept["units"][0][0][0]["whole"]
    (out / "plan.json").write_text(json.dumps(kept))
    assert purify(source, out).summary.trajectories == 1
    kept["units"][0][0][0]["start"] = 1
    (out / "plan.json").write_text(json.dumps(kept))
    with pytest.raises(OtherRunError, match="other units"):
        purify(source, out)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"threshold": 0.6}, "--threshold was 0.6, is 0.5"),
        ({"same": True, "roc": 4}, "--roc was 4, is not given; --same was on, is off"),
        ({"form": "verl", "run_name": "b"}, "--from was verl, is not given; the name of the run was b, is log"),
        ({"python_tool": ["a", "b"]}, "--python-tool was a, b, is not given"),
        ({"piece_mb": 2}, "--piece-mb was 2, is 8"),
        ({"new_in_2": True}, "--new-in-2 was on, is not given"),
    ],
)
def test_what_differs_is_named_and_nothing_is_deleted(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    source, out = planned(tmp_path, **changes)
    before = {each: each.read_bytes() for each in out.rglob("*") if each.is_file()}
    with pytest.raises(OtherRunError) as error:
        purify(source, out)
    assert f"holds the results of another run: {told}. " in str(error.value)
    assert {each: each.read_bytes() for each in out.rglob("*") if each.is_file()} == before


def test_files_that_changed_are_named(tmp_path: Path) -> None:
    source, out = planned(tmp_path)
    size = source.stat().st_size
    source.write_text(source.read_text() * 2)
    with pytest.raises(OtherRunError, match=f"a.jsonl had {size:,} bytes, has {2 * size:,}"):
        purify(source, out)
    source.rename(tmp_path / "b.jsonl")
    with pytest.raises(OtherRunError, match=r"a.jsonl is gone; .*b.jsonl was not there"):
        purify(tmp_path / "b.jsonl", out)
    (out / "plan.json").write_text("{")
    with pytest.raises(OtherRunError, match="can't be read as a plan"):
        purify(tmp_path / "b.jsonl", out)


def test_the_replay_s_defaults_are_those_of_a_run_without_one() -> None:
    assert {"replay": True, **ReplayCheck(ReplaySettings()).options()} == {**NO_CHECK, "replay": True}
