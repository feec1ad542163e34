"""SandboxFusion's endpoints, so that its users (verl's code reward, Open-AgentRL) change one URL.

What differs from SandboxFusion is written in docs/sandbox-http.md; the main points: only Python and bash run,
`run_timeout` counts CPU time, and only a fault is `SandboxError`. A full queue is `SandboxError` too rather than 429,
because published clients treat an HTTP error as final.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from cleaner_sandbox.environments import choose
from cleaner_sandbox.isolation.tiers import TierError
from cleaner_sandbox.protocol.requests import Cell, Commit, Language, SessionLostError, SessionRequest
from cleaner_sandbox.protocol.results import RunStatus
from cleaner_sandbox.protocol.wire import BROKEN, EXPLANATIONS, LimitsAsked, Outcome, RunCall, encode
from cleaner_sandbox.service.app import App, Route
from cleaner_sandbox.service.code_judge import error_text
from cleaner_sandbox.service.fair_queue import UNREAD_BYTES, PendingRequest
from cleaner_sandbox.service.http import Exchange, HttpError, encode_in_steps
from cleaner_sandbox.service.runs import Answer, Runs, encoded
from cleaner_sandbox.service.tenants import Tenant

WALL_FACTOR = 3.0
"""Their one time limit becomes our CPU limit; the wall cap, for programs that sleep, lies this much above."""

LANGUAGES: Final = tuple(Language)
MOST_CELLS: Final = 1_024
"""Of one request."""

TOO_MUCH = f"The cells' results took more than {UNREAD_BYTES} bytes together, and the rest of them did not run."
UNREPEATABLE = "The state before the failed cell had to be made again, and its cells did not show the same."

JSON_TYPE = "application/json"

MOST_NESTED = 200
"""Levels of a display's JSON; Python's decoder takes about a thousand in all."""
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(r"[\[\]{}]")
_LONG_NUMBER = re.compile(r"[0-9]{4000}")
FusionStatus = Literal["Success", "Failed", "SandboxError"]
CommandStatus = Literal["Finished", "Error", "TimeLimitExceeded"]


class RunCode(msgspec.Struct):
    """A program to run. Unknown fields are ignored."""

    code: str
    language: str
    compile_timeout: float = 10
    run_timeout: float = 10
    memory_limit_MB: int = -1  # noqa: N815  # the field's name on the wire
    stdin: str | None = None
    files: dict[str, bytes | None] = {}
    fetch_files: list[str] = []


class CommandResult(msgspec.Struct):
    """How a process ended."""

    status: CommandStatus
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunCodeResult(msgspec.Struct, kw_only=True):
    """How the program fared."""

    status: FusionStatus
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    executor_pod_name: str | None = None
    files: Mapping[str, bytes] = {}


class RunJupyter(msgspec.Struct):
    """Cells to run one after the other, in one interpreter."""

    cells: list[str]
    cell_timeout: float = 0
    total_timeout: float = 45
    memory_limit_MB: int = -1  # noqa: N815
    kernel: str = "python3"
    files: dict[str, bytes | None] = {}
    fetch_files: list[str] = []


class CellResult(msgspec.Struct):
    """How a cell fared. The text of its last expression's value is in `stdout`, too."""

    stdout: str
    stderr: str
    display: list[dict[str, Any]]
    error: list[dict[str, str | list[str]]]


class RunJupyterResult(msgspec.Struct, kw_only=True):
    """How the cells fared."""

    status: FusionStatus
    message: str = ""
    driver: CommandResult | None = None
    cells: list[CellResult] = []
    executor_pod_name: str | None = None
    files: Mapping[str, bytes] = {}


_code_decoder = msgspec.json.Decoder(RunCode)
_jupyter_decoder = msgspec.json.Decoder(RunJupyter)


def add_fusion(app: App) -> None:
    """Serve them."""
    fusion = Fusion(app)
    app.add(
        Route("GET", "/v1/ping", fusion.ping, "SandboxFusion: pong.", None, str, open=True),
        Route("POST", "/run_code", fusion.run_code, "SandboxFusion: run a program.", RunCode, RunCodeResult),
        Route("POST", "/run_jupyter", fusion.run_jupyter, "SandboxFusion: run cells.", RunJupyter, RunJupyterResult),
    )


