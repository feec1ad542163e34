"""code-judge's endpoints, so that its users (rStar2-Agent, CLEANER) change one URL.

What differs from code-judge is written in docs/sandbox-http.md; the main points: only `type: "python"` runs (others
are answered `invalid_input`), time limits count CPU time, and a fault is `internal_error` or `queue_timeout`, never a
failed program. A full queue is answered `queue_timeout` rather than 429, because that is what code-judge's clients
retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec

from cleaner_sandbox.protocol.results import RunStatus
from cleaner_sandbox.protocol.wire import BROKEN, OVERLOADED, CallId, Outcome, RunCall, encode
from cleaner_sandbox.service.app import App, Handler, Route
from cleaner_sandbox.service.fair_queue import AT_ONCE
from cleaner_sandbox.service.http import JSON, Exchange, HttpError
from cleaner_sandbox.service.runs import Runs
from cleaner_sandbox.service.tenants import Tenant

WAIT_SECONDS = 15.0
LONG_WAIT_SECONDS = 3600.0
"""What code-judge itself waits, by default, for a program to start, before it answers `queue_timeout`."""

Reason = Literal["", "internal_error", "worker_timeout", "queue_timeout", "invalid_input"]


class Submission(msgspec.Struct, gc=False):
    """One program, with the output that is expected of it, if any. Unknown fields are ignored, as code-judge does."""

    solution: str
    type: Literal["python", "cpp", "math"]
    sub_id: CallId | None = None
    options: dict[str, str] | None = None
    input: str | None = None
    expected_output: str | None = None


class BatchSubmission(msgspec.Struct):
    """Many programs."""

    submissions: list[Submission]
    type: Literal["batch"] = "batch"
    sub_id: CallId | None = None


class JudgeResult(msgspec.Struct):
    """How a program fared."""

    sub_id: str | None
    success: bool
    run_success: bool
    cost: float
    reason: Reason


class RunResult(JudgeResult):
    """The same, with what it printed."""

    stdout: str
    stderr: str


class BatchJudgeResult(msgspec.Struct):
    """How many fared, in their order."""

    sub_id: str | None
    results: list[JudgeResult]


class BatchRunResult(msgspec.Struct):
    """The same, with what they printed."""

    sub_id: str | None
    results: list[RunResult]


class JudgeStatus(msgspec.Struct):
    """How busy the node is."""

    queue: int
    num_workers: int


_one_decoder = msgspec.json.Decoder(Submission)
_batch_decoder = msgspec.json.Decoder(BatchSubmission)


def add_code_judge(app: App) -> None:
    """Serve them."""
    judge = CodeJudge(app)
    app.add(
        Route("GET", "/ping", judge.ping, "code-judge: pong.", None, str, open=True),
        Route("GET", "/status", judge.status, "code-judge: how busy the node is.", None, JudgeStatus, open=True),
    )
    for name, kind, batch_kind in (("run", RunResult, BatchRunResult), ("judge", JudgeResult, BatchJudgeResult)):
        app.add(
            Route("POST", f"/{name}", judge.one(kind), f"code-judge: {name} one.", Submission, kind),
            Route(
                "POST",
                f"/{name}/batch",
                judge.many(kind, WAIT_SECONDS),
                f"code-judge: {name} many.",
                BatchSubmission,
                batch_kind,
            ),
            Route(
                "POST",
                f"/{name}/long-batch",
                judge.many(kind, LONG_WAIT_SECONDS),
                f"code-judge: {name} many, with patience.",
                BatchSubmission,
                batch_kind,
            ),
        )


class CodeJudge:
    """Turns submissions into calls, and outcomes into their results."""

    def __init__(self, app: App) -> None:
        self._app, self._runs = app, Runs(app)

    async def ping(self, exchange: Exchange, _: Tenant) -> None:
        """Say pong."""
        await exchange.reply(b'"pong"')

    async def status(self, exchange: Exchange, _: Tenant) -> None:
        """Say how busy the node is."""
        await exchange.reply(encode(JudgeStatus(self._app.queue.waiting, self._app.queue.slots)))

    def one(self, kind: type[JudgeResult]) -> Handler:
        """The handler for one submission."""

        async def handle(exchange: Exchange, tenant: Tenant) -> None:
            submission = await exchange.json(_one_decoder)
            async with aclosing(self._judged(exchange, tenant, [submission], kind, WAIT_SECONDS)) as results:
                async for result in results:
                    await exchange.reply(*result)

        return handle

    def many(self, kind: type[JudgeResult], start_within: float) -> Handler:
        """The handler for a batch.

        The answer is sent while the batch runs, its results in the order of the submissions: to hold every output to
        the end would take a gigabyte for a thousand programs.
        """

        async def handle(exchange: Exchange, tenant: Tenant) -> None:
            batch = await exchange.json(_batch_decoder)
            if not batch.submissions:
                raise HttpError(422, "invalid_request", "The batch holds no submissions.")
            lead = b'{"sub_id":%b,"results":[' % encode(batch.sub_id)
            async with aclosing(self._judged(exchange, tenant, batch.submissions, kind, start_within)) as results:
                async for some in results:
                    await exchange.part([lead, *some], False, JSON)
                    lead = b","
            await exchange.part([b"]}"], True, JSON)

        return handle

    async def _judged(
        self,
        exchange: Exchange,
        tenant: Tenant,
        all_of_them: Sequence[Submission],
        kind: type[JudgeResult],
        start_within: float,
    ) -> AsyncGenerator[list[bytes], None]:
        """The results in their order as parts of JSON, some at a time, with commas between them."""
        places = [place for place, each in enumerate(all_of_them) if each.type == "python"]
        # All that a program may print: an output that is cut would be judged wrong, here or by whoever asked for it.
        keep_chars = self._app.config.node.limits.output_bytes

        def call_of(index: int) -> RunCall:
            each = all_of_them[places[index]]
            return RunCall(
                each.solution,
                id=each.sub_id or "",
                stdin=each.input or "",
                keep_chars=keep_chars,
                keep_displays=False,
            )

        def shape(index: int, outcome: Outcome) -> JudgeResult:
            return _result(all_of_them[places[index]], outcome, kind)

        async def unrun(first: int, last: int, outcome: Outcome | None) -> AsyncGenerator[list[bytes], None]:
            for start in range(first, last, AT_ONCE):
                parts: list[bytes] = []
                for each in all_of_them[start : min(start + AT_ONCE, last)]:
                    parts += [b",", encode(_result(each, outcome if each.type == "python" else None, kind))]
                yield parts
                await asyncio.sleep(0)  # to send them need not wait

        done = 0
        overloaded: Outcome | None = None
        try:
            if places:
                count = len(places)
                with self._runs.enqueue(
                    exchange, tenant, count, call_of, shape, start_within=start_within, in_order=True
                ) as pending:
                    while not pending.complete:
                        results: list[bytes] = []
                        for index, answer in await pending.next():
                            async for parts in unrun(done, places[index], None):
                                results += parts
                            results += [b",", *answer.parts]
                            done = places[index] + 1
                        yield results[1:]
        except HttpError as error:
            if error.status not in (429, 503):
                raise
            overloaded = Outcome.unrun("", OVERLOADED)
        async for parts in unrun(done, len(all_of_them), overloaded):
            yield parts[1:]


def _result(submission: Submission, outcome: Outcome | None, kind: type[JudgeResult]) -> JudgeResult:
    if outcome is None:
        texts = {"stdout": "", "stderr": ""} if kind is RunResult else {}
        return kind(submission.sub_id, False, False, 0.0, "invalid_input", **texts)
    ran = outcome.status is RunStatus.OK
    expected = submission.expected_output
    right = ran and (expected is None or outcome.output.strip() == expected.strip())
    reason: Reason = ""
    if outcome.status is RunStatus.FAULT:
        reason = "internal_error" if outcome.fault == BROKEN else "queue_timeout"
    elif outcome.status is RunStatus.TIMEOUT:
        reason = "worker_timeout"
    elif outcome.status is RunStatus.REFUSED:
        reason = "invalid_input"
    texts = {"stdout": outcome.output, "stderr": error_text(outcome)} if kind is RunResult else {}
    return kind(submission.sub_id, right, ran, outcome.wall_seconds, reason, **texts)


def error_text(outcome: Outcome) -> str:
    """What a plain interpreter would have left on stderr, and the limit that was hit, for dialects with no other place.

    An exception is data for us; these dialects know it as text.
    """
    parts = [outcome.stderr.rstrip("\n")]
    if (exception := outcome.exception) is not None:
        parts.append(exception.traceback.rstrip("\n") or f"{exception.type}: {exception.message}")
    parts.append(outcome.explanation)
    text = "\n".join(part for part in parts if part)
    return f"{text}\n" if text else ""
