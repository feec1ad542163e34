"""The tools of the server: what each takes, does and answers.

Every answer has a text for the model (what the program printed, then a line with the status) and the same as
structured content, with a schema. A call waits for its turn as it would at the HTTP service: callers take turns, and
the quotas of their tokens hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Annotated, Any, Final, Generic, NamedTuple, Self, TypeVar

import msgspec
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations

from cleaner_sandbox.client import RemoteSession, RequestRefusedError, SandboxClient, SessionBusyError
from cleaner_sandbox.isolation.tiers import TierError
from cleaner_sandbox.mcp.sessions import Handles, UnusableCallError
from cleaner_sandbox.node.node import Node
from cleaner_sandbox.node.sessions import Session
from cleaner_sandbox.protocol.requests import (
    Cell,
    CellOutcome,
    Language,
    RollbackDeclinedError,
    RunOutcome,
    RunRequest,
    SessionLostError,
    SessionRequest,
)
from cleaner_sandbox.protocol.results import RunException, RunResult, RunStatus, shorten
from cleaner_sandbox.protocol.wire import EXPLANATIONS, encode
from cleaner_sandbox.service.fair_queue import PendingRequest, Queue
from cleaner_sandbox.service.http import HttpError
from cleaner_sandbox.service.tenants import Tenant

T = TypeVar("T")
A = TypeVar("A", bound=msgspec.Struct)

KEEP_CHARS: Final = 8_192
"""Of stdout and of stderr: as many as the text for the model shows."""
CALLS_ELSEWHERE: Final = 256
"""Calls at the same time where the nodes are elsewhere: these have queues of their own."""
MOST_WAITING: Final = 4_096
MOST_HELD: Final = 268_435_456
"""Bytes of calls that wait."""

INSTRUCTIONS: Final = """\
Run Python and bash in an isolated sandbox without network access. `python` and `bash` run one program in a fresh \
environment. To keep variables and files from call to call, open a session with `open_session` and run code in it with \
`run_in_session`. Code that fails in a session leaves no trace, and every call that succeeds makes a checkpoint: \
`rollback` restores variables, files and processes of an earlier one."""

Code = Annotated[str, msgspec.Meta(description="The program.")]
Stdin = Annotated[str | None, msgspec.Meta(description="Standard input. Without it, reading finds the end of file.")]
SessionName = Annotated[str, msgspec.Meta(description="The session, as `open_session` returned it.")]
Checkpoint = Annotated[int, msgspec.Meta(description="Number of the state that the session is at now.")]


class RunArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What `python` and `bash` take."""

    code: Code
    stdin: Stdin = None


class OpenArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What `open_session` takes."""

    language: Annotated[Language, msgspec.Meta(description="Language of all code in the session.")] = Language.PYTHON


class CellArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What `run_in_session` takes."""

    session: SessionName
    code: Code
    stdin: Stdin = None


class SessionArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What `checkpoint` and `close_session` take."""

    session: SessionName


class RollbackArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What `rollback` takes."""

    session: SessionName
    checkpoint: Annotated[
        int | None,
        msgspec.Meta(
            description="The state to go back to: 0 is the empty session. Without it, undo the last call that was kept."
        ),
    ] = None


class RunReport(msgspec.Struct, kw_only=True):
    """How a program ended."""

    status: Annotated[RunStatus, msgspec.Meta(description="`ok` if and only if the program exited with code 0.")]
    output: str
    stderr: str
    exception: RunException | None
    explanation: Annotated[str, msgspec.Meta(description="What the output can't say: which limit was hit, what broke.")]
    output_length: Annotated[int | None, msgspec.Meta(description="Characters printed, if `output` holds fewer.")]
    exit_code: int | None
    signal: int | None
    cpu_seconds: float
    wall_seconds: float

    @classmethod
    def of(cls, run: RunOutcome, **more: Any) -> Self:
        """Return the report of a run."""
        result = run.result
        return cls(
            status=result.status,
            output=result.output,
            stderr=result.stderr,
            exception=result.exception,
            explanation=result.explanation,
            output_length=result.output_length,
            exit_code=run.exit_code,
            signal=run.signal,
            cpu_seconds=round(run.cpu_seconds, 3),
            wall_seconds=round(run.wall_seconds, 3),
            **more,
        )


class CellReport(RunReport, kw_only=True):
    """How code in a session ended, and where the session is now."""

    session: str
    committed: Annotated[bool, msgspec.Meta(description="Whether the session keeps what the code did.")]
    checkpoint: Checkpoint


class SessionReport(msgspec.Struct):
    """Where a session is."""

    session: str
    checkpoint: Checkpoint


class ClosedReport(msgspec.Struct):
    """Which session was closed."""

    session: str


class Does(NamedTuple, Generic[A]):
    """One tool."""

    listed: Tool
    takes: type[A]
    call: Callable[[A, Tenant], Awaitable[CallToolResult]]


