"""Does one unit of work: reads some pieces of logs, and writes files to a folder.

The same function runs in one process, in many, and on Ray. Its result depends on the pieces and the settings alone, so
it can run again after a crash or on another machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cleaner_rl.logs.containers import CHUNK, Broken, Chunk, DamagedError, Kind, LogError, Piece, chunks_of
from cleaner_rl.logs.distillation import COLUMNS as DISTILLATION_COLUMNS
from cleaner_rl.logs.distillation import distillation_rows
from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.formats.base import log_of
from cleaner_rl.logs.messages import Unreadable
from cleaner_rl.logs.places import is_remote
from cleaner_rl.logs.purified import PurifiedLog, purify_log, purify_to_replay
from cleaner_rl.logs.reasons import with_reasons
from cleaner_rl.logs.records import OPAQUE, read_record, with_source, write_record
from cleaner_rl.logs.rendering import Template, template_of
from cleaner_rl.logs.row_files import RowWriter, SftKind
from cleaner_rl.logs.secrets import SecretScanner, needed_scanner, secret_scanner
from cleaner_rl.logs.sft import UnsureTurns, sft_rows
from cleaner_rl.logs.sinks import SINKS, Sink
from cleaner_rl.logs.summary import PurifySummary
from cleaner_rl.logs.tables import about_tokens
from cleaner_rl.logs.trainers import ID, Trainer, form_of, written_for
from cleaner_rl.purify import PurifyScope, Reason, RepairConfig, left_alone
from cleaner_rl.trajectory import RolloutInfo, Trajectory, sampled_turns
from cleaner_rl.trajectory.store import ParquetWriter, StoreError, read

NUMBER_BITS = 20
"""A trajectory's number is its unit's, then its own within the unit."""

PIECE_BYTES = 8 << 20


class Check(Protocol):
    """Decides which repairs of trajectories stay before they are written, for example by a replay of their calls.

    It may count in the summary. It is pickled to reach other processes. If it has a method `options`, what that returns
    is kept in plan.json and must be the same when a run goes on. If it has `replays`, and that is true, it also gets
    repairs that only a replay can warrant; where it can't replay one of these it has to return
    `PurifiedLog.unreplayed`.
    """

    def __call__(self, purified: Sequence[PurifiedLog[Any]], summary: PurifySummary, /) -> Sequence[PurifiedLog[Any]]:
        """Return each trajectory as it may be used."""
        ...


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of `purify`: how logs are read, what is done to each trajectory, and what is written."""

    log_format: str | None = None
    """Name of the log format (see `log_format_names`). None: each file's format is detected by its content."""
    reading: Reading = field(default_factory=Reading)
    repair: RepairConfig | None = field(default_factory=RepairConfig)
    """How failed turns are repaired. None (`--method mask`): logs are converted, and nothing is repaired."""
    scope: PurifyScope = PurifyScope.ALL
    sft: SftKind | None = None
    """Also write rows for supervised fine-tuning, as this kind of file."""
    sft_for: Trainer | None = None
    """Write SFT rows in the keys of this trainer, and if `sft` is None as the kind of file that it reads best."""
    tokenizer: str | None = None
    """The tokenizer of the model that SFT rows are for: a folder, or a name on the Hub. Rows for TRL need it."""
    max_tokens: int | None = None
    """Split SFT rows that have more of the tokenizer's tokens."""
    clean_only: bool = False
    """Write SFT rows only for trajectories whose calls all worked."""
    solved_only: bool = False
    """Write SFT rows only for trajectories whose task was solved."""
    unsure: UnsureTurns = UnsureTurns.MASK
    """Whether SFT rows have turns in the loss of which nobody can tell how their calls ended."""
    distill: SftKind | None = None
    """Also write rows for self-distillation, one for each repair, as this kind of file."""
    same: bool = False
    """Also write the purified logs in the format that they came in."""
    redact: bool = False
    """Replace secrets by `<redacted:KIND>` before anything else sees the records. Needs the extra `secrets`."""
    found_wrong: frozenset[str] = frozenset()
    """Decisions that a review found wrong, by their ids: such edits are undone, and such successes are not trained."""
    roc: int | None = None
    """Keep this many attempts of each task, chosen by GRPO-RoC, in rows and in `same`. None: keep all."""
    seed: int = 0
    """Seed of GRPO-RoC's choice."""
    piece_bytes: int = PIECE_BYTES
    """Size of a unit of work. Smaller units lose less when a run is killed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", PurifyScope(self.scope))
        object.__setattr__(self, "sft_for", None if self.sft_for is None else Trainer(self.sft_for))
        if self.sft is not None or self.sft_for is not None:
            object.__setattr__(self, "sft", SftKind(self.sft or form_of(self.sft_for).kind))
        object.__setattr__(self, "distill", None if self.distill is None else SftKind(self.distill))
        object.__setattr__(self, "unsure", UnsureTurns(self.unsure))
        if self.roc is not None and self.roc < 2:
            raise ValueError(f"roc is {self.roc}; GRPO-RoC keeps at least 2 attempts of each task")
        if self.max_tokens is not None and self.tokenizer is None:
            raise ValueError("max_tokens needs a tokenizer, whose tokens are counted")
        if form_of(self.sft_for).tokens and self.tokenizer is None:
            raise ValueError(f"rows for {self.sft_for} are tokens, so they need a tokenizer")
        if self.piece_bytes < 1:
            raise ValueError(f"piece_bytes is {self.piece_bytes}; a unit of work has at least 1 byte")


@dataclass(frozen=True, slots=True)
class Unit:
    """Pieces that one worker takes, and the format of their records."""

    number: int
    pieces: tuple[tuple[Piece, str], ...]


def run_unit(
    unit: Unit,
    settings: LogSettings,
    folder: Path | None,
    check: Check | None = None,
    chosen: Mapping[int, Mapping[str, Any]] | None = None,
) -> PurifySummary:
    """Purify a unit into files below a folder: `store/`, `sft/`, `distill/`, `same/`. Without one nothing is written.

    `chosen` are GRPO-RoC's verdicts by trajectory; those that it doesn't keep have no rows, and stay out of `same/`.
    """
    summary = PurifySummary()
    number = unit.number << NUMBER_BITS
    scanner = needed_scanner() if settings.redact else secret_scanner()
    redactor = scanner if settings.redact else None
    replayed = getattr(check, "replays", False)
    with ExitStack() as stack:
        store = None if folder is None else stack.enter_context(ParquetWriter(folder / "store"))
        sft = distill = None
        if settings.sft is not None:
            columns = form_of(settings.sft_for).columns
            sft = stack.enter_context(RowWriter(folder and folder / "sft", settings.sft, columns))
        if settings.distill is not None:
            below = folder and folder / "distill"
            distill = stack.enter_context(RowWriter(below, settings.distill, DISTILLATION_COLUMNS))
        template = None if settings.tokenizer is None else template_of(settings.tokenizer)
        outputs = _Outputs(settings, store, sft, distill, chosen or {}, summary, template)
        for piece, form in unit.pieces:
            try:
                with _sink(piece, folder if settings.same else None, redactor) as sink:
                    for chunk in _chunks(piece):
                        if scanner is not None:
                            chunk = _scanned(chunk, piece, scanner, summary, redact=settings.redact)
                        trajectories = _read(chunk, piece, form, settings.reading, number)
                        purified: Sequence[PurifiedLog[Any]] = [
                            _purified(each, settings, replayed) for each in trajectories
                        ]
                        if check is not None:
                            purified = check(purified, summary)
                        if settings.found_wrong:
                            purified = [each.without(settings.found_wrong) for each in purified]
                        for before, after in zip(trajectories, purified, strict=True):
                            summary.add(before, after)
                        outputs.write(chunk, purified, number, sink)
                        number += len(trajectories)
            except DamagedError as error:
                # What was read of it is written; the other files are whole.
                summary.damaged[str(error)] += 1
    if sft is not None:
        summary.sft_rows = sft.rows
    if distill is not None:
        summary.distill_rows = distill.rows
    return summary


def _sink(piece: Piece, folder: Path | None, redactor: SecretScanner | None) -> AbstractContextManager[Sink | None]:
    """Return where a piece is written as it came; nowhere without a folder, or if it is a store."""
    kind = SINKS.get(piece.kind)
    return nullcontext() if folder is None or kind is None else kind(piece, folder / "same" / piece.name, redactor)


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Where a unit's trajectories go, if they are written at all."""

    settings: LogSettings
    store: ParquetWriter | None
    sft: RowWriter | None
    distill: RowWriter | None
    chosen: Mapping[int, Mapping[str, Any]]
    summary: PurifySummary
    template: Template | None
    seen: set[str] = field(default_factory=set)
    """Ids of the SFT rows that are written: the same conversation is written once."""

    def write(self, chunk: Chunk, purified: Sequence[PurifiedLog[Any]], number: int, sink: Sink | None) -> None:
        """Write what became of a chunk, whose first trajectory has this number."""
        kept: list[tuple[int, Any]] = []
        for place, done in enumerate(purified):
            trajectory = with_reasons(done.trajectory, done.left_alone)
            verdict = self.chosen.get(number + place)
            if verdict is not None:
                trajectory = replace(trajectory, info=replace(trajectory.info, verdict=verdict))
                self.summary.roc["kept" if verdict["kept"] else "dropped"] += 1
            if self.store is not None:
                self.store.write(trajectory)
            if verdict is not None and not verdict["kept"]:
                continue
            self._write_rows(trajectory)
            if sink is not None:
                kept.append((place, _written(trajectory, chunk.records[place])))
        if sink is not None:
            sink.write(chunk, kept)

    def _write_rows(self, trajectory: Trajectory[Any]) -> None:
        settings = self.settings
        try:
            if self.sft is not None and not (settings.solved_only and not _solved(trajectory)):
                rows = sft_rows(trajectory, clean_only=settings.clean_only, unsure=settings.unsure)
                count = about_tokens if self.template is None else self.template.count_text
                self.summary.tables.add_rows(trajectory, rows, count)
                made = written_for(rows, form_of(settings.sft_for), self.template, settings.max_tokens)
                for row in list(made):
                    if row[ID] in self.seen:
                        self.summary.duplicate_rows += 1
                        continue
                    self.seen.add(row[ID])
                    self.sft.write(row)
            if self.distill is not None:
                for row in distillation_rows(trajectory):
                    self.distill.write(row)
        except Unreadable as error:
            self.summary.no_row[str(error)] += 1


