"""One unit of work: some pieces of logs in, files in a folder out. The same function runs in one process, in many, and
on Ray.

A unit is a pure function of its pieces and the job, so it can be run again: after a crash, or on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from cleaner_rl.purify.hindsight import Reason, left_of
from cleaner_rl.purify.logs.cleaning import Cleaned, clean
from cleaner_rl.purify.logs.containers import CHUNK, Broken, Chunk, DamagedError, Kind, LogError, Piece, chunks_of
from cleaner_rl.purify.logs.formats import Reading
from cleaner_rl.purify.logs.messages import Unreadable
from cleaner_rl.purify.logs.places import is_remote
from cleaner_rl.purify.logs.records import OPAQUE, read_record, write_record
from cleaner_rl.purify.logs.sft import SftKind, SftWriter, sft_row
from cleaner_rl.purify.logs.sinks import SINKS, Sink
from cleaner_rl.purify.logs.summary import Summary
from cleaner_rl.purify.policies import SplicePolicy, Which
from cleaner_rl.trajectory import Trajectory
from cleaner_rl.trajectory.store import ParquetWriter, StoreError, read

NUMBER_BITS = 20
"""A trajectory's number is its unit's, then its own within the unit."""
BROKEN = "a record that is no JSON"

Check: TypeAlias = Callable[[Sequence[Cleaned[Any]]], Sequence[Cleaned[Any] | None]]
"""A last word on some purified trajectories: each as it may be used, or None if it is dropped."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to do with every trajectory."""

    reading: Reading
    repair: SplicePolicy | None = field(default_factory=SplicePolicy)
    """None: everything stays as it is."""
    which: Which = Which.ALL
    store: bool = True
    same: bool = False
    """Also in the format that it came in."""
    sft: SftKind | None = None
    clean_only: bool = False
    """In the rows for supervised training: only trajectories without a failed call."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Pieces that one worker takes, and the format of their records."""

    number: int
    pieces: tuple[tuple[Piece, str], ...]


def run_unit(
    unit: Unit,
    job: Job,
    folder: Path,
    check: Check | None = None,
    chosen: Mapping[int, Mapping[str, Any]] | None = None,
) -> Summary:
    """Purify a unit into files below a folder: `store/`, `sft/` and `same/`.

    `chosen` are GRPO-RoC's verdicts by trajectory; those that it doesn't keep stay out of `sft/` and `same/`.
    """
    summary = Summary()
    number = unit.number << NUMBER_BITS
    with ExitStack() as stack:
        store = stack.enter_context(ParquetWriter(folder / "store")) if job.store else None
        sft = None if job.sft is None else stack.enter_context(SftWriter(folder / "sft", job.sft))
        outputs = _Outputs(job, store, sft, chosen or {}, summary)
        for piece, form in unit.pieces:
            same = SINKS.get(piece.kind) if job.same else None
            try:
                with nullcontext() if same is None else same(piece, folder / "same" / piece.name) as sink:
                    for chunk, trajectories in _read(piece, form, job.reading, number):
                        cleaned = [_clean(each, job) for each in trajectories]
                        checked = cleaned if check is None else check(cleaned)
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

    job: Job
    store: ParquetWriter | None
    sft: SftWriter | None
    chosen: Mapping[int, Mapping[str, Any]]
    summary: Summary

    def write(self, chunk: Chunk, checked: Sequence[Cleaned[Any] | None], number: int, sink: Sink | None) -> None:
        """Write what became of a chunk, whose first trajectory has this number."""
        kept: list[tuple[int, Any]] = []
        for place, done in enumerate(checked):
            if done is None:
                continue
            trajectory = done.trajectory
            verdict = self.chosen.get(number + place)
            if verdict is not None:
                trajectory = replace(trajectory, extra={**trajectory.extra, "roc": verdict})
                self.summary.roc["kept" if verdict["kept"] else "dropped"] += 1
            if self.store is not None:
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
            row = sft_row(trajectory, clean_only=self.job.clean_only)
        except Unreadable as error:
            self.summary.no_row[str(error)] += 1
            return
        if row is not None:
            sft.write(row)


def trajectories_of(unit: Unit, job: Job) -> Iterator[tuple[int, Trajectory[Any]]]:
    """The purified trajectories of a unit with their numbers, and nothing else: for choosing among them."""
    number = unit.number << NUMBER_BITS
    for piece, form in unit.pieces:
        with suppress(DamagedError):
            for _, trajectories in _read(piece, form, job.reading, number):
                for trajectory in trajectories:
                    yield number, _clean(trajectory, job).trajectory
                    number += 1


def _read(piece: Piece, form: str, reading: Reading, number: int) -> Iterator[tuple[Chunk, list[Trajectory[Any]]]]:
    if piece.kind is Kind.STORE:
        if is_remote(piece.uri):
            raise LogError(f"{piece.uri} is a store, and those are read from local disks only: copy it here first")
        for some in _stored(piece.uri):
            yield Chunk([None] * len(some)), some
        return
    for chunk in chunks_of(piece):
        yield chunk, [_trajectory(each, form, number + place, reading) for place, each in enumerate(chunk.records)]
        number += len(chunk.records)


def _stored(uri: str) -> Iterator[list[Trajectory[Any]]]:
    """The trajectories of a store, some at a time; of one that is damaged, those before the damage."""
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
    return replace(trajectory, extra={"log": {"format": form, OPAQUE: BROKEN, "record": record.text}})


def _clean(trajectory: Trajectory[Any], job: Job) -> Cleaned[Any]:
    if job.repair is None:
        return Cleaned(trajectory, ())
    if job.which is Which.SUCCESSFUL and not _solved(trajectory):
        return Cleaned(trajectory, left_of(trajectory.turns, Reason.UNSUCCESSFUL))
    return clean(trajectory, job.repair)


def _solved(trajectory: Trajectory[Any]) -> bool:
    """As GRPO-RoC has it: without a word on success, a reward above 0."""
    return (trajectory.reward or 0.0) > 0 if trajectory.success is None else trajectory.success


def _written(trajectory: Trajectory[Any], record: Any) -> Any:
    return record if isinstance(record, Broken) else write_record(trajectory)