class Fusion:
    """Turns their requests into calls, and outcomes into their results."""

    def __init__(self, app: App) -> None:
        self._app, self._runs = app, Runs(app)

    async def ping(self, exchange: Exchange, _: Tenant) -> None:
        """Say pong."""
        await exchange.reply(b'"pong"')

    async def run_code(self, exchange: Exchange, tenant: Tenant) -> None:
        """Run a program."""
        asked = await exchange.json(_code_decoder)
        if asked.language not in LANGUAGES:
            raise HttpError(422, "invalid_request", f"This node runs Python and bash only, not {asked.language}.")
        limits = LimitsAsked(cpu_seconds=asked.run_timeout, wall_seconds=asked.run_timeout * WALL_FACTOR)
        if asked.memory_limit_MB > 0:
            limits.memory_mb = asked.memory_limit_MB
        try:
            limits.over(self._app.config.node.limits)
        except ValueError as error:
            raise HttpError(400, "invalid_request", f"{error}.") from None
        call = RunCall(
            asked.code,
            stdin=asked.stdin or "",
            limits=limits,
            files={name: content or b"" for name, content in asked.files.items()},
            fetch=tuple(asked.fetch_files),
            keep_chars=self._app.config.node.limits.output_bytes,  # all of it: their clients compare what they get
            language=Language(asked.language),
            keep_displays=False,
        )
        try:
            await self._runs.answer_one(exchange, tenant, call, lambda _, outcome: _code_result(outcome))
        except HttpError as error:
            if error.status not in (429, 503):
                raise
            await exchange.reply(encode(RunCodeResult(status="SandboxError", message=error.message)))

    async def run_jupyter(self, exchange: Exchange, tenant: Tenant) -> None:
        """Run cells, in a session that ends with the request."""
        asked = await exchange.json(_jupyter_decoder)
        if asked.kernel != "python3":
            raise HttpError(422, "invalid_request", f"This node has the kernel python3 only, not {asked.kernel}.")
        if len(asked.cells) > MOST_CELLS:
            raise HttpError(413, "too_large", f"A request may have at most {MOST_CELLS} cells; use a session for more.")

        async def execute(_: int) -> Answer:
            try:
                with tenant.passing_session():
                    return await self._run_cells(asked, tenant)
            except HttpError as error:  # its token may not have another session
                return _broken(error.message)

        def unrun(_: int, reason: str) -> Answer:
            return _broken(EXPLANATIONS[reason])

        def finished(_: int, answer: Answer | None, waited: float) -> None:
            outcome = None if answer is None else answer.outcome
            code = "\n".join(asked.cells)
            self._app.observer.call_ended("/run_jupyter", tenant, "", code, outcome, waited, "")

        try:
            with PendingRequest(
                self._app.queue,
                tenant,
                exchange.gone,
                1,
                exchange.size,
                execute,
                unrun,
                finished,
                size_of=lambda answer: answer.size,
            ) as pending:
                ((_, answer),) = await pending.next()
                await exchange.reply(*answer.parts)
        except HttpError as error:
            if error.status not in (429, 503):
                raise
            await exchange.reply(*_broken(error.message).parts)

    async def _run_cells(self, asked: RunJupyter, tenant: Tenant) -> Answer:
        config = self._app.config.node
        defaults = config.limits
        files = {name: content or b"" for name, content in asked.files.items()}
        memory = asked.memory_limit_MB if asked.memory_limit_MB > 0 else defaults.memory_mb
        # All cells together are one call: they have a slot for no longer than a program could.
        cpu_left = min(asked.total_timeout, config.maxima.cpu_seconds)
        most_wall = min(asked.total_timeout * WALL_FACTOR, config.maxima.wall_seconds)
        wall_left = most_wall
        cells: list[bytes] = []
        """As they are sent, with commas between them."""
        spent, wall_spent, held, failed = 0.0, 0.0, 0, False
        fetched: Mapping[str, bytes] = {}
        driver: CommandResult | None = None
        """Why the rest of the cells did not run."""
        try:
            session = await self._app.node.open_session(
                SessionRequest(
                    # Not the smallest: what the files import is not looked at.
                    environment=choose("\n".join(asked.cells), config.environments[1:] or config.environments).name,
                    limits=replace(defaults, memory_mb=memory),
                    commit=Commit.ALWAYS,
                    files=files,
                    keep_chars=defaults.output_bytes,
                ),
                tenant.name,
                len(self._app.tenants),
            )
            try:
                for number, code in enumerate(asked.cells, start=1):
                    seconds = asked.cell_timeout or asked.total_timeout
                    limits = replace(
                        defaults,
                        cpu_seconds=min(cpu_left, seconds),
                        wall_seconds=min(wall_left, seconds * WALL_FACTOR),
                        memory_mb=memory,
                    )
                    fetch = tuple(asked.fetch_files) if number == len(asked.cells) else ()
                    outcome = Outcome.of_cell(await session.run(Cell(code, limits=limits, fetch=fetch)))
                    if outcome.status is RunStatus.FAULT:
                        return _broken(outcome.explanation)
                    spent += outcome.cpu_seconds
                    wall_spent += outcome.wall_seconds
                    cpu_left -= outcome.cpu_seconds
                    wall_left = most_wall - wall_spent - session.rebuild_seconds
                    fetched = outcome.files
                    cell = _cell_result(outcome)
                    failed = failed or bool(cell.error)
                    # Encoded at once: what is counted is what is held.
                    parts = [b",", *await encoded(outcome, cell)]
                    cells += parts
                    held += sum(map(len, parts))
                    if outcome.status is RunStatus.TIMEOUT or min(cpu_left, wall_left) <= 0:
                        driver = CommandResult("TimeLimitExceeded", spent, None, "", outcome.explanation)
                    elif number < len(asked.cells) and held > UNREAD_BYTES:
                        driver = CommandResult("Finished", spent, 1, "", TOO_MUCH)
                    elif number < len(asked.cells) and outcome.unrepeatable:
                        # The session is lost to the cells that are left, by the programs' own doing: no fault.
                        driver = CommandResult("Finished", spent, 1, "", UNREPEATABLE)
                    if driver is not None:
                        break
            finally:
                await asyncio.shield(session.close())
        except (SessionLostError, TierError) as error:
            return _broken(f"{error}")
        except ValueError as error:  # the files don't fit
            unfit = RunJupyterResult(status="Failed", message=f"{error}")
            return Answer(Outcome(id="", status=RunStatus.ERROR), [encode(unfit)])
        result = RunJupyterResult(
            status="Success" if driver is None else "Failed",
            driver=driver or CommandResult("Finished", spent, 0, "", ""),
            files=fetched,
        )
        status = RunStatus.ERROR if failed or driver is not None else RunStatus.OK
        head, *rest = await encode_in_steps(result)
        # The list of cells is empty in what was encoded; it comes before anything of the programs' own.
        before, after = head.split(b'"cells":[', 1)
        parts = [before, b'"cells":[', *cells[1:], after, *rest]
        return Answer(Outcome(id="", status=status, cpu_seconds=spent), parts)


