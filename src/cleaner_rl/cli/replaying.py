"""Replays trajectories' Python in the sandbox, for `cleaner purify --verify` and `cleaner verify`.

Two questions. Does the history say what its results say? A turn's observation must hold the words of its results; a
log's turns must be what its own text reads to. Then: do its calls, run again cell by cell, give those results?

Our own stores are compared as they are: status, output, stderr, exception with line and traceback, explanation. A log
of another tool has only words, so both sides are put into its words first: what was printed, and of an exception its
type and message. `--words trimmed` also cuts the line breaks at the end of what was printed, on both sides, as most
such tools do. Nor does it say whether its calls shared an interpreter: where nobody tells, a log is replayed with one a
call, and if that gives something else, with one for all of them (a session).

Limits: a trajectory with calls of other tools, or with results that nobody could tell, can't be replayed, and is
called so; so is one that needs a session, or may, where the sandbox has none."""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, Self

from cleaner_rl.cli.answering import NoSandboxError, must_answer
from cleaner_rl.cli.replay_settings import Replaying, Words
from cleaner_rl.purify import Reason, ReplayFaultError, ReplayVerdict, replay
from cleaner_rl.purify.hindsight import left_of
from cleaner_rl.purify.logs.cleaning import Cleaned
from cleaner_rl.purify.logs.formats import Reading
from cleaner_rl.purify.logs.formats.base import log_of
from cleaner_rl.purify.logs.records import OPAQUE, read_record, write_record
from cleaner_rl.purify.logs.summary import Summary
from cleaner_rl.purify.logs.work import Check
from cleaner_rl.purify.replay import Difference, ExecuteCall, without_hindsight
from cleaner_rl.rollout import TOOLS, Toolbox
from cleaner_rl.rollout.finish import calls_of
from cleaner_rl.sandbox import (
    Cell,
    Commit,
    Limits,
    Node,
    NodeConfig,
    RunRequest,
    SessionLostError,
    SessionRequest,
    TierError,
    ZygoteError,
)
from cleaner_rl.sandbox.client import SandboxClient
from cleaner_rl.tasks import ToolKind
from cleaner_rl.tools import ExceptionInfo, PluginError, Status, ToolCall, ToolResult, feedback
from cleaner_rl.trajectory import Trajectory

NOT_REPLAYABLE = "not_replayable"
UNDONE = "undone"
NO_SESSIONS = (
    "one interpreter a call gives something else, and one for all calls is a session, which needs tier 2: "
    "`cleaner doctor` says how to get it"
)
TAMPERED = "the text of turn {} is not what its calls and results say"


class Found(NamedTuple):
    """What a replay found."""

    verdict: str
    difference: Difference | None = None
    reason: str = ""


class _NoSessionsError(Exception):
    """This sandbox has none."""


class _UnrepeatableError(Exception):
    """A session was lost because its cells, run again in the middle of a replay, did not show the same."""


