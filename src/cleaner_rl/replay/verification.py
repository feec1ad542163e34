"""Verifies stores by replay: runs the calls of stored trajectories again and compares what they give.

`verify` is what `cleaner verify` calls; `checker` is what `cleaner purify` hands to `logs.purify`, where
`replay_problem` finds no reason against it. The code that runs calls needs the sandbox installed, so this module loads
it when it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from cleaner_rl.logs import PurifiedLog, PurifySummary
from cleaner_rl.purify import Reason, ReplayVerdict
from cleaner_rl.replay.settings import (
    NOT_REPLAYABLE,
    ReplayOutcome,
    ReplaySettings,
    SandboxMissingError,
    needs_sandbox,
)
from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory import Key
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
    """Replays trajectories that were repaired, before they are written; made by `checker`.

    A repaired trajectory whose calls give the recorded results is kept. If they give something else, but the recorded
    results without the repairs, the repairs are undone. Where a replay says nothing (the tool is not Python, results
    change from run to run, or the sandbox lacks files or packages of the log), repairs are made as without a sandbox,
    or, with `only_proven`, undone. `info.replay` has the verdict, and the summary counts them. A trajectory without a
    repair is not replayed.
    """

    settings: ReplaySettings
    only_proven: bool = False

    @property
    def replays(self) -> bool:
        """Tell `logs.purify` that repairs are proven here."""
        return True

    def options(self) -> dict[str, Any]:
        """Return the settings that decide a verdict, for plan.json."""
        settings = self.settings
        return {
            "only_proven": self.only_proven,
            "session": settings.session,
            "text_match": settings.text_match.value,
        }

    def __call__(self, purified: Sequence[PurifiedLog[Any]], summary: PurifySummary, /) -> list[PurifiedLog[Any]]:
        """Replay the trajectories that were repaired; return each as it may be used."""
        done = list(purified)
        tried = {index: each for index, each in enumerate(purified) if each.trajectory.edits}
        found = self._replayed(tried)
        wrong = [index for index, each in found.items() if each.verdict == ReplayVerdict.DIFFERENT]
        # Perhaps only a repair that needs a replay is wrong, or else all of them, or else the sandbox lacks something.
        fewer = {index: some for index in wrong if (some := tried[index].unreplayed) and some.trajectory.edits}
        none = {index: tried[index].undone(Reason.UNDONE) for index in wrong}
        right = [index for index, each in self._replayed(fewer).items() if each.verdict == ReplayVerdict.SAME]
        found |= {index: ReplayOutcome(ReplayVerdict.SAME) for index in right}
        tried |= {index: fewer[index] for index in right}
        rest = {index: each for index, each in none.items() if index not in right}
        refuted = [index for index, each in self._replayed(rest).items() if each.verdict == ReplayVerdict.SAME]
        found |= {index: ReplayOutcome(UNDONE) for index in refuted}
        for index, outcome in found.items():
            each = tried[index]
            if outcome.verdict == UNDONE:
                each = none[index]
            elif outcome.verdict != ReplayVerdict.SAME:
                each = each.undone(Reason.UNPROVEN) if self.only_proven else each.unreplayed or each
            summary.replayed[outcome.verdict] += 1
            if outcome.verdict == NOT_REPLAYABLE:
                summary.not_replayable[outcome.reason] += 1
            marked = replace(each.trajectory, info=replace(each.trajectory.info, replay=str(outcome.verdict)))
            done[index] = PurifiedLog(marked, each.left_alone)
        return done

    def _replayed(self, some: Mapping[int, PurifiedLog[Any]]) -> dict[int, ReplayOutcome]:
        """Replay trajectories. The sandbox starts with the first one that it can run."""
        from cleaner_rl.replay.replayer import replayer_of, unreplayable

        reasons = {index: unreplayable(each.trajectory) for index, each in some.items()}
        found = {index: ReplayOutcome(NOT_REPLAYABLE, reason=why) for index, why in reasons.items() if why is not None}
        run = [index for index in some if index not in found]
        if run:
            outcomes = replayer_of(self.settings).replay_all([some[index].trajectory for index in run])
            found |= zip(run, outcomes, strict=True)
        return found


def checker(settings: ReplaySettings | None = None, *, only_proven: bool = False) -> ReplayCheck:
    """Return a check for `logs.purify` that replays each repaired trajectory.

    Args:
        settings: How calls are run. Default: in a sandbox on this machine.
        only_proven: Undo every repair that no replay proves.

    Raises:
        SandboxMissingError: The sandbox's dependencies are not installed.
    """
    needs_sandbox()
    return ReplayCheck(settings or ReplaySettings(), only_proven)


def replay_problem(settings: ReplaySettings | None = None) -> str | None:
    """Return why untrusted logs should not be replayed with these settings; None if they can be.

    They can be if nodes are named, or if a sandbox on this machine isolates with tier T2 or higher.
    """
    from cleaner_sandbox import Tier, TierError, choose_tier, probe

    try:
        needs_sandbox()
        if settings is None or not settings.nodes:
            choose_tier(probe(), None, Tier.T2)
    except (SandboxMissingError, TierError) as error:
        return str(error)
    return None


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
