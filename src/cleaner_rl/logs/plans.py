"""Finds the logs, cuts them into units of work, and says whether a folder holds the results of the same plan.

The same inputs give the same plan, so a run that was killed can go on. What is compared is what a run depends on: the
files with their sizes, the units, and the settings. A setting that plan.json lacks had today's default when it was
written, so that folders of earlier versions stay usable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from cleaner_rl.logs.containers import (
    Kind,
    LogError,
    Piece,
    first_records,
    foreign_columns,
    look_at,
    pieces_of,
    with_lines,
)
from cleaner_rl.logs.formats import detect, detect_file
from cleaner_rl.logs.names import named
from cleaner_rl.logs.places import FoundFile, absolute, below, find, is_below
from cleaner_rl.logs.work import PIECE_BYTES, Check, LogSettings, Unit
from cleaner_rl.purify import RepairConfig

PIECES_IN_UNIT = 4096
"""Of small files, so many share a unit."""
PLAN, UNITS = "plan.json", "units"
"""Files in the folder of a run's results: what it was asked for, and one for each unit that is done."""
PATHS = "paths"
"""The entry of plan.json for people: where the logs were looked for. The files that were found there count."""
TAPER = 8
"""A unit is at most this part of what is left to do, down to this part of a whole unit."""


class LogFile(NamedTuple):
    """A log that was found."""

    path: str
    """Its path or URI."""
    size: int
    """Its bytes."""
    format: str
    """The format of its records; "store" for our own store."""

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class LogPlan:
    """The units of work, and the files that are not logs."""

    units: tuple[Unit, ...]
    files: tuple[LogFile, ...]
    skipped: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, for plan.json."""
        return {
            "files": [[each.path, each.size] for each in self.files],
            "units": [[[asdict(piece), form] for piece, form in unit.pieces] for unit in self.units],
        }


def plan(
    places: Iterable[str],
    form: str | None,
    size: int = PIECE_BYTES,
    seen: Callable[[FoundFile], None] = lambda _: None,
    out: str | None = None,
) -> LogPlan:
    """Return the plan for all files of these places, except those below `out`, where the results go.

    A file that is named must be a log. A file in a folder that is no log is skipped and reported, since logs are beside
    settings and results. Results of other runs are skipped too: they would be the same logs once more.
    """
    logs: dict[str, _Log] = {}
    skipped: list[str] = []
    for place in places:
        try:
            found_here = list(find(place, skipped.append))
        except (OSError, ValueError) as error:
            raise LogError(str(error)) from error
        inside = [each for each in found_here if each.uri == place or out is None or not is_below(each.uri, out)]
        written = _folders_of_results(inside, place)
        skipped += [
            f"{each} holds results of `cleaner purify`; to read them, give the path of a file in it" for each in written
        ]
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
    files = (LogFile(log.found.uri, log.found.size, log.form) for log in logs.values())
    return LogPlan(tuple(_units(weighed, size)), tuple(files), tuple(skipped))


def _folders_of_results(inside: Sequence[FoundFile], place: str) -> list[str]:
    """Return the folders that runs like this one wrote, among the files of a place."""
    holding = {each.name.rpartition("/")[0] for each in inside}
    planned = (each.name.removesuffix(PLAN) for each in inside if f"/{each.name}".endswith(f"/{PLAN}"))
    return [below(place, folder).rstrip("/") for folder in planned if f"{folder}{UNITS}" in holding]


NO_CHECK = {"replay": False, "only_proven": False, "session": None, "text_match": "trimmed"}
"""What plan.json says of the check of a run that has none."""
OPTIONS = {"form": "--from", "session": "--session/--fresh"}
"""Options of `cleaner purify` that aren't named after their key in plan.json."""
OPTIONS |= {"run_name": "the name of the run", "min_similarity": "min_similarity", "seed": "seed"}
"""Settings that are no options."""