def _code_result(outcome: Outcome) -> RunCodeResult:
    if outcome.status is RunStatus.FAULT:
        return RunCodeResult(status="SandboxError", message=outcome.explanation)
    timed_out = outcome.status is RunStatus.TIMEOUT
    # Whatever ended the run, a failure must show a code other than zero: their clients look at nothing else.
    code = outcome.exit_code
    if outcome.signal is not None:
        code = -outcome.signal
    if outcome.status is not RunStatus.OK and not code:
        code = 1
    command = CommandResult(
        "TimeLimitExceeded" if timed_out else "Finished",
        outcome.wall_seconds,
        None if timed_out else code,
        outcome.output,
        error_text(outcome),
    )
    status: FusionStatus = "Success" if outcome.status is RunStatus.OK else "Failed"
    return RunCodeResult(status=status, run_result=command, files=outcome.files)


def _cell_result(outcome: Outcome) -> CellResult:
    errors: list[dict[str, str | list[str]]] = []
    if (exception := outcome.exception) is not None:
        lines: str | list[str] = exception.traceback.splitlines()
        errors.append({"ename": exception.type, "evalue": exception.message, "traceback": lines})
    elif outcome.status is not RunStatus.OK:
        errors.append({"ename": outcome.status.value, "evalue": outcome.explanation, "traceback": []})
    return CellResult(outcome.output, outcome.stderr, [_display(each) for each in outcome.displays], errors)


def _display(display: Mapping[str, str]) -> dict[str, Any]:
    """A display as Jupyter has it: its JSON is data, not text."""
    shown: dict[str, Any] = dict(display)
    if (text := display.get(JSON_TYPE)) is not None and _is_for_everybody(text):
        with contextlib.suppress(msgspec.DecodeError, RecursionError):  # a program may call anything JSON
            shown[JSON_TYPE] = msgspec.json.decode(text, type=msgspec.Raw)
    return shown


def _is_for_everybody(text: str) -> bool:
    """Whether Python's own decoder takes this JSON within an answer: it bounds the digits of an integer, and nesting.

    Else it stays text, because the caller of a program could not read any of the answer.
    """
    bare = _STRINGS.sub("", text)
    depth = deepest = 0
    for bracket in _BRACKETS.findall(bare):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest <= MOST_NESTED and _LONG_NUMBER.search(bare) is None


def _broken(message: str) -> Answer:
    result = RunJupyterResult(status="SandboxError", message=message)
    return Answer(Outcome.unrun("", BROKEN), [encode(result)])
