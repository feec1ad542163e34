"""Verifies stores by replay: runs the calls of stored trajectories again and compares what they give.

`verify` is what `cleaner verify` calls; `checker` is what `cleaner purify --verify` hands to `logs.purify`. The code
that runs calls needs the sandbox installed, so this module loads it when it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from cleaner_rl.logs import Cleaned, PurifySummary
from cleaner_rl.purify import Reason, ReplayVerdict, left_alone, without_hindsight
from cleaner_rl.replay.settings import (
    NOT_REPLAYABLE,
    ReplayOutcome,
    ReplaySettings,
    SandboxMissingError,
    needs_sandbox,
)
from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory import Key, Trajectory
from cleaner_rl.trajectory.store import read

TOGETHER = 64
"""Trajectories that are read before they are replayed side by side."""
SHOWN = 200
"""Characters of a result that a difference shows."""
UNDONE = "undone"


class DifferentTrajectory(NamedTuple):
    """A trajectory whose calls give other results than it records."""

    key: Key
    outcome: ReplayOutcome

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, with long results cut."""
        difference = self.outcome.difference
        name = {"key": str(self.key)}
        if difference is None:
            return {**name, "why": self.outcome.reason}
        recorded, replayed = _shown(difference.recorded), _shown(difference.replayed)
        return {**name, "turn": difference.turn, "call": difference.call, "recorded": recorded, "replayed": replayed}


@dataclass(slots=True)
class ReplayReport:
    """What `verify` found."""

    verdicts: Counter[str] = field(default_factory=Counter)
    """Number of trajectories by verdict."""
    not_replayable: Counter[str] = field(default_factory=Counter)
    """Number of trajectories that can't be replayed, by reason."""
    different: list[DifferentTrajectory] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return {
            "verdicts": dict(self.verdicts),
            "not_replayable": dict(self.not_replayable),
            "different": [each.to_json() for each in self.different],
        }


