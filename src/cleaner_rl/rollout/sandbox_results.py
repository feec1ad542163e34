"""The one place where a sandbox's result becomes a tool's result, and so where failure and fault are told apart.

The sandbox says how a run ended and blames nobody. For training, the model answers for everything that its program
brought about, and for nothing else: only `RunStatus.FAULT` is the infrastructure's.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleaner_rl.tools import ExceptionInfo, Status, ToolResult
from cleaner_sandbox.protocol import RunResult, RunStatus

STATUSES: Mapping[RunStatus, Status] = {
    RunStatus.OK: Status.OK,
    RunStatus.ERROR: Status.ERROR,
    RunStatus.TIMEOUT: Status.TIMEOUT,
    RunStatus.MEMORY: Status.MEMORY,
    RunStatus.OUTPUT_LIMIT: Status.OUTPUT_LIMIT,
    RunStatus.CRASHED: Status.CRASHED,
    RunStatus.MALFORMED: Status.MALFORMED,
    RunStatus.REFUSED: Status.REFUSED,
    RunStatus.FAULT: Status.FAULT,
}


def tool_result(result: RunResult) -> ToolResult:
    """Return what a run in a sandbox means as the result of a tool call.

    Examples:
        >>> from cleaner_rl.rollout import tool_result
        >>> from cleaner_sandbox import RunResult, RunStatus
        >>> tool_result(RunResult(RunStatus.TIMEOUT)).failed
        True
        >>> tool_result(RunResult(RunStatus.FAULT)).faulty
        True
    """
    raised = result.exception
    return ToolResult(
        STATUSES[result.status],
        result.output,
        result.stderr,
        None if raised is None else ExceptionInfo(raised.type, raised.message, raised.line, raised.traceback),
        result.explanation,
        result.output_length,
        result.seconds,
        result.versions,
    )
