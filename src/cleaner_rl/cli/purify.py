"""`cleaner purify`: repair logs that exist."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from cleaner_rl.cli import options as shared
from cleaner_rl.cli.words import said, show
from cleaner_rl.logs import (
    LogSettings,
    Progress,
    PurifyError,
    Reading,
    SftKind,
    Stage,
    Trainer,
    UnsureTurns,
    WorkerKilledError,
    log_format_names,
    preview,
)
from cleaner_rl.logs import purify as purify_logs
from cleaner_rl.purify import SIMILARITY_MEASURES, PurifyScope, RepairConfig, ReplayFaultError
from cleaner_rl.replay import ReplayCheck, ReplaySettings, SandboxMissingError, TextMatch, checker, replay_problem
from cleaner_rl.tools import call_format_names
from cleaner_rl.trajectory import Said, read_reviews

DEFAULTS = LogSettings()
GO_ON = "Finished work is kept: run the same command to resume"
WILL_RUN = (
    "The Python of repaired logs will be run again in {}, isolated and without network, to check the repairs. "
    "Use --no-replay to run nothing."
)
FORMATS = click.Choice(log_format_names())


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("--out", help="Folder for the results. An interrupted run resumes there.")
@click.option(
    "--dry-run", is_flag=True, help="Show which logs are read and what would be repaired. Write nothing; run no code."
)
@click.option("--from", "form", type=FORMATS, help="Format of the logs. Default: detected by content.")
@click.option(
    "--calls", type=click.Choice(call_format_names()), help="Format of calls in text. Default: hermes or xml, detected."
)
@click.option("--python-tool", multiple=True, metavar="NAME", help="Another tool that runs Python; repeatable.")
@click.option(
    "--method",
    type=click.Choice(["hindsight", "mask"]),
    default="hindsight",
    show_default=True,
    help="Repair failed turns in hindsight; or repair nothing, and leave failed turns out of the loss of --sft rows.",
)
@click.option(
    "--threshold",
    type=shared.SHARE,
    default=RepairConfig().threshold,
    show_default=True,
    help="Similarity at or above which a repair keeps the original reasoning and replaces only the call.",
)
@click.option(
    "--measure",
    type=click.Choice(SIMILARITY_MEASURES),
    default=RepairConfig().measure,
    show_default=True,
    help="Measure of similarity between the failed program and its correction.",
)
@click.option("--refuse-stale", is_flag=True, help="Refuse a repair whose reasoning mentions the removed error.")
@click.option(
    "--scope",
    type=click.Choice([each.value for each in PurifyScope]),
    default=DEFAULTS.scope.value,
    show_default=True,
    help="Which trajectories are repaired.",
)
@click.option(
    "--sft",
    type=click.Choice([each.value for each in SftKind]),
    help="Also write rows for supervised fine-tuning, as files of this kind.",
)
@click.option(
    "--sft-for",
    type=click.Choice([each.value for each in Trainer]),
    help="Write these rows in the keys of a trainer, and without --sft as the kind of file that it reads best.",
)
@click.option(
    "--tokenizer",
    metavar="MODEL",
    help="For --sft-for trl and --max-tokens: the model's folder or name on the Hub, for its tokenizer and template.",
)
@click.option("--max-tokens", type=shared.COUNT, help="Split SFT rows that have more tokens of --tokenizer.")
@click.option("--solved-only", is_flag=True, help="For --sft: only trajectories whose task was solved.")
@click.option(
    "--distill",
    type=click.Choice([each.value for each in SftKind]),
    help="Also write rows for self-distillation, one for each repair, as files of this kind: context, failed turn, "
    "feedback and correction.",
)
@click.option("--clean-only", is_flag=True, help="For --sft: only trajectories whose calls all worked.")
@click.option(
    "--unsure",
    type=click.Choice([each.value for each in UnsureTurns]),
    default=DEFAULTS.unsure.value,
    show_default=True,
    help="For --sft: turns with a call of which nobody can tell how it ended.",
)
@click.option(
    "--reviews",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Answers of `cleaner review`: undo edits that were found wrong, and leave such turns out of the loss.",
)
@click.option("--same", is_flag=True, help="Also write the purified logs in the format that they came in.")
@click.option(
    "--redact",
    is_flag=True,
    help="Replace secrets, such as keys of APIs, by <redacted:KIND> in all that is written. Needs the extra `secrets`.",
)
@click.option(
    "--replay/--no-replay",
    default=None,
    help="Run the Python of repaired logs again, isolated and without network, and undo repairs that change results. "
    "Default: if --sandbox is given or this machine has tier 2.",
)
@click.option("--only-proven", is_flag=True, help="Undo every repair that no replay proves.")
@click.option(
    "--session/--fresh",
    default=None,
    help="For the replay: one interpreter per trajectory, or one per call. Default: per call, then per trajectory.",
)
@click.option(
    "--text-match",
    type=click.Choice([each.value for each in TextMatch]),
    default=ReplaySettings().text_match.value,
    show_default=True,
    help="For the replay: compare printed text exactly, or without line breaks at its end.",
)
@shared.sandbox
@shared.sandbox_token
@click.option(
    "--roc",
    metavar="KEEP",
    type=click.IntRange(min=2),
    help="Keep this many attempts of each task, chosen by GRPO-RoC.",
)
@click.option("--jobs", type=shared.COUNT, default=1, show_default=True, help="Number of processes.")
@click.option(
    "--ray", "on_ray", is_flag=True, help="Run through Ray Data, on the cluster of RAY_ADDRESS or this machine's."
)
@click.option(
    "--piece-mb",
    type=shared.COUNT,
    default=DEFAULTS.piece_bytes >> 20,
    show_default=True,
    help="Size of a unit of work.",
)
@shared.as_json
def purify(
    paths: tuple[str, ...],
    out: str | None,
    dry_run: bool,
    as_json: bool,
    jobs: int,
    on_ray: bool,
    **options: Any,
) -> None:
    """Repair agent logs: replace each failed call with the agent's own working correction, and write training data.

    Reads sessions of coding agents (Claude Code, Codex, OpenHands, SWE-agent and others), data sets of messages, verl
    rollout dumps, verifiers traces, Inspect .eval logs, ATIF, and our own store; from files, folders or object stores.
    A record that can't be read is passed through unchanged. A turn whose outcome is unsure is never edited.

    \b
    Examples:
      cleaner purify logs/ --dry-run
      cleaner purify logs/ --out clean --sft jsonl
      cleaner purify logs/ --out clean --sft-for axolotl --solved-only
      cleaner purify runs/saar/trajectories --out repairs --distill jsonl
      cleaner purify ~/.claude/projects --out clean --same
      cleaner purify logs/ --out clean --sft jsonl --redact
      cleaner purify run.eval --out clean --same --only-proven --fresh
      cleaner purify s3://bucket/dumps --out s3://bucket/clean --ray
    """
    try:
        settings = _settings(options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        with _Bars() as bars:
            if dry_run:
                result = preview(paths, settings, jobs=jobs, progress=bars.show)
            elif out is None:
                raise click.UsageError("Missing option '--out', the folder for the results; --dry-run needs none.")
            else:
                result = purify_logs(
                    paths,
                    out,
                    settings,
                    jobs=jobs,
                    on_ray=on_ray,
                    check=_check(options, settings),
                    progress=bars.show,
                )
    except (WorkerKilledError, ReplayFaultError) as error:
        hint = "" if isinstance(error, SandboxMissingError) else f". {GO_ON}"
        raise click.ClickException(f"{error}{hint}") from None
    except PurifyError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(said(error)) from None
    show(json.dumps(result.to_json()) if as_json else result.as_text())


def _settings(options: dict[str, Any]) -> LogSettings:
    repair = RepairConfig(options["threshold"], options["measure"], refuse_stale=options["refuse_stale"])
    return LogSettings(
        log_format=options["form"],
        reading=Reading(tuple(options["python_tool"]), options["calls"]),
        repair=None if options["method"] == "mask" else repair,
        scope=PurifyScope(options["scope"]),
        sft=None if options["sft"] is None else SftKind(options["sft"]),
        sft_for=None if options["sft_for"] is None else Trainer(options["sft_for"]),
        tokenizer=options["tokenizer"],
        max_tokens=options["max_tokens"],
        solved_only=options["solved_only"],
        found_wrong=frozenset(
            name
            for name, answer in (read_reviews(options["reviews"]).items() if options["reviews"] else ())
            if answer is Said.WRONG
        ),
        distill=None if options["distill"] is None else SftKind(options["distill"]),
        clean_only=options["clean_only"],
        unsure=UnsureTurns(options["unsure"]),
        same=options["same"],
        redact=options["redact"],
        roc=options["roc"],
        piece_bytes=options["piece_mb"] << 20,
    )


def _check(options: dict[str, Any], settings: LogSettings) -> ReplayCheck | None:
    wanted, only_proven = options["replay"], options["only_proven"]
    if only_proven and wanted is False:
        raise click.UsageError("--only-proven needs a replay: leave out --no-replay.")
    if wanted is False or settings.repair is None:
        return None
    replay = ReplaySettings(
        options["session"],
        TextMatch(options["text_match"]),
        nodes=options["sandbox"],
        token=options["sandbox_token"],
        reading=settings.reading,
    )
    if not (wanted or only_proven) and (problem := replay_problem(replay)) is not None:
        click.echo(f"Repairs of Python are not replayed: {problem}.", err=True)
        return None
    click.echo(WILL_RUN.format(", ".join(replay.nodes) or "a sandbox here"), err=True)
    return checker(replay, only_proven=only_proven)


class _Bars:
    """Shows a progress bar for each stage on a terminal; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._stage: Stage | None = None
        self._bar: Any = None

    def show(self, progress: Progress) -> None:
        if progress.total is None:
            return  # a bar needs a length
        if progress.stage is not self._stage:
            self._stack.close()
            self._stage = progress.stage
            self._bar = self._stack.enter_context(
                click.progressbar(
                    length=progress.total,
                    label=f"{progress.stage:10}",
                    file=sys.stderr,
                    hidden=not sys.stderr.isatty(),
                )
            )
        self._bar.update(progress.done - self._bar.pos)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