def trajectories_of(unit: Unit, settings: LogSettings) -> Iterator[tuple[int, Trajectory[Any]]]:
    """Yield the purified trajectories of a unit with their numbers, for choosing among them."""
    number = unit.number << NUMBER_BITS
    redactor = needed_scanner() if settings.redact else None
    for piece, form in unit.pieces:
        with suppress(DamagedError):
            for chunk in _chunks(piece):
                if redactor is not None:
                    chunk = _scanned(chunk, piece, redactor, PurifySummary(), redact=True)
                for trajectory in _read(chunk, piece, form, settings.reading, number):
                    yield number, _purified(trajectory, settings).trajectory
                    number += 1


def _chunks(piece: Piece) -> Iterator[Chunk]:
    """Yield the records of a piece; of a store, its trajectories."""
    if piece.kind is not Kind.STORE:
        yield from chunks_of(piece)
        return
    if is_remote(piece.uri):
        raise LogError(f"{piece.uri} is a store, and those are read from local disks only: copy it here first")
    for some in _stored(piece.uri):
        yield Chunk(some)


def _scanned(chunk: Chunk, piece: Piece, scanner: SecretScanner, summary: PurifySummary, *, redact: bool) -> Chunk:
    """Return a chunk without its secrets if that is wanted, and count them."""
    records = list(chunk.records)
    scanned = [_texts_of(each) for each in records] if piece.kind is Kind.STORE else records
    for place, suspects in enumerate(scanner.suspects(scanned)):
        if suspects:
            found = Counter[str]()
            redacted = scanner.redact(scanned[place], found, suspects)
            if redact:
                records[place] = redacted
            summary.add_secrets(found, piece.uri, chunk.lines[place] if chunk.lines else None)
    return replace(chunk, records=records)


