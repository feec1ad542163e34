"""Which logs there are, cut into units of work. The same inputs give the same plan, which is what a resumed run goes
by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from cleaner_rl.purify.logs.containers import Kind, LogError, Piece, first_record, foreign_columns, kind_of, pieces_of
from cleaner_rl.purify.logs.formats import detect, log_format_names
from cleaner_rl.purify.logs.names import named
from cleaner_rl.purify.logs.places import Found, absolute, below, find, is_below
from cleaner_rl.purify.logs.work import Unit

PIECE_BYTES = 8 << 20
PIECES_IN_UNIT = 4096
"""Of small files, so many share a unit."""
PLAN, UNITS = "plan.json", "units"
"""Files in the folder of a run's results: what it was asked for, and one for each unit that is done."""
TAPER = 8
"""A unit is at most this part of what is left to do, down to this part of a whole unit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Units of work, and the files that are no logs."""

    units: tuple[Unit, ...]
    files: tuple[Found, ...]
    skipped: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For a file, to compare with."""
        return {
            "files": [[each.uri, each.size] for each in self.files],
            "units": [[[asdict(piece), form] for piece, form in unit.pieces] for unit in self.units],
        }


def plan(
    places: Iterable[str],
    form: str | None,
    size: int = PIECE_BYTES,
    seen: Callable[[Found], None] = lambda _: None,
    out: str | None = None,
) -> Plan:
    """Look at all files of these places, but for those below `out`, where the results go.

    What is named must be a log; what lies in a folder and is none is skipped and reported, since logs lie beside
    settings and results. So is what other runs wrote: it would be the same logs once more.
    """
    logs: dict[str, _Log] = {}
    skipped: list[str] = []
    for place in places:
        try:
            inside = [each for each in find(place) if each.uri == place or out is None or not is_below(each.uri, out)]
        except (OSError, ValueError) as error:
            raise LogError(str(error)) from error
        written = _folders_of_results(inside, place)
        skipped += [f"{each} holds results of `cleaner purify`; to read them, name what lies in it" for each in written]
        for found in inside:
            seen(found)
            if absolute(found.uri) in logs:
                continue  # two places may hold it; it is one log all the same
            if any(is_below(found.uri, each) for each in written):
                continue
            try:
                logs[absolute(found.uri)] = _log(found, form, size)
            except LogError as error:
                if found.uri == place:
                    raise
                skipped.append(str(error))
    if not logs:
        raise LogError(f"there is no log at {', '.join(places)}; {skipped[0] if skipped else 'the folder is empty'}")
    weighed: list[tuple[Piece, str, int]] = []
    for log, pieces in zip(logs.values(), named([log[:2] for log in logs.values()]), strict=True):
        weighed += [(piece, log.form, log.found.size // len(pieces)) for piece in pieces]
    return Plan(tuple(_units(weighed, size)), tuple(log.found for log in logs.values()), tuple(skipped))


def _folders_of_results(inside: Sequence[Found], place: str) -> list[str]:
    """The folders that runs like this one wrote, among the files of a place."""
    holding = {each.name.rpartition("/")[0] for each in inside}
    planned = (each.name.removesuffix(PLAN) for each in inside if f"/{each.name}".endswith(f"/{PLAN}"))
    return [below(place, folder).rstrip("/") for folder in planned if f"{folder}{UNITS}" in holding]


class _Log(NamedTuple):
    found: Found
    pieces: list[Piece]
    form: str


def _log(found: Found, form: str | None, size: int) -> _Log:
    kind = kind_of(found)
    pieces = list(pieces_of(found, kind, size))
    if kind is Kind.STORE:
        form = "store"
    elif form is None:
        record = next((record for piece in pieces if (record := first_record(piece)) is not None), None)
        form = detect(record)
        if form is None:
            fields = (
                f" with the fields {', '.join(map(repr, list(record)[:8]))}"
                if isinstance(record, dict) and record
                else ""
            )
            raise LogError(
                f"{found.uri} is {kind.value}{fields} of no format that is known here; "
                f"name one with --from ({', '.join(log_format_names())}), or leave the file out{_not_seen(found, kind)}"
            )
    return _Log(found, pieces, form)


def _not_seen(found: Found, kind: Kind) -> str:
    """The columns that a record was without, and what to do about them."""
    columns = foreign_columns(found.uri) if kind is Kind.PARQUET else {}
    named = ", ".join(f"{name!r} ({each})" for name, each in columns.items())
    return f". It was read without {named}: JSON has no words for these types, cast them to text" if named else ""


def _units(weighed: Sequence[tuple[Piece, str, int]], size: int) -> Iterator[Unit]:
    """Pieces in order, together as long as they are small; towards the end fewer and fewer, so that many workers come
    to their ends at about the same time."""
    number = weight = 0
    left = sum(each for _, _, each in weighed)
    taken: list[tuple[Piece, str]] = []
    for piece, form, each in weighed:
        most = min(size, max(left // TAPER, size // TAPER))
        if taken and (weight + each > most or len(taken) == PIECES_IN_UNIT):
            yield Unit(number, tuple(taken))
            left -= weight
            number, weight, taken = number + 1, 0, []
        taken.append((piece, form))
        weight += each
    if taken:
        yield Unit(number, tuple(taken))
