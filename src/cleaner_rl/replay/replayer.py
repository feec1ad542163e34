"""Replays the Python and bash of trajectories in the sandbox, for `cleaner purify` and `cleaner verify`.

It answers two questions. Does the history say what its results say? A turn's observation must hold the words of its
results, and a log's turns must be what its own text reads to. Then: do its calls, run again cell by cell, give those
results?

Our own stores are compared as they are: status, output, stderr, exception with line and traceback, explanation. A log
of another tool has only words, so both sides are put into its words first: what was printed, and of an exception its
type and message. `--text-match trimmed` also cuts the line breaks at the end of what was printed, on both sides, as
most such tools do. A log doesn't say whether its calls shared an interpreter. If the settings don't either, a log is
replayed with one interpreter per call, and if that gives something else, with one for all of them (a session).

Limits: a trajectory is not replayable if it calls other tools, if a result of it could not be judged, or if it needs a
session and the sandbox has none."""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, Self

from cleaner_rl.logs import OPAQUE, Reading, log_of, read_record, write_record
from cleaner_rl.purify import ExecuteCall, ReplayFaultError, ReplayVerdict, replay
from cleaner_rl.replay.settings import (
    NOT_REPLAYABLE,
    ReplayOutcome,
    ReplaySettings,
    TextMatch,
)
from cleaner_rl.rollout import TOOLS, ToolEnv, calls_of, tool_result
from cleaner_rl.tasks import ToolKind
from cleaner_rl.tools import CallKind, ExceptionInfo, PluginError, Status, ToolCall, ToolResult, feedback
from cleaner_rl.trajectory import Trajectory, without_hindsight
from cleaner_sandbox import (
    Cell,
    Commit,
    Language,
    Limits,
    RunRequest,
    SandboxUnavailableError,
    SessionLostError,
    SessionRequest,
    TierError,
    open_sandbox,
)

NO_SESSIONS = (
    "one interpreter per call gives something else, and one for all calls is a session, which needs tier 2: "
    "`cleaner doctor` says how to get it"
)
TAMPERED = "the text of turn {} is not what its calls and results say"


class _NoSessionsError(Exception):
    """The sandbox has no sessions."""


class _UnrepeatableError(Exception):
    """A session was lost because its cells, run again in the middle of a replay, did not show the same."""


class Replayer:
    """Replays trajectories in a sandbox. It is a context manager and holds the event loop that the sandbox runs in."""

    def __init__(self, settings: ReplaySettings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._opened = open_sandbox(settings.nodes, token=settings.token, slots=settings.slots, sessions=settings.slots)

    def __enter__(self) -> Self:
        try:
            self._sandbox: Any = self._runner.run(self._opened.__aenter__())
            if self._settings.nodes:
                self._runner.run(self._required())
        except (SandboxUnavailableError, OSError) as error:
            self._runner.close()
            raise ReplayFaultError(str(error)) from error
        return self

    async def _required(self) -> None:
        """Raise if nobody answers at the addresses, with what was opened closed."""
        try:
            await self._sandbox.require_answer()
        except SandboxUnavailableError:
            await self._opened.__aexit__(None, None, None)
            raise

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._opened.__aexit__(None, None, None))
        self._runner.close()

    def replay_all(self, trajectories: Sequence[Trajectory[Any]]) -> list[ReplayOutcome]:
        """Replay each trajectory. Raises `ReplayFaultError` if the sandbox broke."""

        async def together() -> list[ReplayOutcome]:
            free = asyncio.Semaphore(self._settings.slots)

            async def one(trajectory: Trajectory[Any]) -> ReplayOutcome:
                async with free:
                    return await self._replay(trajectory)

            return list(await asyncio.gather(*map(one, trajectories)))

        return self._runner.run(together())

    async def _replay(self, trajectory: Trajectory[Any]) -> ReplayOutcome:
        if (reason := unreplayable(trajectory)) is not None:
            return ReplayOutcome(NOT_REPLAYABLE, reason=reason)
        if (turn := self._tampered(trajectory)) is not None:
            return ReplayOutcome(ReplayVerdict.DIFFERENT, reason=TAMPERED.format(turn))
        of_log = bool(log_of(trajectory))
        stateful = self._settings.session
        if stateful is None:
            stateful = bool(trajectory.info.stateful)
        if of_log:
            trajectory = _in_words(trajectory, self._settings.text_match)
        elif (tool := _other_tool(trajectory)) is not None:
            found = await replay(trajectory, lambda: calls_of(tool, trajectory.key))
            return ReplayOutcome(found.verdict, found.difference)
        commit = Commit.ALWAYS if of_log else Commit.ON_SUCCESS
        kept = trajectory.info.limits
        limits = Limits(**kept) if kept is not None and not of_log else None
        try:
            language, told = _language(trajectory), trajectory.info.tool or {}
            begun = told.get("environment", ""), told.get("setup", "")
            found = await replay(trajectory, partial(self._fresh, stateful, commit, of_log, limits, language, begun))
            if of_log and self._settings.session is None and found.verdict is ReplayVerdict.DIFFERENT:
                # A log doesn't say whether its interpreter lived on from call to call.
                found = await replay(trajectory, partial(self._fresh, True, commit, of_log, limits, language))
        except _NoSessionsError:
            return ReplayOutcome(NOT_REPLAYABLE, reason=NO_SESSIONS)
        except _UnrepeatableError:
            return ReplayOutcome(ReplayVerdict.NONDETERMINISTIC)
        return ReplayOutcome(found.verdict, found.difference)

    def _tampered(self, trajectory: Trajectory[Any]) -> int | None:
        """Return the first turn whose text isn't what its calls and results say."""
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
        self,
        stateful: bool,
        commit: Commit,
        of_log: bool,
        limits: Limits | None,
        language: Language,
        begun: tuple[str, str] = ("", ""),
    ) -> AsyncIterator[ExecuteCall]:
        """Open a fresh environment for one replay; `begun` are the environment and the setup of its session."""
        echo = stateful if self._settings.echo is None else self._settings.echo
        session = None
        lost = False
        if stateful:
            try:
                environment, setup = begun
                request = SessionRequest(environment or None, limits, commit=commit, language=language)
                session = await self._sandbox.open_session(request)
                if setup and not (await session.run(Cell(setup))).committed:
                    raise ReplayFaultError("the task's setup failed")
            except TierError as error:
                if self._settings.session is None:
                    raise _NoSessionsError from error
                raise ReplayFaultError(f"{error}; --fresh does without") from error
            except (SessionLostError, RuntimeError, ValueError) as error:
                raise ReplayFaultError(f"no session could be opened: {error}; --fresh does without") from error

        async def execute(call: ToolCall) -> ToolResult:
            nonlocal lost
            if lost:
                raise _UnrepeatableError
            try:
                if session is None:
                    outcome = await self._sandbox.run(
                        RunRequest(
                            call.code,
                            limits=limits,
                            echo_last_expression=echo,
                            language=language,
                            keep_displays=False,
                        )
                    )
                else:
                    outcome = await session.run(Cell(call.code, echo_last_expression=echo, keep_displays=False))
                    lost = outcome.unrepeatable
            except SessionLostError as error:
                return ToolResult(Status.FAULT, explanation=str(error))
            result = tool_result(outcome.result)
            return _worded(result, self._settings.text_match) if of_log and not result.faulty else result

        try:
            yield execute
        finally:
            if session is not None:
                await session.close()