def options_of(settings: LogSettings, check: Check | None = None) -> dict[str, Any]:
    """Return the settings that decide what is written, as plan.json keeps them: one value for each option."""
    repair = settings.repair or RepairConfig()
    checked: Any = getattr(check, "options", dict)()
    return {
        "form": settings.log_format,
        "calls": settings.reading.call_format,
        "python_tool": list(settings.reading.python_tools),
        "run_name": settings.reading.run,
        "method": "mask" if settings.repair is None else "hindsight",
        "threshold": repair.threshold,
        "measure": repair.measure,
        "refuse_stale": repair.refuse_stale,
        "min_similarity": repair.min_similarity,
        "scope": settings.scope.value,
        "sft": None if settings.sft is None else settings.sft.value,
        "distill": None if settings.distill is None else settings.distill.value,
        "sft_for": None if settings.sft_for is None else settings.sft_for.value,
        "tokenizer": settings.tokenizer,
        "max_tokens": settings.max_tokens,
        "clean_only": settings.clean_only,
        "solved_only": settings.solved_only,
        "reviews": sorted(settings.found_wrong),
        "unsure": settings.unsure.value,
        "same": settings.same,
        "redact": settings.redact,
        "roc": settings.roc,
        "seed": settings.seed,
        "piece_mb": settings.piece_bytes / (1 << 20),
        **NO_CHECK,
        "replay": check is not None,
        **checked,
    }


def differences(kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return in words how the plan of a folder differs from the one that is wanted; empty if they are the same."""
    defaults = options_of(LogSettings())
    before, now = {**defaults, **kept.get("options", {})}, {**defaults, **wanted["options"]}
    told = [
        f"{OPTIONS.get(name, '--' + name.replace('_', '-'))} was {_shown(before.get(name))}, is {_shown(now.get(name))}"
        for name in {**before, **now}
        if name != PATHS and before.get(name) != now.get(name)
    ]
    files, others = (dict(map(tuple, each.get("files", []))) for each in (kept, wanted))
    told += [f"{uri} was not there" for uri in others.keys() - files.keys()]
    told += [f"{uri} is gone" for uri in files.keys() - others.keys()]
    told += [
        f"{uri} had {files[uri]:,} bytes, has {others[uri]:,}"
        for uri in files.keys() & others.keys()
        if files[uri] != others[uri]
    ]
    if not told and _pieces(kept) != _pieces(wanted):
        told = ["another version of cleaner-rl split the logs into other units"]
    return sorted(told)


def _pieces(plan: Mapping[str, Any]) -> list[list[tuple[Piece, str]]] | None:
    """Return the pieces of each unit; fields that plan.json lacks have their defaults. None if there is an odd one."""
    try:
        return [[(Piece(**piece), form) for piece, form in unit] for unit in plan["units"]]
    except (KeyError, TypeError, ValueError):
        return None


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "not given", True: "on", False: "off"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    return (", ".join(map(str, value)) or "not given") if isinstance(value, list) else str(value)


class _Log(NamedTuple):
    found: FoundFile
    pieces: list[Piece]
    form: str


def _log(found: FoundFile, form: str | None, size: int) -> _Log:
    look = look_at(found)
    if look.kind is Kind.STORE:
        return _Log(found, list(pieces_of(found, look, size)), "store")
    heads = (first_records(piece) for piece in pieces_of(found, look, size))
    head: list[Any] = next(filter(None, heads), [])
    if look.kind in (Kind.JSONL, Kind.JSON) and len(head) > 1 and (of_files := detect_file(head, form)) is not None:
        return _Log(found, list(pieces_of(found, look, size, one_record=True)), of_files)
    if form is None:
        record = head[0] if head else None
        form = detect(record)
        if form is None:
            fields = (
                f" with the fields {', '.join(map(repr, list(record)[:8]))}"
                if isinstance(record, dict) and record
                else ""
            )
            raise LogError(
                f"{found.uri} is {look.kind.value}{fields} in no known format; name one with --from, or leave the file "
                f"out{_not_seen(found, look.kind)}"
            )
    return _Log(found, list(with_lines(list(pieces_of(found, look, size)))), form)


def _not_seen(found: FoundFile, kind: Kind) -> str:
    """Return the columns that a record was without, and what to do about them."""
    columns = foreign_columns(found.uri) if kind is Kind.PARQUET else {}
    named = ", ".join(f"{name!r} ({each})" for name, each in columns.items())
    return f". It was read without {named}: JSON has no such types; cast them to text" if named else ""


def _units(weighed: Sequence[tuple[Piece, str, int]], size: int) -> Iterator[Unit]:
    """Yield units of pieces in order.

    Small pieces share a unit. Units become smaller towards the end, so that many workers end at about the same time.
    """
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
