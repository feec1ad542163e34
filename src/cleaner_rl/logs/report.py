"""Writes the summary of `cleaner purify` in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cleaner_rl.logs.summary import PurifySummary
from cleaner_rl.purify import ReplayVerdict
from cleaner_rl.trajectory import RepairKind

SHOWN = 5


def as_text(summary: PurifySummary, skipped: Sequence[str], out: str) -> str:
    """Return what was done in a few lines for people."""
    made = summary
    lines = [
        f"{made.trajectories:,} trajectories, {made.edited:,} of them repaired; {made.kept:,} written to {out}",
        f"turns        {made.turns_before:,} → {made.turns_after:,}",
    ]
    if made.characters_before:
        lines.append(f"characters   {made.characters_before:,} → {made.characters_after:,}")
    if made.tokens_before:
        lines.append(f"tokens       {made.tokens_before:,} → {made.tokens_after:,}")
    lines += [
        f"failed turns {made.failed_turns:,}, of which {made.repaired_turns:,} are repaired",
        f"repairs      {_repairs(made.edits)}",
        f"left alone   {_counts(made.left_alone)}",
        f"unsure       {made.unsure_turns:,} turns, not edited",
        f"judged by    {_counts(made.judged)}",
        f"also found   {made.repeated_calls:,} repeated calls, {made.abandoned:,} abandoned attempts",
    ]
    if made.without_calls:
        lines.append(f"no call      {made.without_calls:,} trajectories; name the format of calls in text with --calls")
    if made.not_read:
        lines.append(f"not read     {_counts(made.not_read)}; passed through unchanged")
    if made.replayed:
        lines.append(f"replayed     {_counts(made.replayed)}")
        lines += [f"not replayed {count:,}: {reason}" for reason, count in made.not_replayable.most_common()]
    if different := made.replayed[ReplayVerdict.DIFFERENT]:
        lines.append(
            f"not proven   {different:,} give other results in a replay than in the log, also without repairs (a file "
            "or a package may be missing); they have the repairs that need no replay"
        )
    if made.roc:
        lines.append(f"RoC          {_counts(made.roc)}")
    if made.sft_rows:
        lines.append(f"SFT rows     {made.sft_rows:,}")
    lines += [f"no SFT row   {count:,}: {reason}, which rows can't hold" for reason, count in made.no_row.most_common()]
    if made.damaged:
        lines.append(f"damaged      {len(made.damaged):,} files, read up to the damage:")
        lines += [f"             {each}" for each in list(made.damaged)[:SHOWN]]
    if skipped:
        lines.append(f"skipped      {len(skipped):,} files that are not logs:")
        lines += [f"             {each}" for each in skipped[:SHOWN]]
    return "\n".join(lines)


def _repairs(edits: Counter[str]) -> str:
    named = {RepairKind.GRAFT: "graft", RepairKind.REPLACE: "replacement"}
    counts = [f"{edits[kind]:,} {name}{'s' * (edits[kind] != 1)}" for kind, name in named.items() if edits[kind]]
    return ", ".join(counts) or "none"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common()) or "none"
