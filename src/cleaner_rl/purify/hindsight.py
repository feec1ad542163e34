"""Repairs failures in hindsight: with the self-correction that the same trajectory already holds.

The rollout goes through its errors within its normal budget, and nothing is sampled for the repair. The same function
serves training and logs that already exist. The edit keeps what a repair takes out, so `undo` gives the original back.

The correction is the first turn after the failures whose calls are all ok. On logs it has to be shown that it corrects
*them*: a function that the caller gives decides it (`cleaner_rl.logs.warrant`). In training, where every method was
measured without such a function, it is assumed.

Limits: on a stateful tool a failed program may have left something behind that later calls need. A replay
(`verify_by_replay`) finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeAlias

from cleaner_rl.purify.config import PurifyConfig, PurifyScope, RepairConfig
from cleaner_rl.purify.coverage import covers
from cleaner_rl.purify.splice import splices
from cleaner_rl.purify.stale import later_mentions
from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory import Edit, RepairMode, S, Trajectory, Turn, cut_before_repairs

Refusal: TypeAlias = Callable[[range, int], StrEnum | None]
"""Says why a repair is not made; None: it is. It is given the positions of failures in a row, whose correction is the
turn after them, and the position of the one of them that is asked about. They are asked about from the last to the
first, and those before a refused one stay, too."""


class Reason(StrEnum):
    """Why a failed turn was left alone, that is, not repaired, where a `Refusal` didn't say it."""

    UNCORRECTED = "uncorrected"
    """No turn with working calls follows before the model turns to something else or stops."""
    PARTIAL = "partial"
    """Some of its calls worked, and the correction doesn't run them again: a repair would lose their results."""
    STALE = "stale"
    """The correction's reasoning mentions the error, and the config refuses that."""
    UNSUCCESSFUL = "unsuccessful"
    """The task was not solved, and the config leaves such trajectories as they are."""
    UNDONE = "undone"
    """A replay of the repaired trajectory gave something else, so the repair was undone."""
    REVIEWED = "reviewed"
    """A person found the repair wrong, so it was undone."""
    UNPROVEN = "unproven"
    """No replay could prove the repair, and only proven ones were wanted."""
    UNUSABLE = "unusable"
    """The trajectory ended in a fault or was dropped, and is not to be used at all."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A failed turn that hindsight did not repair, and why."""

    turn: int
    """Its index in the repaired trajectory."""
    reason: StrEnum
    """A `Reason`, or what a `Refusal` said."""


@dataclass(frozen=True, slots=True)
class Purified(Generic[S]):
    """A repaired trajectory, and the failed turns that were left alone in it."""

    trajectory: Trajectory[S]
    left_alone: tuple[LeftAlone, ...]


def hindsight(
    trajectory: Trajectory[S],
    config: RepairConfig,
    refusal: Refusal | None = None,
    borders: Collection[int] = frozenset(),
) -> Purified[S]:
    """Repair every failed turn that the model itself corrected later in the trajectory.

    Re-score last: a trajectory that was re-scored already is refused with a ValueError.

    Args:
        trajectory: The trajectory.
        config: How a correction enters the history.
        refusal: Decides which corrections are taken, such as `cleaner_rl.logs.warrant.Warrant` for logs. None: every
            one, as in training.
        borders: Turns after which a correction no longer counts for the failures before it.

    Examples:
        >>> from dataclasses import replace
        >>> from cleaner_rl.purify import RepairConfig, hindsight
        >>> from cleaner_rl.tools import Status, ToolResult, ToolSet, call_format, python_tool
        >>> from cleaner_rl.trajectory import TextSpan, Trajectory, read_text
        >>> def turn(code, status, output):
        ...     said = read_text(f"I add.\\n```python\\n{code}\\n```", call_format("fenced"), ToolSet(python_tool()))
        ...     return replace(said, results=(ToolResult(status, output),), observation=TextSpan(output))
        >>> failed, worked = turn("print(1 + y)", Status.ERROR, "NameError"), turn("print(1 + 1)", Status.OK, "2")
        >>> purified = hindsight(Trajectory(TextSpan("1 + 1?"), (failed, worked)), RepairConfig())
        >>> [(each.code.strip(), each.edit.kind.value) for each in purified.trajectory.turns]
        [('print(1 + 1)', 'graft')]
        >>> purified.left_alone
        ()
    """
    if any(span.is_rescored for turn in trajectory.turns for span in turn.spans()):
        raise ValueError(
            "this trajectory was re-scored already; take `without_rescoring` of it, then re-score once, last"
        )
    if not trajectory.usable:
        return Purified(trajectory, left_alone(trajectory.turns, Reason.UNUSABLE))
    turns: list[Turn[S]] = []
    left: list[LeftAlone] = []
    position = 0
    while position < len(trajectory.turns):
        chain = _chain(trajectory.turns, position, borders)
        if not chain[0].failed:  # it is alone
            turns += chain
            position += 1
            continue
        repaired, reason = _repaired(chain, position, config, refusal)
        left += left_alone(repaired, reason, len(turns))
        turns += repaired
        position += len(chain)
    return Purified(replace(trajectory, turns=tuple(_note_stale(turns))), tuple(left))


