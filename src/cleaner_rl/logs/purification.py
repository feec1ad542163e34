"""Purifies logs: reads them, repairs failed calls in hindsight, and writes training data. `cleaner purify` calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike, fspath
from typing import Any, NamedTuple, TypeAlias

from cleaner_rl.logs.containers import LogError
from cleaner_rl.logs.jobs import UnitTask, alone, begin, run
from cleaner_rl.logs.plans import PATHS, options_of, plan
from cleaner_rl.logs.report import as_text
from cleaner_rl.logs.summary import PurifySummary, total
from cleaner_rl.logs.work import Check, PurifySettings

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
    skipped: tuple[str, ...]
    """Files that were found in a folder and are no logs, each with the reason."""
    out: str

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return {**self.summary.to_json(), "skipped_files": list(self.skipped), "out": self.out}

    def as_text(self) -> str:
        """Return it in a few lines for people."""
        return as_text(self.summary, self.skipped, self.out)


def purify(
    paths: Place | Iterable[Place],
    out: Place,
    settings: PurifySettings | None = None,
    *,
    jobs: int = 1,
    on_ray: bool = False,
    ray_address: str | None = None,
    check: Check | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> PurifyResult:
    """Purify agent logs: repair each failed call with the agent's own working correction, and write training data.

    A run that was killed continues where it stopped if it is called again with the same paths, `out` and settings. The
    other arguments may change from call to call.

    Args:
        paths: Files, folders or URIs of object stores. Formats are detected by content.
        out: Folder for the results: `store/`, and `sft/` and `same/` if the settings ask for them.
        settings: What to do. Default: repair everything, and write the store only.
        jobs: Number of processes.
        on_ray: Run on a Ray cluster, through Ray Data, instead of in processes.
        ray_address: Address of the Ray cluster. Default: Ray's own choice.
        check: Decides about purified trajectories before they are written, such as `cleaner_rl.replay.checker(...)`.
        progress: Called after each file that was found and each unit that is done.

    Raises:
        LogError: A log can't be read, or not a single record of all logs.
        OtherRunError: `out` holds other results, or another process writes there.
        RayError: Ray is not installed, or the cluster can't be reached.
        WorkerKilledError: A process was killed.
        OSError: A file can't be read or written.

    These errors are `PurifyError`s, except OSError. What `check` raises goes through. Results that were written stay.

    Examples:
        >>> import json, pathlib, tempfile
        >>> from cleaner_rl.logs import PurifySettings, purify
        >>> def call(code, result):
        ...     function = {"name": "python", "arguments": {"code": code}}
        ...     said = {"role": "assistant", "content": "I add.", "tool_calls": [{"id": code, "function": function}]}
        ...     return [said, {"role": "tool", "tool_call_id": code, **result}]
        >>> error = "Traceback (most recent call last):\\nNameError: name 'y' is not defined"
        >>> failed = call("print(1 + y)", {"content": error, "is_error": True})
        >>> worked = call("print(1 + 1)", {"content": "2", "is_error": False})
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> record = {"messages": [{"role": "user", "content": "1 + 1?"}, *failed, *worked]}
        >>> _ = (folder / "log.jsonl").write_text(json.dumps(record))
        >>> result = purify(folder / "log.jsonl", folder / "clean", PurifySettings(sft="jsonl"))
        >>> result.summary.edits
        Counter({'graft': 1})
        >>> row = json.loads((folder / "clean/sft/part-000000.jsonl").read_text())
        >>> [message["content"] for message in row["messages"]]
        ['1 + 1?', 'I add.', '2']
    """
    places = [fspath(paths)] if isinstance(paths, str | PathLike) else [fspath(each) for each in paths]
    folder = fspath(out)
    settings = settings or PurifySettings()

    def counted(stage: Stage, total: int | None = None) -> Callable[..., None]:
        count = 0
        if total is not None:
            progress(Progress(stage, 0, total))

        def step(*_: object) -> None:
            nonlocal count
            count += 1
            progress(Progress(stage, count, total))

        return step

    made = plan(places, settings.log_format, settings.piece_bytes, counted(Stage.FINDING), folder)
    with alone(folder):
        known = begin(folder, made, {**options_of(settings, check), PATHS: places})
        summaries = list(known.values())
        tasks = [UnitTask(unit, settings, folder, check) for unit in made.units if unit.number not in known]
        if settings.roc is not None:
            from cleaner_rl.logs.roc import choose

            tasks = choose(made.units, tasks, settings, settings.roc, jobs, counted(Stage.CHOOSING, len(made.units)))
        step = counted(Stage.PURIFYING, len(tasks))

        def done(summary: PurifySummary) -> None:
            summaries.append(summary)
            step()

        if on_ray:
            from cleaner_rl.logs.ray_jobs import run_on_ray

            run_on_ray(tasks, ray_address, done)
        else:
            run(tasks, jobs, done)
    summary = total(summaries)
    if summary.trajectories == sum(summary.not_read.values()):
        reasons = (*summary.damaged, *(f"{count:,} {reason}" for reason, count in summary.not_read.most_common()))
        raise LogError(
            f"no record of {', '.join(places)} could be read: {'; '.join(reasons) or 'there are none'}. "
            "Name the format with --from if it was taken for another one, or give other logs"
        )
    return PurifyResult(summary, made.skipped, folder)
