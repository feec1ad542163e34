"""Logs cut into units: nothing lost, nothing twice, and smaller ones towards the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.purify.logs.containers import Kind, Piece
from cleaner_rl.purify.logs.plans import PIECES_IN_UNIT, TAPER, _units

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
