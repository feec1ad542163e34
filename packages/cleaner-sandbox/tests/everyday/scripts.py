"""Reads the sessions of this folder, which are written as people type them.

`=== NAME [options]` begins a session, in Python (`*.cells`) or bash (`*.bash`). A cell ends with what it must give:
`#> LINE` for each line that it prints (`#>` alone: nothing), or `#~ REGEX` for all of it, and `#! STATUS EXCEPTION` if
it isn't ok. Options are `needs=`, programs and modules that have to be installed; `shows=`, the type of a display
of the first cell; `cells`, for what only the cells of a session may hold; and `wall_seconds=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cleaner_sandbox import Language

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Step:
    """A cell, and what it must give."""

    code: str
    output: str
    """A regular expression for all of it."""
    status: str = "ok"
    exception: str | None = None


@dataclass(frozen=True)
class Script:
    """A session as somebody would type it."""

    name: str
    language: Language
    steps: tuple[Step, ...]
    options: dict[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> list[str]:
        """Names of modules or programs."""
        return [name for name in self.options.get("needs", "").split(",") if name]


def scripts() -> Iterator[Script]:
    """Yield all sessions of the folder."""
    for path in sorted(FOLDER.iterdir()):
        language = {".cells": Language.PYTHON, ".bash": Language.BASH}.get(path.suffix)
        if language is not None:
            for text in re.split(r"^=== ", path.read_text(), flags=re.M)[1:]:
                yield _script(path.stem, text, language)


def _script(file: str, text: str, language: Language) -> Script:
    first, _, rest = text.partition("\n")
    name, _, options = first.rstrip("]").partition(" [")
    pairs = (each.strip().partition("=") for each in options.split(";") if each)
    steps, code, told = [], list[str](), list[str]()
    for line in rest.rstrip().splitlines():
        if line.startswith(("#>", "#~", "#!")):
            told.append(line)
        elif told:
            steps.append(_step(code, told))
            code, told = [line], []
        else:
            code.append(line)
    assert told, f"{name}: its last cell says nothing of what it gives"
    steps.append(_step(code, told))
    return Script(f"{file}: {name}", language, tuple(steps), {key: value for key, _, value in pairs})


def _step(code: list[str], told: list[str]) -> Step:
    printed = [line[2:].removeprefix(" ") for line in told if line.startswith("#>")]
    patterns = [line[3:] for line in told if line.startswith("#~")]
    assert len(patterns) <= (0 if printed else 1), told
    status, exception = "ok", None
    for line in told:
        if line.startswith("#!"):
            status, *names = line[2:].split()
            exception = names[0] if names else None
    output = re.escape("".join(f"{line}\n" for line in printed)) if printed != [""] else ""
    return Step("\n".join(code), patterns[0] if patterns else output, status, exception)