class SandboxTools:
    """Answers calls of the tools, with a node here or with nodes elsewhere; closes all sessions at its end."""

    def __init__(self, sandbox: Node | SandboxClient, tenants: int = 1) -> None:
        self._sandbox, self._tenants = sandbox, tenants
        slots = sandbox.config.slots if isinstance(sandbox, Node) else CALLS_ELSEWHERE
        self.queue = Queue(slots, MOST_WAITING, MOST_HELD, tenants)
        self._handles = Handles()
        tools: list[Does[Any]] = [
            _tool(
                "python",
                "Run a Python program in a fresh interpreter. numpy and sympy can be imported. The value of the last "
                "line is printed if it is an expression. Nothing is kept for the next call.",
                RunArguments,
                RunReport,
                self._python,
            ),
            _tool(
                "bash",
                "Run a bash program in an empty folder, with the usual command line tools. Nothing is kept for the "
                "next call.",
                RunArguments,
                RunReport,
                self._bash,
            ),
            _tool(
                "open_session",
                "Open a session of Python or bash, which keeps variables, files and the current directory from call "
                "to call. It begins at checkpoint 0. It is closed when it was not used for long.",
                OpenArguments,
                SessionReport,
                self._open,
            ),
            _tool(
                "run_in_session",
                "Run code in a session. If it succeeds, the session keeps what it did, and the result names the new "
                "checkpoint. If it fails, the session is as it was before.",
                CellArguments,
                CellReport,
                self._cell,
            ),
            _tool(
                "checkpoint",
                "Return the number of the state that a session is at now, for a later `rollback`.",
                SessionArguments,
                SessionReport,
                self._checkpoint,
            ),
            _tool(
                "rollback",
                "Restore an earlier state of a session: its variables, files and processes. Later states are gone.",
                RollbackArguments,
                SessionReport,
                self._rollback,
                destructive=True,
            ),
            _tool(
                "close_session",
                "Close a session that is not needed any more.",
                SessionArguments,
                ClosedReport,
                self._close,
                destructive=True,
            ),
        ]
        self._tools = {tool.listed.name: tool for tool in tools}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.queue.drain()
        await self._handles.close_all()

    @property
    def listed(self) -> list[Tool]:
        """Return what the protocol says of each tool."""
        return [tool.listed for tool in self._tools.values()]

    async def call(self, name: str, arguments: Mapping[str, Any], tenant: Tenant) -> CallToolResult:
        """Answer a call. If something is wrong with it, the answer says so to the model, which can correct it."""
        tool = self._tools.get(name)
        if tool is None:
            return _problem(f"There is no tool {name!r}. Available: {', '.join(self._tools)}.")
        try:
            return await tool.call(msgspec.convert(arguments, tool.takes), tenant)
        except msgspec.ValidationError as error:
            return _problem(
                f"The arguments of `{name}` can't be used: {_sentence(error)} Correct them, then call again."
            )
        except (RequestRefusedError, UnusableCallError) as error:
            return _problem(str(error))

    async def _python(self, asked: RunArguments, tenant: Tenant) -> CallToolResult:
        return await self._run(asked, Language.PYTHON, tenant)

    async def _bash(self, asked: RunArguments, tenant: Tenant) -> CallToolResult:
        return await self._run(asked, Language.BASH, tenant)

    async def _run(self, asked: RunArguments, language: Language, tenant: Tenant) -> CallToolResult:
        request = RunRequest(
            asked.code,
            stdin=asked.stdin,
            echo_last_expression=language is Language.PYTHON,
            keep_chars=KEEP_CHARS,
            language=language,
        )
        run = await self._in_turn(tenant, _size(asked), lambda: self._sandbox.run(request))
        return _answer(RunReport.of(run), _words(run), is_error=run.result.status is not RunStatus.OK)

    async def _open(self, asked: OpenArguments, tenant: Tenant) -> CallToolResult:
        request = SessionRequest(keep_chars=KEEP_CHARS, language=asked.language)
        try:
            self.queue.check(tenant, 0, 0)
            with tenant.passing_session():
                session = await self._opened(request, tenant)
                name = await self._handles.add(session, tenant)
        except (TierError, ValueError) as error:
            message = f"No session can be opened here: {_sentence(error)} `python` runs without one."
            raise UnusableCallError(message) from None
        except (HttpError, SessionLostError) as error:
            message = f"No session can be opened now: {_sentence(error)} Close one with `close_session`, or try later."
            raise UnusableCallError(message) from None
        words = f"Opened the {asked.language.value} session {name}. It is at checkpoint {session.checkpoint}."
        return _answer(SessionReport(name, session.checkpoint), words)

    async def _opened(self, request: SessionRequest, tenant: Tenant) -> Session | RemoteSession:
        if isinstance(self._sandbox, Node):
            return await self._sandbox.open_session(request, tenant.name, self._tenants)
        return await self._sandbox.open_session(request)

    async def _cell(self, asked: CellArguments, tenant: Tenant) -> CallToolResult:
        with self._handles.use(asked.session, tenant) as session:
            cell = Cell(asked.code, stdin=asked.stdin)
            outcome: CellOutcome = await self._in_turn(tenant, _size(asked), lambda: session.run(cell))
        report = CellReport.of(
            outcome.run, session=asked.session, committed=outcome.committed, checkpoint=outcome.checkpoint
        )
        if outcome.unrepeatable:
            where = "the session is lost, because its earlier code did not show the same when it was run again"
        elif outcome.committed:
            where = f"the session is at checkpoint {outcome.checkpoint}"
        else:
            where = f"nothing was kept: the session is still at checkpoint {outcome.checkpoint}"
        return _answer(report, _words(outcome.run, where), is_error=outcome.result.status is not RunStatus.OK)

    async def _checkpoint(self, asked: SessionArguments, tenant: Tenant) -> CallToolResult:
        with self._handles.use(asked.session, tenant) as session:
            return _answer(
                SessionReport(asked.session, session.checkpoint), f"The session is at checkpoint {session.checkpoint}."
            )

    async def _rollback(self, asked: RollbackArguments, tenant: Tenant) -> CallToolResult:
        with self._handles.use(asked.session, tenant) as session:
            try:
                now: int = await self._in_turn(tenant, 0, lambda: session.rollback(asked.checkpoint))
            except RollbackDeclinedError as error:
                message = f"The session can't go back to that state: {_sentence(error)} `checkpoint` says where it is."
                raise UnusableCallError(message) from None
        return _answer(SessionReport(asked.session, now), f"The session is back at checkpoint {now}.")

    async def _close(self, asked: SessionArguments, tenant: Tenant) -> CallToolResult:
        await self._handles.close(asked.session, tenant)
        return _answer(ClosedReport(asked.session), f"Closed the session {asked.session}.")

    async def _in_turn(self, tenant: Tenant, size: int, work: Callable[[], Awaitable[T]]) -> T:
        """Do something when it is the tenant's turn."""

        async def execute(_: int) -> T | Exception:
            try:
                return await work()
            except (RequestRefusedError, RollbackDeclinedError, SessionLostError, SessionBusyError) as error:
                return error

        try:
            with PendingRequest(
                self.queue,
                tenant,
                _never,
                1,
                size,
                execute,
                lambda _, reason: UnusableCallError(f"{EXPLANATIONS[reason]} Try again later."),
                lambda *_: None,
                size_of=lambda _: 0,
            ) as pending:
                ((_, ended),) = await pending.next()
        except HttpError as error:
            raise UnusableCallError(f"{error.message} Wait for results of earlier calls, then call again.") from None
        if isinstance(ended, SessionBusyError):
            raise UnusableCallError(f"{_sentence(ended)} Wait for its result, then call again.")
        if isinstance(ended, Exception):
            raise ended
        return ended


