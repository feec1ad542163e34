"""What is known of a trajectory around a failed turn and its correction."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from cleaner_rl.logs.warrant.effects import ReadsLater
from cleaner_rl.logs.warrant.mentions import LaterWords, Lost
from cleaner_rl.logs.warrant.python import ANY, WasGiven, names_read, nothing_given, nothing_reads
from cleaner_rl.tools import CallKind
from cleaner_rl.trajectory import Trajectory, Turn

TASK = 3_000
"""Characters of the prompt's end that are taken for the task."""
MentionedLater: TypeAlias = Callable[[str, str], bool]
"""Says of what a tool said and of the call that failed whether later words of the agent refer to them."""
_THOUSANDS = re.compile(r"(?<=\d)[,_ ](?=\d{3}\b)")


def nothing_mentions(_told: str, _call: str) -> bool:
    """Return False: nothing is known of later words."""
    return False


class Leftovers(StrEnum):
    """Says who looks at what a failed Python program may have left behind."""

    REPLAYED = "replayed"
    """The caller replays the repaired trajectory, which shows whether something is missing."""
    UNCHECKED = "unchecked"
    """Nobody: the text of the programs has to show it."""


@dataclass(frozen=True, slots=True)
class RepairContext:
    """What is known of the turns around a failed turn and its correction."""

    leftovers: Leftovers = Leftovers.UNCHECKED
    """Who looks at what a failed Python program may have left behind."""
    between: Sequence[Turn[Any]] = ()
    """Failed turns between the two. A name that the tool offers there counts as one that it offers here."""
    reads_later: ReadsLater = nothing_reads
    """Says whether a program after the correction may read one of some names."""
    was_given: WasGiven = nothing_given
    """Says whether a number or a word is in what the model had read before the failed turn."""
    task: str = ""
    """The last words of the prompt."""
    mentioned_later: MentionedLater = nothing_mentions
    """Says whether words after the correction refer to the failure."""


class Surroundings:
    """Answers what `RepairContext` asks about a trajectory. It looks at the turns when it is first asked."""

    def __init__(self, trajectory: Trajectory[Any]) -> None:
        self._trajectory = trajectory
        self._last: dict[str, int] | None = None
        """By name the last turn that reads it; by `ANY` the last one that can't be parsed."""
        self._later: LaterWords | None = None

    def reads_after(self, position: int) -> ReadsLater:
        """Return a function that says whether a turn at this position or later may read one of some names."""
        return partial(self._reads, position)

    def given_before(self, position: int) -> WasGiven:
        """Return a function that says whether the task or a result before this position has a number or a word."""
        return partial(self._has, position)

    def mentioned_after(self, failed: int, correction: int) -> MentionedLater:
        """Return a function that says whether turns after the correction refer to the first of the failed turns."""
        return partial(self._mentioned, failed, correction)

    @property
    def task(self) -> str:
        """The last words of the prompt."""
        return str(self._trajectory.prompt.text[-TASK:])

    def _reads(self, position: int, names: Collection[str]) -> bool:
        if not names:
            return False
        if self._last is None:
            self._last = {
                name: index
                for index, turn in enumerate(self._trajectory.turns)
                for call in turn.calls
                if call.kind is CallKind.PYTHON
                for name in names_read(call.code)
            }
        last = self._last
        return any(last.get(name, -1) >= position for name in (*names, ANY))

    def _mentioned(self, failed: int, correction: int, told: str, call: str) -> bool:
        if correction + 1 >= len(self._trajectory.turns):
            return False
        if self._later is None or self._later.first > correction + 1:
            self._later = LaterWords(self._trajectory, correction + 1)
        return self._later.mention(Lost(told, call, failed, correction))

    def _has(self, position: int, value: str) -> bool:
        before = (turn.observation for turn in self._trajectory.turns[:position])
        texts = (self._trajectory.prompt.text, *(span.text for span in before if span is not None))
        # Thousands are set apart in many ways: 48,000 is 48000.
        pattern = re.compile(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", re.IGNORECASE)
        return any(pattern.search(text) or pattern.search(_THOUSANDS.sub("", text)) for text in texts)
