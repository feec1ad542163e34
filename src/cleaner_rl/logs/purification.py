"""Purifies logs: reads them, repairs failed calls in hindsight, and writes training data. `cleaner purify` calls it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cleaner_rl.logs.containers import Kind, LogError
from cleaner_rl.logs.duplicates import leave_out_duplicates
from cleaner_rl.logs.jobs import UnitTask, alone, begin, run
from cleaner_rl.logs.places import below, is_remote, put
from cleaner_rl.logs.plans import PATHS, LogFile, LogPlan, options_of, plan
from cleaner_rl.logs.rendering import template_of
from cleaner_rl.logs.report import as_text
from cleaner_rl.logs.secrets import needed_scanner, secret_scanner
from cleaner_rl.logs.summary import PurifySummary, total
from cleaner_rl.logs.tables import REPORT
from cleaner_rl.logs.work import Check, LogSettings

RunTasks: TypeAlias = Callable[[list[UnitTask], Callable[[PurifySummary], None]], None]
"""Does tasks, and calls a function with the summary of each."""
Place: TypeAlias = str | PathLike[str]
"""A path, or a URI that pyarrow can open (`s3://`, `gs://`, `abfs://`, `hdfs://`, `file://`)."""


class Stage(StrEnum):
    """The parts of a run, in order."""

    FINDING = "finding"
    """Looking at the files."""
    CHOOSING = "choosing"
    """Choosing attempts by GRPO-RoC, if `roc` is set."""
    PURIFYING = "purifying"
    """Purifying units of work and writing their results."""


class Progress(NamedTuple):
    """How far a stage is."""

    stage: Stage
    done: int
    total: int | None
    """None while files are being found: their number is not known yet."""


@dataclass(frozen=True, slots=True)
class PurifyResult:
    """What `purify` did."""

    summary: PurifySummary
    files: tuple[LogFile, ...]
    """The logs that were read."""
    skipped: tuple[str, ...]
    """Files that were found in a folder and are no logs, each with the reason."""
    out: str | None
    """Folder of the results; None after a preview."""
    scanner: str | None = None
    """What has looked for secrets, with its version. None: nothing has, because the extra `secrets` is missing."""
    redacted: bool = False
    """Whether secrets were replaced."""

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        files = [each.to_json() for each in self.files]
        summary = self.summary.to_json()
        secrets = {"scanner": self.scanner, "redacted": self.redacted, "found": summary["secrets"]}
        return {**summary, "secrets": secrets, "files": files, "skipped_files": list(self.skipped), "out": self.out}

    def as_text(self) -> str:
        """Return it in some lines for people."""
        return as_text(self.summary, self.files, self.skipped, self.out, self.scanner, redacted=self.redacted)


def purify(
    paths: Place | Iterable[Place],
    out: Place,
    settings: LogSettings | None = None,
    *,
    jobs: int = 1,
    on_ray: bool = False,
    check: Check | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> PurifyResult:
    """Purify agent logs: repair each failed call with the agent's own working correction, and write training data.

    A run that was killed continues where it stopped if it is called again with the same paths, `out` and settings. The
    other arguments may change from call to call.

    Args:
        paths: Files, folders or URIs of object stores. Formats are detected by content.
        out: Folder for the results: `store/`, and `sft/`, `distill/` and `same/` if the settings ask for them.
        settings: What to do. Default: repair everything, and write the store only.
        jobs: Number of processes.
        on_ray: Run on a Ray cluster, through Ray Data, instead of in processes: the one of the environment variable
            RAY_ADDRESS, else this machine's.
        check: Decides which repairs stay, such as `cleaner_rl.replay.checker(...)`. Default: all of them.
        progress: Called after each file that was found and each unit that is done.

    Raises:
        LogError: A log can't be read, or not a single record of all logs.
        ExtraMissingError: `settings.redact` is set, and the extra `secrets` is not installed.
        OtherRunError: `out` holds other results, or another process writes there.
        RayError: Ray is not installed, or the cluster can't be reached.
        WorkerKilledError: A process was killed.
        OSError: A file can't be read or written.

    These errors are `PurifyError`s, except OSError. What `check` raises goes through. Results that were written stay.

    Examples:
        >>> import json, pathlib, tempfile
        >>> from cleaner_rl.logs import LogSettings, purify
        >>> def call(code, result):
        ...     function = {"name": "python", "arguments": {"code": code}}
        ...     said = {"role": "assistant", "content": "I add.", "tool_calls": [{"id": code, "function": function}]}
        ...     return [said, {"role": "tool", "tool_call_id": code, **result}]
        >>> error = '  File "<stdin>", line 1\\n    print(1 + )\\nSyntaxError: invalid syntax'
        >>> failed = call("print(1 + )", {"content": error, "is_error": True})
        >>> worked = call("print(1 + 1)", {"content": "2", "is_error": False})
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> record = {"messages": [{"role": "user", "content": "1 + 1?"}, *failed, *worked]}
        >>> _ = (folder / "log.jsonl").write_text(json.dumps(record))
        >>> result = purify(folder / "log.jsonl", folder / "clean", LogSettings(sft="jsonl"))
        >>> result.summary.edits
        Counter({'graft': 1})
        >>> row = json.loads((folder / "clean/sft/part-000000.jsonl").read_text())
        >>> [message["content"] for message in row["messages"]]
        ['1 + 1?', 'I add.', '2']
    """
    folder = fspath(out)
    job = _Job(_places(paths), settings or LogSettings(), progress)
    made = job.plan(folder)
    with alone(folder):
        known = begin(folder, made, {**options_of(job.settings, check), PATHS: job.places})
        tasks = [UnitTask(unit, job.settings, folder, check) for unit in made.units if unit.number not in known]
        run_tasks = _on_ray() if on_ray else _in_processes(jobs)
        summary = job.run(made, tasks, known.values(), jobs, run_tasks)
        if job.settings.sft is not None:
            left = leave_out_duplicates(folder)
            summary.duplicate_rows += summary.sft_rows - left
            summary.sft_rows = left
        # On the file system of the output, so that it can be moved there.
        with tempfile.TemporaryDirectory(dir=None if is_remote(folder) else folder, prefix=".") as made_here:
            report = Path(made_here) / REPORT
            report.write_text(summary.tables.as_markdown(), encoding="utf-8", errors="replace")
            put(report, below(folder, REPORT))
    return job.result(summary, made, folder)


def preview(
    paths: Place | Iterable[Place],
    settings: LogSettings | None = None,
    *,
    jobs: int = 1,
    check: Check | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> PurifyResult:
    """Do what `purify` would do, and write nothing: the result says which logs are read, and what becomes of them.

    Args:
        paths: Files, folders or URIs of object stores. Formats are detected by content.
        settings: What would be done. Default: repair everything.
        jobs: Number of processes.
        check: Decides which repairs stay, such as `cleaner_rl.replay.checker(...)`, which runs code. Default: all stay.
        progress: Called after each file that was found and each unit that is done.

    Raises:
        LogError: A log can't be read, or not a single record of all logs.
        ExtraMissingError: `settings.redact` is set, and the extra `secrets` is not installed.
        WorkerKilledError: A process was killed.
        OSError: A file can't be read.
    """
    job = _Job(_places(paths), settings or LogSettings(), progress)
    made = job.plan(None)
    tasks = [UnitTask(unit, job.settings, None, check) for unit in made.units]
    return job.result(job.run(made, tasks, (), jobs, _in_processes(jobs)), made, None)


def _places(paths: Place | Iterable[Place]) -> list[str]:
    return [fspath(paths)] if isinstance(paths, str | PathLike) else [fspath(each) for each in paths]


def _in_processes(jobs: int) -> RunTasks:
    return lambda tasks, done: run(tasks, jobs, done)


def _on_ray() -> RunTasks:
    from cleaner_rl.logs.ray_jobs import run_on_ray

    return lambda tasks, done: run_on_ray(tasks, done)


@dataclass(frozen=True, slots=True)
class _Job:
    """What `purify` and `preview` have in common."""

    places: list[str]
    settings: LogSettings
    progress: Callable[[Progress], None]

    def plan(self, out: str | None) -> LogPlan:
        settings = self.settings
        if settings.redact:
            needed_scanner()
        if settings.tokenizer is not None:
            template_of(settings.tokenizer)
        made = plan(self.places, settings.log_format, settings.piece_bytes, self._counted(Stage.FINDING), out)
        stores = [each.path for each in made.files if each.format == Kind.STORE]
        if settings.redact and stores:
            raise LogError(
                f"{stores[0]} is a store, and only logs can be redacted. Use --redact with the logs that it was made "
                "from, or leave it out"
            )
        return made

    def run(
        self, made: LogPlan, tasks: list[UnitTask], known: Iterable[PurifySummary], jobs: int, run_tasks: RunTasks
    ) -> PurifySummary:
        """Do the tasks, and return the sum of what was done before and now."""
        settings = self.settings
        if settings.roc is not None:
            from cleaner_rl.logs.roc import choose

            looked = self._counted(Stage.CHOOSING, len(made.units))
            tasks = choose(made.units, tasks, settings, settings.roc, jobs, looked)
        summaries = list(known)
        step = self._counted(Stage.PURIFYING, len(tasks))

        def done(summary: PurifySummary) -> None:
            summaries.append(summary)
            step()

        run_tasks(tasks, done)
        summary = total(summaries)
        if summary.trajectories == sum(summary.not_read.values()):
            reasons = (*summary.damaged, *(f"{count:,} {reason}" for reason, count in summary.not_read.most_common()))
            raise LogError(
                f"no record of {', '.join(self.places)} could be read: {'; '.join(reasons) or 'there are none'}. "
                "Name the format with --from if it was taken for another one, or give other logs"
            )
        return summary

    def result(self, summary: PurifySummary, made: LogPlan, out: str | None) -> PurifyResult:
        """Return what was done, without secrets if none are wanted."""
        scanner, redact = secret_scanner(), self.settings.redact
        skipped = made.skipped
        if scanner is not None and redact:
            # A reason can quote the beginning of a file.
            skipped = tuple(scanner.redact(each, Counter()) for each in skipped)
        return PurifyResult(summary, made.files, skipped, out, None if scanner is None else scanner.name, redact)

    def _counted(self, stage: Stage, total: int | None = None) -> Callable[..., None]:
        count = 0
        if total is not None:
            self.progress(Progress(stage, 0, total))

        def step(*_: object) -> None:
            nonlocal count
            count += 1
            self.progress(Progress(stage, count, total))

        return step