def verify(
    store: str | Path,
    settings: ReplaySettings | None = None,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> ReplayReport:
    """Run the calls of a store's trajectories again, and report which trajectories give the recorded results.

    Args:
        store: A store in Parquet or JSONL.
        settings: How calls are run. Default: as each trajectory was recorded, in a sandbox on this machine.
        progress: Called with the number of trajectories that are done so far.

    Raises:
        StoreError: The store can't be read.
        SandboxMissingError: The sandbox's dependencies are not installed.
        ReplayFaultError: The sandbox can't be reached or broke, so nothing can be said.

    Examples:
        >>> import pathlib, tempfile
        >>> from cleaner_rl.replay import verify
        >>> from cleaner_rl.tools import Status, ToolResult, ToolSet, call_format, feedback, python_tool
        >>> from cleaner_rl.trajectory import Key, TextSpan, Trajectory, read_text
        >>> from cleaner_rl.trajectory.store import ParquetWriter
        >>> from dataclasses import replace
        >>> said = read_text("```python\\nprint(1 + 1)\\n```", call_format("fenced"), ToolSet(python_tool()))
        >>> def gave(output):
        ...     result = ToolResult(Status.OK, output)
        ...     turn = replace(said, results=(result,), observation=TextSpan(feedback(result)))
        ...     return Trajectory(TextSpan("1 + 1?"), (turn,), Key("run", 0, f"gives {output.strip()}", 0))
        >>> store = pathlib.Path(tempfile.mkdtemp()) / "store"
        >>> with ParquetWriter(store) as writer:
        ...     writer.write(gave("2\\n"))
        ...     writer.write(gave("3\\n"))
        >>> report = verify(store)
        >>> sorted(report.verdicts.items())
        [('different', 1), ('same', 1)]
        >>> report.different[0].key.task
        'gives 3'
    """
    needs_sandbox()
    from cleaner_rl.replay.replayer import Replayer

    report = ReplayReport()
    done = 0
    with Replayer(settings or ReplaySettings()) as replayer:
        for batch in _batches(store):
            for trajectory, found in zip(batch, replayer.replay_all(batch), strict=True):
                report.verdicts[str(found.verdict)] += 1
                if found.verdict == ReplayVerdict.DIFFERENT:
                    report.different.append(DifferentTrajectory(trajectory.key, found))
                elif found.reason:
                    report.not_replayable[found.reason] += 1
            done += len(batch)
            progress(done)
    return report


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """Replays purified trajectories before they are written; made by `checker`.

    A trajectory that gives the same is kept. One that gives something else loses its edits, if it gives the same
    without them. Where nothing can be proven (its tools are not Python, it is nondeterministic, or not even the log as
    it was gives the same, because a file or a package is missing), it keeps the edits that are warranted without a
    replay, or none if `only_proven`. One whose text contradicts its results is dropped. `info.replay` says which it is,
    and the summary counts them.
    """

    settings: ReplaySettings
    only_proven: bool = False

    @property
    def replays(self) -> bool:
        """Tell `logs.purify` that repairs are proven here."""
        return True

    def options(self) -> dict[str, Any]:
        """Return the settings that decide a verdict, for plan.json."""
        kept = {"session": self.settings.session, "text_match": self.settings.text_match.value}
        return {**kept, "only_proven": self.only_proven}

    def __call__(self, cleaned: Sequence[Cleaned[Any]], summary: PurifySummary, /) -> list[Cleaned[Any] | None]:
        """Replay the trajectories; each as it may be used, or None if it is dropped."""
        first = self._replayed([each.trajectory for each in cleaned])
        wrong = {index: each for index, each in enumerate(cleaned) if first[index].verdict == ReplayVerdict.DIFFERENT}
        fewer = {
            index: each.unreplayed
            for index, each in wrong.items()
            if each.unreplayed is not None and each.unreplayed.trajectory.edits
        }
        none = {index: without_hindsight(each.trajectory) for index, each in wrong.items() if each.trajectory.edits}
        again = dict(zip(fewer, self._replayed([each.trajectory for each in fewer.values()]), strict=True))
        raw = dict(zip(none, self._replayed(list(none.values())), strict=True))
        kept: list[Cleaned[Any] | None] = []
        for index, (each, found) in enumerate(zip(cleaned, first, strict=True)):
            done, verdict = each, found.verdict
            if index in again and again[index].verdict == ReplayVerdict.SAME:
                done, verdict = fewer[index], ReplayVerdict.SAME
            elif index in raw and raw[index].verdict == ReplayVerdict.SAME:
                done, verdict = _without_edits(each, Reason.UNDONE), UNDONE
            elif verdict != ReplayVerdict.SAME:
                done = _without_edits(each, Reason.UNPROVEN) if self.only_proven else each.unreplayed or each
            summary.replayed[verdict] += 1
            if verdict == NOT_REPLAYABLE:
                summary.not_replayable[found.reason] += 1
            marked = replace(done.trajectory, info=replace(done.trajectory.info, replay=str(verdict)))
            tampered = verdict == ReplayVerdict.DIFFERENT and found.reason
            kept.append(None if tampered else Cleaned(marked, done.left_alone))
        return kept

    def _replayed(self, trajectories: Sequence[Trajectory[Any]]) -> list[ReplayOutcome]:
        from cleaner_rl.replay.replayer import replayer_of

        return replayer_of(self.settings).replay_all(trajectories)


def _without_edits(cleaned: Cleaned[Any], reason: Reason) -> Cleaned[Any]:
    """Return a trajectory without its repairs, and this reason for each turn that a repair had taken out."""
    if not cleaned.trajectory.edits:
        return cleaned
    raw = without_hindsight(cleaned.trajectory)
    return Cleaned(raw, left_alone(raw.turns, reason))


def checker(settings: ReplaySettings | None = None, *, only_proven: bool = False) -> ReplayCheck:
    """Return a check for `logs.purify` that replays each purified trajectory.

    With `only_proven`, repairs that no replay could prove are undone. Raises `SandboxMissingError` if the sandbox's
    dependencies are not installed.
    """
    needs_sandbox()
    return ReplayCheck(settings or ReplaySettings(), only_proven)


def checker_if_possible(settings: ReplaySettings) -> ReplayCheck | None:
    """Return a check if sessions can be replayed, on the given nodes or on this machine; otherwise None."""
    if settings.nodes:
        return checker(settings)
    try:
        needs_sandbox()
    except SandboxMissingError:
        return None
    from cleaner_rl.sandbox import Tier, choose_tier, probe

    return checker(settings) if choose_tier(probe(), None, Tier.NONE) >= Tier.T2 else None


def _batches(store: str | Path) -> Iterator[list[Any]]:
    trajectories = read(store)
    while batch := list(islice(trajectories, TOGETHER)):
        yield batch


def _shown(result: ToolResult) -> dict[str, Any]:
    exception = result.exception
    text = {"output": result.output[:SHOWN], "stderr": result.stderr[:SHOWN], "explanation": result.explanation}
    if exception is not None:
        text["exception"] = f"{exception.type}: {exception.message[:SHOWN]}"
    return {"status": result.status, **{name: value for name, value in text.items() if value}}