def _tool(
    name: str,
    description: str,
    takes: type[A],
    answers: type[msgspec.Struct],
    call: Callable[[A, Tenant], Awaitable[CallToolResult]],
    destructive: bool = False,
) -> Does[A]:
    hints = ToolAnnotations(read_only_hint=False, destructive_hint=destructive, open_world_hint=False)
    listed = Tool(
        name=name,
        description=description,
        input_schema=_schema(takes),
        output_schema=_schema(answers),
        annotations=hints,
    )
    return Does(listed, takes, call)


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """A type's JSON schema, with an object at its root, as the protocol wants it."""
    _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = parts.pop(kind.__name__)
    return {**root, "$defs": parts} if parts else root


def _words(run: RunOutcome, *more: str) -> str:
    """What the model reads of a run: what it printed and what went wrong, then how it ended."""
    ended = [run.result.status.value]
    if run.exit_code is not None:
        ended.append(f"exit code {run.exit_code}")
    if run.signal is not None:
        ended.append(f"signal {run.signal}")
    return f"{_shown(run.result) or '(no output)'}\n[{'; '.join((', '.join(ended), *more))}]"


def _size(asked: RunArguments | CellArguments) -> int:
    """Characters that a call holds while it waits."""
    return len(asked.code) + len(asked.stdin or "")


def _shown(result: RunResult) -> str:
    parts = [shorten(result.output, KEEP_CHARS, result.output_length), shorten(result.stderr, KEEP_CHARS)]
    if (raised := result.exception) is not None:
        parts.append(shorten(raised.traceback, KEEP_CHARS) or f"{raised.type}: {raised.message}")
    parts.append(result.explanation)
    return "\n".join(text for part in parts if (text := part.rstrip("\n")))


def _answer(report: msgspec.Struct, words: str, is_error: bool = False) -> CallToolResult:
    # A program can print what UTF-8 can't hold.
    content, (text,) = msgspec.json.decode(encode(report)), msgspec.json.decode(encode([words]))
    return CallToolResult(content=[TextContent(text=text)], structured_content=content, is_error=is_error)


def _problem(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=message)], is_error=True)


def _sentence(error: Exception) -> str:
    return f"{str(error).rstrip('.')}."


async def _never() -> None:
    """The caller that leaves: the protocol cancels a call itself."""
    await asyncio.get_running_loop().create_future()