def _texts_of(trajectory: Trajectory[Any]) -> list[Any]:
    """Return the texts of a stored trajectory, those that its edits replaced included."""
    sampled = [each.turn.text for each in sampled_turns(trajectory)]
    return [trajectory.prompt.text, *sampled, dict(log_of(trajectory))]


def _read(chunk: Chunk, piece: Piece, form: str, reading: Reading, number: int) -> list[Trajectory[Any]]:
    """Return the trajectories of a chunk, whose first record has this number."""
    if piece.kind is Kind.STORE:
        return list(chunk.records)
    lines = chunk.lines or [None] * len(chunk.records)
    read_all = [_trajectory(each, form, number + place, reading) for place, each in enumerate(chunk.records)]
    return [with_source(each, piece.uri, line) for each, line in zip(read_all, lines, strict=True)]


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


def _purified(trajectory: Trajectory[Any], settings: LogSettings, replayed: bool = False) -> PurifiedLog[Any]:
    if settings.repair is None:
        return PurifiedLog(trajectory, ())
    if settings.scope is PurifyScope.SUCCESSFUL and not _solved(trajectory):
        return PurifiedLog(trajectory, left_alone(trajectory.turns, Reason.UNSUCCESSFUL))
    return purify_to_replay(trajectory, settings.repair) if replayed else purify_log(trajectory, settings.repair)


def _solved(trajectory: Trajectory[Any]) -> bool:
    """Return whether the task was solved, as GRPO-RoC has it: if success is unknown, by a reward above 0."""
    return (trajectory.reward or 0.0) > 0 if trajectory.success is None else trajectory.success


def _written(trajectory: Trajectory[Any], record: Any) -> Any:
    return record if isinstance(record, Broken) else write_record(trajectory)
