"""Does one unit of work: reads some pieces of logs, and writes files to a folder.

The same function runs in one process, in many, and on Ray. Its result depends on the pieces and the settings alone, so
it can run again after a crash or on another machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cleaner_rl.logs.cleaning import Cleaned, clean, clean_to_replay
from cleaner_rl.logs.containers import CHUNK, Broken, Chunk, DamagedError, Kind, LogError, Piece, chunks_of
from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.messages import Unreadable
from cleaner_rl.logs.places import is_remote
from cleaner_rl.logs.records import OPAQUE, read_record, with_source, write_record
from cleaner_rl.logs.sft import SftKind, SftWriter, UnsureTurns, sft_row
from cleaner_rl.logs.sinks import SINKS, Sink
from cleaner_rl.logs.summary import PurifySummary
from cleaner_rl.purify import PurifyScope, Reason, RepairConfig, left_alone
from cleaner_rl.trajectory import RolloutInfo, Trajectory
from cleaner_rl.trajectory.store import ParquetWriter, StoreError, read

NUMBER_BITS = 20
"""A trajectory's number is its unit's, then its own within the unit."""

PIECE_BYTES = 8 << 20


class Check(Protocol):
    """Decides about purified trajectories before they are written, for example by a replay of their calls.

    It returns each trajectory as it may be used, or None to drop it, and may count in the summary. It is pickled to
    reach other processes. If it has a method `options`, what that returns is kept in plan.json and must be the same
    when a run goes on. If it has `replays`, and that is true, it also gets repairs that only a replay can warrant;
    where it can't replay one of these it has to return `Cleaned.unreplayed`.
    """

    def __call__(self, cleaned: Sequence[Cleaned[Any]], summary: PurifySummary, /) -> Sequence[Cleaned[Any] | None]:
        """Return each trajectory as it may be used, or None in its place."""
        ...


@dataclass(frozen=True, slots=True)
class PurifySettings:
    """Settings of `purify`: how logs are read, what is done to each trajectory, and what is written."""

    log_format: str | None = None
    """Name of the log format (see `log_format_names`). None: each file's format is detected by its content."""
    reading: Reading = field(default_factory=Reading)
    repair: RepairConfig | None = field(default_factory=RepairConfig)
    """How failed turns are repaired. None: logs are converted, and nothing is repaired."""
    scope: PurifyScope = PurifyScope.ALL
    sft: SftKind | None = None
    """Also write rows for supervised fine-tuning, as this kind of file."""
    clean_only: bool = False
    """Write SFT rows only for trajectories whose calls all worked."""
    unsure: UnsureTurns = UnsureTurns.MASK
    """Whether SFT rows have turns in the loss of which nobody can tell how their calls ended."""
    same: bool = False
    """Also write the purified logs in the format that they came in."""
    roc: int | None = None
    """Keep this many attempts of each task, chosen by GRPO-RoC, in SFT rows and in `same`. None: keep all."""
    seed: int = 0
    """Seed of GRPO-RoC's choice."""
    piece_bytes: int = PIECE_BYTES
    """Size of a unit of work. Smaller units lose less when a run is killed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", PurifyScope(self.scope))
        object.__setattr__(self, "sft", None if self.sft is None else SftKind(self.sft))
        object.__setattr__(self, "unsure", UnsureTurns(self.unsure))
        if self.roc is not None and self.roc < 2:
            raise ValueError(f"roc is {self.roc}; GRPO-RoC keeps at least 2 attempts of each task")
        if self.piece_bytes < 1:
            raise ValueError(f"piece_bytes is {self.piece_bytes}; a unit of work has at least 1 byte")


@dataclass(frozen=True, slots=True)
class Unit:
    """Pieces that one worker takes, and the format of their records."""

    number: int
    pieces: tuple[tuple[Piece, str], ...]


def run_unit(
    unit: Unit,
    settings: PurifySettings,
    folder: Path,
    check: Check | None = None,
    chosen: Mapping[int, Mapping[str, Any]] | None = None,
) -> PurifySummary:
    """Purify a unit into files below a folder: `store/`, `sft/` and `same/`.

    `chosen` are GRPO-RoC's verdicts by trajectory; those that it doesn't keep stay out of `sft/` and `same/`.
    """
    summary = PurifySummary()
    number = unit.number << NUMBER_BITS
    replayed = getattr(check, "replays", False)
    with ExitStack() as stack:
        store = stack.enter_context(ParquetWriter(folder / "store"))
        sft = None if settings.sft is None else stack.enter_context(SftWriter(folder / "sft", settings.sft))
        outputs = _Outputs(settings, store, sft, chosen or {}, summary)
        for piece, form in unit.pieces:
            same = SINKS.get(piece.kind) if settings.same else None
            try:
                with nullcontext() if same is None else same(piece, folder / "same" / piece.name) as sink:
                    for chunk, trajectories in _read(piece, form, settings.reading, number):
                        cleaned = [_clean(each, settings, replayed) for each in trajectories]
                        checked = cleaned if check is None else check(cleaned, summary)
                        for before, after in zip(trajectories, checked, strict=True):
                            summary.add(before, Cleaned(before, ()) if after is None else after)
                        outputs.write(chunk, checked, number, sink)
                        number += len(trajectories)
            except DamagedError as error:
                # What was read of it is written; the other files are whole.
                summary.damaged[str(error)] += 1
    summary.sft_rows = 0 if sft is None else sft.rows
    return summary


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Where a unit's trajectories go."""

    settings: PurifySettings
    store: ParquetWriter
    sft: SftWriter | None
    chosen: Mapping[int, Mapping[str, Any]]
    summary: PurifySummary

    def write(self, chunk: Chunk, checked: Sequence[Cleaned[Any] | None], number: int, sink: Sink | None) -> None:
        """Write what became of a chunk, whose first trajectory has this number."""
        kept: list[tuple[int, Any]] = []
        for place, done in enumerate(checked):
            if done is None:
                continue
            trajectory = done.trajectory
            verdict = self.chosen.get(number + place)
            if verdict is not None:
                trajectory = replace(trajectory, info=replace(trajectory.info, roc=verdict))
                self.summary.roc["kept" if verdict["kept"] else "dropped"] += 1
            self.store.write(trajectory)
            self.summary.kept += 1
            if verdict is not None and not verdict["kept"]:
                continue
            if self.sft is not None:
                self._write_row(self.sft, trajectory)
            if sink is not None:
                kept.append((place, _written(trajectory, chunk.records[place])))
        if sink is not None:
            sink.write(chunk, kept)

    def _write_row(self, sft: SftWriter, trajectory: Trajectory[Any]) -> None:
        try:
            row = sft_row(trajectory, clean_only=self.settings.clean_only, unsure=self.settings.unsure)
        except Unreadable as error:
            self.summary.no_row[str(error)] += 1
            return
        if row is not None:
            sft.write(row)


