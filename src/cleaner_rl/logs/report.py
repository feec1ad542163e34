"""Writes the summary of `cleaner purify` in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cleaner_rl.logs.examples import EditExample, in_turns
from cleaner_rl.logs.plans import LogFile
from cleaner_rl.logs.reasons import REASONS
from cleaner_rl.logs.secrets import INSTALL
from cleaner_rl.logs.summary import ByTool, PurifySummary, Secrets
from cleaner_rl.purify import ReplayVerdict
from cleaner_rl.tools import CallKind
from cleaner_rl.trajectory import RepairKind

EXAMPLES = 3
FILES = 20
"""Logs that a dry run lists."""
COLUMNS = ("calls", "failed", "repaired", "left alone", "unsure", "no result")
VERDICTS = {
    ReplayVerdict.SAME.value: "proven: every call gives the recorded result",
    "undone": "not repaired: the calls give the recorded results only without the repairs",
    ReplayVerdict.DIFFERENT.value: "not reproducible here, also without repairs; repaired as without a sandbox",
    ReplayVerdict.NONDETERMINISTIC.value: "nondeterministic: two replays disagree; repaired as without a sandbox",
}


def as_text(
    summary: PurifySummary,
    files: Sequence[LogFile],
    skipped: Sequence[str],
    out: str | None,
    scanner: str | None = None,
    *,
    redacted: bool = False,
) -> str:
    """Return what was done in some lines for people. `scanner` has looked for secrets; None: nothing has."""
    secrets = _secrets(summary.secrets, scanner, redacted=redacted)
    return "\n".join([*_lines(summary, files, skipped, out), *secrets])


def _lines(made: PurifySummary, files: Sequence[LogFile], skipped: Sequence[str], out: str | None) -> Iterator[str]:
    yield f"read         {_read(made, files)}"
    if out is None:
        yield from (f"  {each.format:16}{each.size:>14,} bytes  {each.path}" for each in files[:FILES])
        if len(files) > FILES:
            yield f"  and {_many(len(files) - FILES, 'file')} more; --json lists all"
    written = "nothing is written: this is a dry run" if out is None else f"all written to {out}"
    yield f"{_many(made.trajectories, 'trajectory')}, {made.edited:,} of them repaired; {written}"
    yield f"turns        {made.turns_before:,} → {made.turns_after:,}"
    if made.characters_before:
        yield f"characters   {made.characters_before:,} → {made.characters_after:,}"
    if made.tokens_before:
        yield f"tokens       {made.tokens_before:,} → {made.tokens_after:,}"
    yield f"repairs      {_repairs(made.edits)}"
    if made.tools:
        yield ""
        yield from _table(made.tools)
        yield ""
    yield from _refused(made.tools)
    yield from _examples(made.examples)
    yield from _replay(made, dry_run=out is None)
    yield f"judged by    {_counts(made.judged)}"
    yield f"also found   {_many(made.repeated_calls, 'repeated call')}, {_many(made.abandoned, 'abandoned attempt')}"
    if made.without_calls:
        yield (
            f"no call      {_many(made.without_calls, 'trajectory')} without any; if calls are written in the text, "
            "name their format with --calls"
        )
    if made.roc:
        yield f"RoC          {_counts(made.roc)}"
    if made.sft_rows:
        left_out = f"; {_many(made.duplicate_rows, 'duplicate')} left out" if made.duplicate_rows else ""
        yield f"SFT rows     {made.sft_rows:,}{left_out}"
    if made.distill_rows:
        yield f"repair rows  {made.distill_rows:,}, for self-distillation"
    for reason, count in made.no_row.most_common():
        yield f"no row       {count:,}: {reason}, which rows can't hold"
    if made.not_read:
        yield f"not read     {_counts(made.not_read)}; passed through unchanged"
    if made.damaged:
        yield f"damaged      {_many(len(made.damaged), 'file')}, read up to the damage:"
        yield from _indented(made.damaged)
    if skipped:
        yield f"skipped      {_many(len(skipped), 'file')}, not read as logs:"
        yield from _indented(skipped)


def _secrets(secrets: Secrets, scanner: str | None, *, redacted: bool) -> Iterator[str]:
    if scanner is None:
        yield f"secrets      not looked for: detect-secrets is not installed ({INSTALL})"
        return
    count = sum(each.count for each in secrets.values())
    if not count:
        yield f"secrets      none found ({scanner})"
        return
    done = "redacted" if redacted else "left as they are; --redact replaces them"
    yield f"secrets      {count:,} found ({scanner}), {done}:"
    for kind, each in secrets.items():
        places = ", ".join(file if line is None else f"{file}:{line}" for file, line in each.places)
        yield f"  {each.count:>7,}  {kind}, first in {places}"


def _read(made: PurifySummary, files: Sequence[LogFile]) -> str:
    of_format = Counter(each.format for each in files)
    named = ", ".join(
        f"{count:,} {form} ({_many(made.formats[form], 'record')})" for form, count in of_format.most_common()
    )
    return f"{_many(len(files), 'file')}: {named}"


def _table(tools: ByTool) -> Iterator[str]:
    yield f"{'tool':8}{''.join(f'{name:>12}' for name in COLUMNS)}"
    for tool in CallKind:
        if (each := tools.get(tool.value)) is not None:
            counts = (each.calls, each.failed, each.repaired, each.left_alone.total(), each.unsure, each.no_result)
            yield f"{tool.value:8}{''.join(f'{count:>12,}' for count in counts)}"


def _refused(tools: ByTool) -> Iterator[str]:
    if not any(each.left_alone for each in tools.values()):
        return
    yield "left alone"
    for tool in CallKind:
        reasons = tools[tool.value].left_alone if tool.value in tools else Counter[str]()
        for reason, count in reasons.most_common():
            yield f"  {tool.value:8}{count:>7,}  {reason}: {REASONS[reason]}"


def _examples(examples: Sequence[EditExample]) -> Iterator[str]:
    if not examples:
        return
    yield "examples"
    for each in in_turns(examples, EXAMPLES):
        place = each.file if each.line is None else f"{each.file}:{each.line}"
        yield f"  {each.tool}, {place}"
        yield from (f"    - {line}" for line in each.before)
        yield f"      ({each.error})"
        yield from (f"    + {line}" for line in each.after)


def _replay(made: PurifySummary, *, dry_run: bool) -> Iterator[str]:
    asked, other = made.replayed.total(), made.not_replayable.total()
    if asked > other:
        yield f"replayed     {asked - other:,} of {_many(asked, 'trajectory')} to be repaired"
        for verdict, count in made.replayed.most_common():
            if verdict in VERDICTS:
                yield f"  {count:>7,}  {VERDICTS[verdict]}"
    if other:
        yield f"not replayed {_many(other, 'trajectory')}, repaired as without a sandbox"
        yield from (f"  {count:>7,}  {reason}" for reason, count in made.not_replayable.most_common())
    python = made.tools.get(CallKind.PYTHON.value)
    if not asked and python is not None and python.repaired:
        why = (
            "a dry run runs no code, and the replay of a run may add and undo some"
            if dry_run
            else "nothing was run, and what a failed program left behind is judged by its text. "
            "A replay needs tier 2 (`cleaner doctor` says how) or --sandbox URL"
        )
        yield f"not replayed {_many(python.repaired, 'repaired call')} of Python: {why}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"             {each}" for each in lines)


def _repairs(edits: Counter[str]) -> str:
    named = {RepairKind.GRAFT: "graft", RepairKind.REPLACE: "replacement"}
    counts = [_many(edits[kind], name) for kind, name in named.items() if edits[kind]]
    return ", ".join(counts) or "none"


def _many(count: int, noun: str) -> str:
    plural = noun if count == 1 else f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common()) or "none"
