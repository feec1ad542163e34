"""Calls as a model would have written them, sound or broken, in each of our formats."""

from __future__ import annotations

import json
from collections.abc import Callable

from cleaner_rl.evaluate.recovery.failures import Failure
from cleaner_rl.tasks import Prompt
from cleaner_rl.tools import NO_CALLS, CallKind, ToolSpec

THINKING = "<think>"


def unwritable(prompt: Prompt) -> str:
    """Return why failures can't be injected with a prompt; empty if they can. Its tool must run Python."""
    if prompt.call_format == NO_CALLS:
        return f"the prompt '{prompt.name}' has no tool"
    if prompt.tool.kind is not CallKind.PYTHON:
        return f"the tool '{prompt.tool.name}' of the prompt '{prompt.name}' doesn't run Python"
    if prompt.call_format not in WRITERS:
        return f"calls in the format '{prompt.call_format}' can't be written"
    return ""


def written(failure: Failure, call_format: str, tool: ToolSpec, prompt: str = "") -> str:
    """The whole first turn. A prompt that has opened a thinking block gets it closed before the call."""
    write = WRITERS.get(call_format)
    if write is None:
        raise ValueError(f"failures can't be written as '{call_format}'; available: {', '.join(WRITERS)}")
    if tool.code_argument is None:
        raise ValueError(f"the tool '{tool.name}' runs no programs, so none can fail in it")
    opening = failure.opening
    if prompt.rstrip().endswith(THINKING):
        opening = f"{opening.strip()}\n</think>\n\n"
    return opening + write(tool.name, tool.code_argument, failure.program, failure.malformed)


def _hermes(name: str, argument: str, program: str, broken: bool) -> str:
    call = json.dumps({"name": name, "arguments": {argument: program}}, ensure_ascii=False)
    if broken:
        call = call.replace("\\n", "\n")  # the commonest slip: line breaks as they are
    return f"<tool_call>\n{call}\n</tool_call>"


def _xml(name: str, argument: str, program: str, broken: bool) -> str:
    end = "" if broken else "</parameter>\n"
    return f"<tool_call>\n<function={name}>\n<parameter={argument}>\n{program}{end}</function>\n</tool_call>"


def _fenced(_name: str, _argument: str, program: str, broken: bool) -> str:
    return f"```python\n{program}" + ("" if broken else "```")


WRITERS: dict[str, Callable[[str, str, str, bool], str]] = {"hermes": _hermes, "xml": _xml, "fenced": _fenced}
