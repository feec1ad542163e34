"""The summary of `cleaner purify` in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cleaner_rl.purify import ReplayVerdict
from cleaner_rl.purify.logs.summary import Summary

SHOWN = 5


def as_text(summary: Summary, skipped: Sequence[str], out: str) -> str:
    """A few lines for people."""
    made = summary
    lines = [
        f"{made.trajectories:,} trajectories, {made.edited:,} of them edited; {made.kept:,} written to {out}",
        f"turns        {made.turns_before:,} → {made.turns_after:,}",
    ]
    if made.characters_before:
        lines.append(f"characters   {made.characters_before:,} → {made.characters_after:,}")
    if made.tokens_before:
        lines.append(f"tokens       {made.tokens_before:,} → {made.tokens_after:,}")
    lines += [
        f"failed turns {made.failed_turns:,}, of which {made.collapsed_turns:,} are gone",
        f"edits        {_counts(made.edits)}",
        f"left alone   {_counts(made.left_alone)}",
        f"unsure       {made.unsure_turns:,} turns, untouched",
        f"judged by    {_counts(made.judged)}",
        f"also seen    {made.repeated_calls:,} repeated calls, {made.abandoned:,} abandoned attempts",
    ]
    if made.not_read:
        lines.append(f"not read     {_counts(made.not_read)}; passed through as they are")
    if made.replayed:
        lines.append(f"replayed     {_counts(made.replayed)}")
        lines += [f"not replayed {count:,}: {reason}" for reason, count in made.not_replayable.most_common()]
    if dropped := made.replayed[ReplayVerdict.DIFFERENT]:
        lines.append(
            f"dropped      {dropped:,} whose calls, run again, give something else than the log says, even unedited"
        )
    if made.roc:
        lines.append(f"RoC          {_counts(made.roc)}")
    if made.sft_rows:
        lines.append(f"SFT rows     {made.sft_rows:,}")
    lines += [f"no SFT row   {count:,}: {reason}, which rows can't hold" for reason, count in made.no_row.most_common()]
    if made.damaged:
        lines.append(f"damaged      {len(made.damaged):,} files, read as far as they are whole:")
        lines += [f"             {each}" for each in list(made.damaged)[:SHOWN]]
    if skipped:
        lines.append(f"skipped      {len(skipped):,} files that are no logs:")
        lines += [f"             {each}" for each in skipped[:SHOWN]]
    return "\n".join(lines)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common()) or "none"