class Replayer:
    """A sandbox, and the event loop that it lives in; a context manager."""

    def __init__(self, settings: Replaying) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        sessions = max(NodeConfig().sessions, settings.slots)
        self._sandbox: Any = Node(NodeConfig(slots=settings.slots, sessions=sessions))
        if settings.nodes:
            self._sandbox = SandboxClient(settings.nodes, token=settings.token)

    def __enter__(self) -> Self:
        try:
            self._runner.run(self._sandbox.__aenter__())
            if self._settings.nodes:
                self._runner.run(must_answer(self._sandbox, self._settings.nodes))
        except (TierError, ZygoteError, OSError) as error:
            self._runner.close()
            raise ReplayFaultError(
                f"the sandbox did not start: {error}; `cleaner doctor` says why, --sandbox names one elsewhere"
            ) from error
        except NoSandboxError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._sandbox.__aexit__(None, None, None))
        self._runner.close()

    def replay_all(self, trajectories: Sequence[Trajectory[Any]]) -> list[Found]:
        """What each of them gives. Raises `ReplayFaultError` if the sandbox broke."""

        async def together() -> list[Found]:
            free = asyncio.Semaphore(self._settings.slots)

            async def one(trajectory: Trajectory[Any]) -> Found:
                async with free:
                    return await self._replay(trajectory)

            return list(await asyncio.gather(*map(one, trajectories)))

        return self._runner.run(together())

    async def _replay(self, trajectory: Trajectory[Any]) -> Found:
        if (reason := self._unreplayable(trajectory)) is not None:
            return Found(NOT_REPLAYABLE, reason=reason)
        if (turn := self._tampered(trajectory)) is not None:
            return Found(ReplayVerdict.DIFFERENT, reason=TAMPERED.format(turn))
        of_log = bool(log_of(trajectory))
        stateful = self._settings.session
        if stateful is None:
            stateful = bool(trajectory.extra.get("stateful", False))
        if of_log:
            trajectory = _in_words(trajectory, self._settings.words)
        elif (tool := _other_tool(trajectory)) is not None:
            found = await replay(trajectory, lambda: calls_of(tool, trajectory.key))
            return Found(found.verdict, found.difference)
        commit = Commit.ALWAYS if of_log else Commit.ON_SUCCESS
        kept: Any = trajectory.extra.get("limits")
        limits = Limits(**kept) if isinstance(kept, dict) and not of_log else None
        try:
            found = await replay(trajectory, partial(self._fresh, stateful, commit, of_log, limits))
            if of_log and self._settings.session is None and found.verdict is ReplayVerdict.DIFFERENT:
                # A log doesn't say whether its interpreter lived on from call to call.
                found = await replay(trajectory, partial(self._fresh, True, commit, of_log, limits))
        except _NoSessionsError:
            return Found(NOT_REPLAYABLE, reason=NO_SESSIONS)
        except _UnrepeatableError:
            return Found(ReplayVerdict.NONDETERMINISTIC)
        return Found(found.verdict, found.difference)

    def _unreplayable(self, trajectory: Trajectory[Any]) -> str | None:
        log = log_of(trajectory)
        if OPAQUE in log:
            return "it was not read as turns"
        if not trajectory.usable:
            return "it ended in a fault, or was dropped"
        for turn in trajectory.turns:
            if turn.calls and not turn.results:
                return "nobody knows how some of its calls ended"
            for call in turn.calls:
                if log and call.problem is None and not self._settings.reading.tools.runs_python(call.name):
                    return f"its tool '{call.name}' is not Python"
        return None

    def _tampered(self, trajectory: Trajectory[Any]) -> int | None:
        """The first turn whose text isn't what its calls and results say."""
        log = log_of(trajectory)
        if log:
            return _differs_from_its_log(trajectory, self._settings.reading)
        for index, turn in enumerate(trajectory.turns):
            shown = "" if turn.observation is None else turn.observation.text
            if turn.observation is not None and any(feedback(each).strip() not in shown for each in turn.results):
                return index
            if turn.action is not None and not all(_holds(turn.action.text, call) for call in turn.calls):
                return index
        return None

    @asynccontextmanager
    async def _fresh(
        self, stateful: bool, commit: Commit, of_log: bool, limits: Limits | None
    ) -> AsyncIterator[ExecuteCall]:
        """A fresh environment for one replay."""
        echo = stateful if self._settings.echo is None else self._settings.echo
        session = None
        lost = False
        if stateful:
            try:
                session = await self._sandbox.open_session(SessionRequest(commit=commit, limits=limits))
            except TierError as error:
                if self._settings.session is None:
                    raise _NoSessionsError from error
                raise ReplayFaultError(f"{error}; --fresh does without") from error
            except (SessionLostError, RuntimeError) as error:
                raise ReplayFaultError(f"no session could be opened: {error}; --fresh does without") from error

        async def execute(call: ToolCall) -> ToolResult:
            nonlocal lost
            if lost:
                raise _UnrepeatableError
            try:
                if session is None:
                    outcome = await self._sandbox.run(RunRequest(call.code, limits=limits, echo_last_expression=echo))
                else:
                    outcome = await session.run(Cell(call.code, echo_last_expression=echo))
                    lost = outcome.unrepeatable
            except SessionLostError as error:
                return ToolResult(Status.FAULT, explanation=str(error))
            result: ToolResult = outcome.result
            return _worded(result, self._settings.words) if of_log and not result.faulty else result

        try:
            yield execute
        finally:
            if session is not None:
                await session.close()