def left_alone(turns: Sequence[Turn[S]], reason: StrEnum, first: int = 0) -> tuple[LeftAlone, ...]:
    """Return each failed turn as left alone for this reason; `first` is the index of the first of these turns."""
    return tuple(LeftAlone(index, reason) for index, turn in enumerate(turns, first) if turn.failed)


def purify(trajectory: Trajectory[S], config: PurifyConfig, mode: RepairMode) -> Trajectory[S]:
    """Return the trajectory to train on, once it is graded, by the repair mode and its scope (`PurifyConfig.scope_of`).

    With the scope `successful`, hindsight's default, a rollout that did not solve its task is not repaired. After SAAR
    it is cut after its first failure, because what follows was sampled after a correction that is not to be trained on.

    Examples:
        >>> from cleaner_rl.purify import PurifyConfig, purify
        >>> from cleaner_rl.trajectory import RepairMode, TextSpan, Trajectory
        >>> unsolved = Trajectory(TextSpan("1 + 1?"), success=False)
        >>> purify(unsolved, PurifyConfig(), RepairMode.HINDSIGHT) == unsolved
        True
    """
    if config.scope_of(mode) is PurifyScope.SUCCESSFUL:
        if trajectory.success is None:
            raise ValueError("scope='successful' needs graded trajectories; set `success` first, or scope='all'")
        if not trajectory.success:
            return cut_before_repairs(trajectory)
    return trajectory if mode is RepairMode.SAAR else hindsight(trajectory, config.repair).trajectory


def _chain(turns: tuple[Turn[S], ...], start: int, borders: Collection[int]) -> tuple[Turn[S], ...]:
    """Return one turn that did not fail; or failures in a row, with the turn after them if that one works."""
    end = start
    while end < len(turns) and turns[end].failed:
        end += 1
        if end - 1 in borders:
            return turns[start:end]
    if end == start or (end < len(turns) and turns[end].verified):
        end += 1
    return turns[start:end]


def _repaired(
    chain: tuple[Turn[S], ...], start: int, config: RepairConfig, refusal: Refusal | None
) -> tuple[tuple[Turn[S], ...], StrEnum]:
    """Return the chain with as many of its last failures repaired as can be, and why the others stay.

    `start` is the position of its first turn in the trajectory.
    """
    correction = chain[-1]
    if not correction.verified:
        return chain, Reason.UNCORRECTED
    last = first = len(chain) - 1
    failures = range(start, start + last)
    reason: StrEnum = Reason.PARTIAL
    while first and covers(correction, chain[first - 1], rolled_back=False):
        refused = None if refusal is None else refusal(failures, failures[first - 1])
        if refused is not None:
            reason = refused
            break
        first -= 1
    if first == last:
        return chain, reason
    turn = next(splices(RepairMode.HINDSIGHT, chain[first:], config))
    if config.refuse_stale and turn.edit is not None and turn.edit.stale:
        return chain, Reason.STALE
    return (*chain[:first], turn), reason


def _note_stale(turns: Sequence[Turn[S]]) -> list[Turn[S]]:
    """Add to each edit the words of *later* turns that mention its errors: these turns were sampled after them."""
    later = later_mentions([turn.reasoning.text for turn in turns], [_taken_away(turn.edit) for turn in turns])
    noted = []
    for turn, words in zip(turns, later, strict=True):
        edit = turn.edit
        if edit is not None and words:
            turn = replace(turn, edit=replace(edit, stale=tuple(dict.fromkeys((*edit.stale, *words)))))
        noted.append(turn)
    return noted


def _taken_away(edit: Edit[S] | None) -> list[ToolResult]:
    """Return the failures that an edit in hindsight stands for."""
    if edit is None or edit.mode is not RepairMode.HINDSIGHT:
        return []
    return [result for turn in edit.original for result in turn.results if result.failed]