def trajectories_of(unit: Unit, settings: PurifySettings) -> Iterator[tuple[int, Trajectory[Any]]]:
    """Yield the purified trajectories of a unit with their numbers, for choosing among them."""
    number = unit.number << NUMBER_BITS
    for piece, form in unit.pieces:
        with suppress(DamagedError):
            for _, trajectories in _read(piece, form, settings.reading, number):
                for trajectory in trajectories:
                    yield number, _clean(trajectory, settings).trajectory
                    number += 1


def _read(piece: Piece, form: str, reading: Reading, number: int) -> Iterator[tuple[Chunk, list[Trajectory[Any]]]]:
    if piece.kind is Kind.STORE:
        if is_remote(piece.uri):
            raise LogError(f"{piece.uri} is a store, and those are read from local disks only: copy it here first")
        for some in _stored(piece.uri):
            yield Chunk([None] * len(some)), some
        return
    for chunk in chunks_of(piece):
        lines = chunk.lines or [None] * len(chunk.records)
        read_all = [_trajectory(each, form, number + place, reading) for place, each in enumerate(chunk.records)]
        yield chunk, [with_source(each, piece.uri, line) for each, line in zip(read_all, lines, strict=True)]
        number += len(chunk.records)


def _stored(uri: str) -> Iterator[list[Trajectory[Any]]]:
    """Yield the trajectories of a store in batches; of a damaged store, those before the damage."""
    some: list[Trajectory[Any]] = []
    damage = None
    try:
        for each in read(uri):
            some.append(each)
            if len(some) == CHUNK:
                yield some
                some = []
    except StoreError as error:
        damage = DamagedError(str(error))
    if some:
        yield some
    if damage is not None:
        raise damage


def _trajectory(record: Any, form: str, number: int, reading: Reading) -> Trajectory[Any]:
    if not isinstance(record, Broken):
        return read_record(record, form, number, reading)
    trajectory = read_record(None, form, number, reading)
    return replace(trajectory, info=RolloutInfo(log={"format": form, OPAQUE: record.reason, "record": record.text}))


def _clean(trajectory: Trajectory[Any], settings: PurifySettings, replayed: bool = False) -> Cleaned[Any]:
    if settings.repair is None:
        return Cleaned(trajectory, ())
    if settings.scope is PurifyScope.SUCCESSFUL and not _solved(trajectory):
        return Cleaned(trajectory, left_alone(trajectory.turns, Reason.UNSUCCESSFUL))
    return clean_to_replay(trajectory, settings.repair) if replayed else clean(trajectory, settings.repair)


def _solved(trajectory: Trajectory[Any]) -> bool:
    """Return whether the task was solved, as GRPO-RoC has it: if success is unknown, by a reward above 0."""
    return (trajectory.reward or 0.0) > 0 if trajectory.success is None else trajectory.success


def _written(trajectory: Trajectory[Any], record: Any) -> Any:
    return record if isinstance(record, Broken) else write_record(trajectory)
