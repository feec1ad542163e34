"""What goes into a run and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cleaner_sandbox.protocol.limits import Limits
from cleaner_sandbox.protocol.results import RunResult

MOST_NAMES = 4_096
"""Of files that come with a call or are fetched after it: while the node looks at each, nobody else is served."""
MOST_PARTS = 64
"""Of one such name, for the same reason."""
MOST_PARTS_FETCHED = 16_384
"""Of all names of files that are fetched: each part is a folder to be opened."""


MADE_ROOM = "it made room in the node's memory"
"""Why a session that held more than its part of the memory was ended; in the words of `SessionLostError`."""


class Language(StrEnum):
    """Says what runs a program."""

    PYTHON = "python"
    BASH = "bash"
    """Bash with the system's own programs. Needs tier 2, because below it no run may start processes."""


MOST_SHELL_BYTES = 131_071
"""Of a bash program: the kernel takes no longer argument."""


class Commit(StrEnum):
    """Says when a session keeps what a cell did."""

    ON_SUCCESS = "on_success"
    """A cell that fails leaves no trace; the next one sees the state that the failed one saw."""
    ALWAYS = "always"
    NEVER = "never"
    """Every cell runs from the same state: a way to try things."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Asks for one program to be run, in an interpreter of its own.

    Examples:
        >>> from cleaner_sandbox import Language, Limits, RunRequest
        >>> request = RunRequest("print(input()[::-1])", stdin="olleh", limits=Limits(cpu_seconds=2.0))
        >>> request.limits.cpu_seconds
        2.0
        >>> RunRequest("seq 3 | tac", language=Language.BASH).language.value
        'bash'
    """

    code: str
    stdin: str | bytes | None = None
    """None: `input()` raises `EOFError`."""
    limits: Limits | None = None
    """None: the node's defaults."""
    environment: str | None = None
    """Name of an environment; None: the smallest set that has what the code imports."""
    echo_last_expression: bool = False
    """Print the value of the program's last statement if that is an expression, as a notebook does; Python only."""
    seed: int = 0
    """Seed of `random` and `numpy.random`, or of bash's `RANDOM`."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Put into the working folder before the run; relative paths."""
    fetch: tuple[str, ...] = ()
    """What to bring back after the run, whether it failed or not: relative paths of files, of folders with all files
    below them, or patterns (`*.csv`, `out/**/*.png`)."""
    keep_chars: int | None = None
    """Characters of stdout and of stderr that the result keeps, of the `output_bytes` that may be written; None: as
    many as the node keeps by default."""
    request_id: str = ""
    language: Language = Language.PYTHON
    keep_displays: bool = True
    """Whether the outcome is to have `displays`; Python only. If not, no figure is drawn or closed for them."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Says how a run ended, and holds what it left."""

    result: RunResult
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Regular files that `RunRequest.fetch` names, by their paths, as far as they are within the node's size limit; no
    link is followed."""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    """The largest resident size of a single process of the run, the preloaded interpreter included."""
    exit_code: int | None = None
    """None if the run's process died by a signal, or never started."""
    signal: int | None = None
    environment: str = ""
    request_id: str = ""
    attempts: int = 1
    """How often the call may have been run: 2 if a supervisor died and it was run again on a fresh slot; from a client,
    with the times that a node broke or was lost before it had answered."""
    files_left_out: int = 0
    """How many files that `RunRequest.fetch` names are there and not in `files`, at least: they are too large, or too
    many."""
    displays: Sequence[Mapping[str, str]] = ()
    """Figures and rich values that the program showed, in order. Each maps mime types to text: `image/png` and
    `image/jpeg` in base64, `application/json` as JSON, all others as they are. Together they may have as many bytes as
    `Limits.output_bytes` allows for stdout."""
    displays_left_out: Mapping[str, int] = field(default_factory=dict)
    """How many forms of displays are missing, by mime type: they were above the bounds, or making them raised an
    exception. `other` counts those of any type that is not brought back."""