def unreplayable(trajectory: Trajectory[Any]) -> str | None:
    """Return why a trajectory can't be replayed in any sandbox; None if one may do."""
    log = log_of(trajectory)
    if OPAQUE in log:
        return "it was not read as turns"
    if not trajectory.usable:
        return "it ended in a fault, or was dropped"
    for turn in trajectory.turns:
        if turn.calls and not turn.results:
            return "nobody knows how some of its calls ended"
        for call in turn.calls:
            if log and call.problem is None and call.kind is not CallKind.PYTHON:
                return f"not all of its calls are Python ({call.kind.value})"
    return None


@cache
def replayer_of(settings: ReplaySettings) -> Replayer:
    """Return this process' replayer, started when it is first needed and kept until the process ends."""
    made = Replayer(settings).__enter__()
    atexit.register(made.__exit__)
    return made


def _language(trajectory: Trajectory[Any]) -> Language:
    """Return what runs the calls of a trajectory whose tool is the sandbox."""
    kept = trajectory.info.tool
    return Language.BASH if kept is not None and kept["kind"] == ToolKind.SHELL else Language.PYTHON


def _other_tool(trajectory: Trajectory[Any]) -> ToolEnv | None:
    """Return the tool of a rollout whose calls don't run in the sandbox; None if they do."""
    kept = trajectory.info.tool
    if kept is None or kept["kind"] in set(ToolKind):
        return None
    try:
        return TOOLS.load(kept["kind"], **kept["options"])
    except PluginError as error:
        raise ReplayFaultError(str(error)) from error


def _differs_from_its_log(trajectory: Trajectory[Any], reading: Reading) -> int | None:
    """Return the first turn that differs if the trajectory's own record is written and read again."""
    raw = without_hindsight(trajectory)
    again = read_record(write_record(raw), log_of(raw)["format"], raw.key.rollout, reading)
    if again.turns == raw.turns:
        return None
    pairs = enumerate(zip(raw.turns, again.turns, strict=False))
    return next((index for index, (one, other) in pairs if one != other), len(again.turns))


def _holds(action: str, call: ToolCall) -> bool:
    """Return whether a call's text has its program, as it is or in JSON. A call that can't be read may say anything."""
    text = action[call.start : call.end]
    if call.problem is not None or call.code.strip() in text:
        return True
    try:
        value = json.JSONDecoder().raw_decode(text, text.find("{"))[0]
    except (ValueError, RecursionError):
        return False
    arguments = value.get("arguments") if isinstance(value, dict) else None
    return isinstance(arguments, dict) and call.code in arguments.values()


def _in_words(trajectory: Trajectory[Any], text_match: TextMatch) -> Trajectory[Any]:
    turns = []
    for turn in trajectory.turns:
        results = [
            call.refusal or _worded(result, text_match) for call, result in zip(turn.calls, turn.results, strict=False)
        ]
        turns.append(replace(turn, results=tuple(results)))
    return replace(trajectory, turns=tuple(turns))


def _worded(result: ToolResult, text_match: TextMatch) -> ToolResult:
    """Return what the words of a log can say about a result."""
    printed = [result.output, result.stderr]
    if text_match is TextMatch.TRIMMED:
        printed = [text.rstrip("\n") for text in printed]
    exception = result.exception
    if exception is not None:
        # A traceback names an exception with its module, and sets long messages as they are.
        name = exception.type.rpartition(".")[2]
        exception = ExceptionInfo(
            name, exception.message.strip() if text_match is TextMatch.TRIMMED else exception.message
        )
    return ToolResult(result.status, "\n".join(text for text in printed if text), exception=exception)
