"""Names outputs, so that no two pieces of logs share a name although many logs are called the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from cleaner_rl.logs.containers import Kind, Piece
from cleaner_rl.logs.places import FoundFile, absolute


def named(files: Sequence[tuple[FoundFile, Sequence[Piece]]]) -> Iterator[list[Piece]]:
    """Yield the pieces of each file, with names of their own.

    A file keeps its path below the place that it was found in. Where another file has the same, or a piece of another
    one is called so, as many of the folders above it stand before it as tell them apart; failing that, a number.
    """
    files_of_name = Counter(found.name for found, _ in files)
    taken: set[str] = set()
    for found, pieces in files:
        longer = _longer_and_longer(found, alone=files_of_name[found.name] == 1)
        candidates = ([_piece_name(piece, name) for piece in pieces] for name in longer)
        names = next(names for names in candidates if taken.isdisjoint(names))
        taken.update(names)
        yield [replace(piece, name=name) for piece, name in zip(pieces, names, strict=True)]


def _longer_and_longer(found: FoundFile, *, alone: bool) -> Iterator[str]:
    if alone:
        yield found.name
    parts = [part for part in absolute(found.uri).split("/") if part]
    for start in reversed(range(len(parts) - found.name.count("/") - 1)):
        yield "/".join(parts[start:])
    yield from (f"{number}/{found.name}" for number in count())


def _piece_name(piece: Piece, name: str) -> str:
    """Return a file's name, with a number where it has several pieces."""
    if piece.kind not in (Kind.JSONL, Kind.PARQUET) or (piece.number == 0 and piece.whole):
        return name
    folder, slash, file = name.rpartition("/")
    stem, dot, suffix = file.rpartition(".")
    return f"{folder}{slash}{stem or suffix}-{piece.number:05}{dot}{suffix if stem else ''}"
