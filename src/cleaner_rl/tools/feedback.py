"""The one place that turns a result into words for the model.

The words hold no duration, process id or path, so that the same run gives the same observation. Statistics and triggers
never read them: they look at the status.
"""

from __future__ import annotations

from cleaner_rl.tools.results import Status, ToolResult

SENTENCES = {
    Status.TIMEOUT: "The program was stopped: it ran into its time limit.",
    Status.MEMORY: "The program was stopped: it ran into its memory limit.",
    Status.OUTPUT_LIMIT: "The program was stopped: it printed more than its output limit.",
    Status.CRASHED: "The program's process crashed.",
    Status.MALFORMED: "The call could not be read.",
    Status.REFUSED: "The tool declined the call.",
    Status.FAULT: "The tool is not available.",
    Status.ERROR: "The program failed.",
}
"""Said where neither the result's own explanation nor an exception says it. Success needs no word of ours."""


def feedback(result: ToolResult, limit: int = 8_192) -> str:
    """Return what the model is shown of a result: its output, then what went wrong, at most about `limit` characters
    each.

    Examples:
        >>> from cleaner_rl.tools import ExceptionInfo, Status, ToolResult, feedback
        >>> raised = ExceptionInfo("NameError", "name 'y' is not defined", line=2)
        >>> failed = ToolResult(Status.ERROR, "1\\n", exception=raised)
        >>> print(feedback(failed))
        1
        NameError: name 'y' is not defined (line 2)
    """
    output = shorten(result.output, limit, result.output_length)
    parts = [output.rstrip("\n"), shorten(result.stderr, limit).rstrip("\n")]
    if (exception := result.exception) is not None:
        where = f" (line {exception.line})" if exception.line is not None else ""
        summary = f"{exception.type}: {exception.message}{where}"
        parts.append(shorten(exception.traceback.rstrip("\n"), limit) or summary)
    if result.explanation:
        parts.append(result.explanation)
    elif result.exception is None and result.status is not Status.OK:
        parts.append(SENTENCES[result.status])
    return "\n".join(part for part in parts if part)


def shorten(text: str, limit: int, full_length: int | None = None) -> str:
    """Cut the middle out of a long text, keep both ends (an exception's line is the last) and say how much is missing.

    `full_length` is the length of the text before an earlier cut.
    """
    whole = len(text) if full_length is None else full_length
    if len(text) <= limit:
        return text if whole == len(text) else f"{text}\n[cut: {len(text)} of {whole} characters shown]"
    head = limit // 2
    tail = limit - head
    note = f"\n[cut: {limit} of {whole} characters shown]\n"
    return text[:head] + note + text[len(text) - tail :]