@cache
def replayer(settings: Replaying) -> Replayer:
    """The process' own, started when it is first needed and kept from unit to unit."""
    made = Replayer(settings).__enter__()
    atexit.register(made.__exit__)
    return made


def checker(settings: Replaying, summary: Summary) -> Check:
    """For `run_unit`: keep what replays to the same, undo edits that don't, drop what doesn't even raw; count each.

    What can't be replayed is kept; so is what is nondeterministic. `extra["replay"]` says which it is.
    """

    def check(cleaned: Sequence[Cleaned[Any]]) -> list[Cleaned[Any] | None]:
        mine = replayer(settings)
        found = mine.replay_all([each.trajectory for each in cleaned])
        wrong = [index for index, each in enumerate(found) if each.verdict == ReplayVerdict.DIFFERENT]
        raw = {index: without_hindsight(cleaned[index].trajectory) for index in wrong}
        again = dict(zip(wrong, mine.replay_all([raw[index] for index in wrong]), strict=True))
        kept: list[Cleaned[Any] | None] = []
        for index, (each, first) in enumerate(zip(cleaned, found, strict=True)):
            done, verdict = each, first.verdict
            if index in again and each.trajectory.edits and again[index].verdict == ReplayVerdict.SAME:
                done, verdict = Cleaned(raw[index], left_of(raw[index].turns, Reason.UNDONE)), UNDONE
            summary.replayed[verdict] += 1
            if verdict == NOT_REPLAYABLE:
                summary.not_replayable[first.reason] += 1
            marked = replace(done.trajectory, extra={**done.trajectory.extra, "replay": str(verdict)})
            kept.append(None if verdict == ReplayVerdict.DIFFERENT else replace(done, trajectory=marked))
        return kept

    return check


def _other_tool(trajectory: Trajectory[Any]) -> Toolbox | None:
    """The tool of a rollout whose calls aren't Python; None if they are."""
    kept: Any = trajectory.extra.get("tool")
    if not isinstance(kept, dict) or kept["kind"] in set(ToolKind):
        return None
    try:
        return TOOLS.load(kept["kind"], **kept["options"])
    except PluginError as error:
        raise ReplayFaultError(str(error)) from error


def _differs_from_its_log(trajectory: Trajectory[Any], reading: Reading) -> int | None:
    """The first turn of the raw trajectory that its own record, written and read again, tells otherwise."""
    raw = without_hindsight(trajectory)
    again = read_record(write_record(raw), log_of(raw)["format"], raw.key.rollout, reading)
    if again.turns == raw.turns:
        return None
    pairs = enumerate(zip(raw.turns, again.turns, strict=False))
    return next((index for index, (one, other) in pairs if one != other), len(again.turns))


def _holds(action: str, call: ToolCall) -> bool:
    """Whether a call's text has its program: as it is, or spelt in JSON. A call that can't be read may say anything."""
    text = action[call.start : call.end]
    if call.problem is not None or call.code.strip() in text:
        return True
    try:
        value = json.JSONDecoder().raw_decode(text, text.find("{"))[0]
    except ValueError:
        return False
    arguments = value.get("arguments") if isinstance(value, dict) else None
    return isinstance(arguments, dict) and call.code in arguments.values()


def _in_words(trajectory: Trajectory[Any], words: Words) -> Trajectory[Any]:
    turns = []
    for turn in trajectory.turns:
        results = [
            call.refusal or _worded(result, words) for call, result in zip(turn.calls, turn.results, strict=False)
        ]
        turns.append(replace(turn, results=tuple(results)))
    return replace(trajectory, turns=tuple(turns))


def _worded(result: ToolResult, words: Words) -> ToolResult:
    """All that a log's words can tell of a result."""
    printed = [result.output, result.stderr]
    if words is Words.TRIMMED:
        printed = [text.rstrip("\n") for text in printed]
    exception = result.exception
    if exception is not None:
        # A traceback names an exception with its module, and sets long messages as they are.
        name = exception.type.rpartition(".")[2]
        exception = ExceptionInfo(name, exception.message.strip() if words is Words.TRIMMED else exception.message)
    return ToolResult(result.status, "\n".join(text for text in printed if text), exception=exception)
