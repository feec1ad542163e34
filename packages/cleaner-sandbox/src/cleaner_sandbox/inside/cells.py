"""What a cell of a Python session may hold beside Python, as in a notebook: `await` outside of functions, and commands
for bash, in lines that begin with `!`.

A cell is Python first. Only if it doesn't parse are its commands looked for, so no valid program changes its meaning.

Limits: a command has its lines to itself, up to one that doesn't end with a backslash. It knows nothing of Python's
variables, and its output can't be assigned. Each cell with `await` has an event loop of its own: a task that is left
when the cell ends is cancelled.
"""

from __future__ import annotations

import ast
import builtins
import io
import subprocess
import tokenize
from collections.abc import Callable
from inspect import CO_COROUTINE
from types import CodeType, ModuleType
from typing import Any

from cleaner_sandbox.inside import shell

FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
COMMAND = "__command__"
"""The builtin that a line with a command calls."""
EXIT_CODE = "_exit_code"


def install(module: ModuleType, seed: int, flush: Callable[[], None]) -> None:
    """Have cells run commands. `flush` is called before each, so that what was printed earlier is above its output."""

    def command(text: str) -> None:
        flush()
        arguments = ["bash", "-c", shell.RUN, "bash", text, str(seed)]
        code = subprocess.call(arguments, executable=shell.BASH, env=shell.environment())
        module.__dict__[EXIT_CODE] = code if code >= 0 else 128 - code  # of bash that a signal killed

    setattr(builtins, COMMAND, command)


def parsed(source: str, name: str) -> ast.Module:
    """The syntax tree of a cell. Raises `SyntaxError`."""
    try:
        return ast.parse(source, name)
    except SyntaxError as error:
        problem = error
    python = _with_calls(source)
    if python == source:
        raise problem
    return ast.parse(python, name)


def waits(codes: list[CodeType]) -> bool:
    """Whether a cell has an `await` outside of functions."""
    return any(code.co_flags & CO_COROUTINE for code in codes)


def run_waiting(codes: list[CodeType], namespace: dict[str, Any]) -> None:
    """Run the parts of such a cell, in one event loop."""
    import asyncio  # which most cells don't need

    async def each() -> None:
        for code in codes:
            value = eval(code, namespace)
            if code.co_flags & CO_COROUTINE:
                await value

    asyncio.run(each())


def _with_calls(source: str) -> str:
    """A cell with a call in place of each command; every line keeps its number."""
    lines: list[str] = []
    waiting = source.splitlines(keepends=True)
    waiting.reverse()
    while waiting:
        line = waiting.pop()
        text = line.lstrip(" \t")
        if not text.startswith("!") or not _is_complete("".join(lines)):
            lines.append(line)
            continue
        indent, command = line[: -len(text)], text[1:]
        blank = 0
        while command.rstrip("\r\n").endswith("\\") and waiting:
            command += waiting.pop()
            blank += 1
        lines.append(f"{indent}{COMMAND}({command.strip()!r})\n" + "\n" * blank)
    return "".join(lines)


def _is_complete(source: str) -> bool:
    """Whether a new statement begins after these lines: no string, bracket or continued line is open."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO(source).readline):
            pass
    except (SyntaxError, tokenize.TokenError):
        return False
    return True