class OutputStream(StrEnum):
    """Says where a program has printed something."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class OutputText:
    """Holds what a program has printed while it still ran."""

    stream: OutputStream
    text: str


@dataclass(frozen=True, slots=True)
class Cell:
    """Asks for one piece of code to be run in a session, in the session's language."""

    code: str
    stdin: str | bytes | None = None
    limits: Limits | None = None
    echo_last_expression: bool = True
    commit: Commit | None = None
    """None: the session's own rule."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Put into the session's folder before the cell; they roll back with it."""
    fetch: tuple[str, ...] = ()
    request_id: str = ""
    keep_displays: bool = True
    """As for `RunRequest`."""


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """Asks for a session to be opened."""

    environment: str | None = None
    """Name of an environment; None: `science` if the node has it, else its first."""
    limits: Limits | None = None
    """For each cell; CPU and wall time count per cell, memory and files over the session."""
    seed: int = 0
    commit: Commit = Commit.ON_SUCCESS
    files: Mapping[str, bytes] = field(default_factory=dict)
    keep_chars: int | None = None
    """Of each cell's stdout and stderr, as for `RunRequest`."""
    language: Language = Language.PYTHON
    """Of all its cells."""
    idle_seconds: float | None = None
    """Most seconds that it may be idle before it is closed; None, and at most: what the node allows."""
    ttl_seconds: float | None = None
    """Most seconds that it may be open, idle or not; None, and at most: what the node allows."""


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """Says how a cell ended, and at which state the session is now."""

    run: RunOutcome
    committed: bool
    """Whether the session now holds what the cell did."""
    checkpoint: int
    """Number of the state that the session is at now: pass it to `Session.rollback` to come back here."""
    not_checkpointable: tuple[str, ...] = ()
    """What keeps the state from being forked, e.g. `("thread",)`; empty if nothing does. While this is so, going back
    means running the committed cells again."""
    unrepeatable: bool = False
    """Whether the state before this cell had to be made again, and its cells did not show the same: the session is
    lost, and its programs are to blame."""

    @property
    def result(self) -> RunResult:
        """Return the cell's result."""
        return self.run.result


@dataclass(frozen=True, slots=True)
class FileList:
    """Lists the regular files below a session's working folder; links, and folders without files, are not listed."""

    files: Mapping[str, int]
    """Bytes of each, by its relative path."""
    left_out: int = 0
    """How many more there are, at least: the list is bounded."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Describes an open session to the one who opened it."""

    id: str
    language: Language
    environment: str
    checkpoint: int
    busy: bool
    idle_seconds: float
    """Since its last cell or rollback."""
    held_bytes: int
    """Memory and files of all its states."""
    node: str = ""
    """Address of its node; filled in by the client."""


class SandboxUnavailableError(RuntimeError):
    """There is no sandbox to run anything in; the message says why, and what to do."""


class SessionLostError(Exception):
    """The session's state is gone (its time ran out, it had to make room, its process died); open a new one."""


class RollbackDeclinedError(Exception):
    """The state asked for is not kept any more, or can't be rebuilt."""


def input_problem(asked: RunRequest | Cell) -> str | None:
    """Why no program could be given what comes with a request; None if one can."""
    if len(asked.files) + len(asked.fetch) > MOST_NAMES:
        return f"The call names more than {MOST_NAMES:,} files."
    if sum(path.count("/") + 1 for path in asked.fetch) > MOST_PARTS_FETCHED:
        return f"The names of the files to fetch have more than {MOST_PARTS_FETCHED:,} parts together."
    for path in (*asked.files, *asked.fetch):
        if (wrong := path_problem(path)) is not None:
            return f"The file name {path!r} {wrong}."
    if isinstance(asked.stdin, str) and encoded(asked.stdin) is None:
        return "The standard input is not valid Unicode."
    return None


def code_problem(code: str, language: Language) -> str | None:
    """Why a text can't be given to a language's interpreter as a program; None if it can. Python says so itself."""
    if language is Language.PYTHON:
        return None
    data = encoded(code)
    if data is None or b"\0" in data:
        return "A bash program can't hold a NUL byte, or characters that are no valid Unicode."
    if len(data) > MOST_SHELL_BYTES:
        return f"A bash program may have at most {MOST_SHELL_BYTES:,} bytes; send the rest as files."
    return None


def path_problem(path: str) -> str | None:
    """Why a file name from outside is not one below the working folder; None if it is."""
    if not path or "\0" in path:
        return "is empty or holds a NUL"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts:
        return "is not below the working folder"
    name = encoded(path)
    if name is None:
        return "is not valid Unicode"
    if len(name) > 1024 or max(map(len, name.split(b"/"))) > 255 or len(parts) > MOST_PARTS:
        return "is too long"
    return None


def encoded(text: str) -> bytes | None:
    """Return text as the bytes that a program reads; None if it can't be encoded (a lone surrogate)."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
