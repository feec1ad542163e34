"""The two ways to look at a path: `export` writes one HTML file, `serve` answers a browser.

Both need the extra `view` (DuckDB, uvicorn), which is loaded when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cleaner_rl.view.library import Library
    from cleaner_rl.view.sources import StoreFile

Progress: TypeAlias = Callable[[int, int], None]
"""Called while files are indexed, with the bytes that are done and all bytes."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    size: int
    """Bytes of the file."""
    shown: int
    total: int
    """Trajectories in the file, and in the list that it was made from."""
    left_out: Mapping[str, str]
    """Files that couldn't be read, and why."""


def export(
    path: str | Path,
    out: str | Path,
    query: Mapping[str, str] = MappingProxyType({}),
    *,
    progress: Progress = lambda *_: None,
) -> Exported:
    """Write trajectories of a store or of a run's folder as one HTML file, which opens on the first repair.

    `query` chooses among them, as in a list's address. Raises `NothingToShowError` if there is nothing that can be
    read, and `BadQueryError` for a filter that doesn't exist.

    Example: `export("runs/saar", "repairs.html", {"edits": "any", "size": "50"})`
    """
    from cleaner_rl.view.library import Library
    from cleaner_rl.view.page import page_of
    from cleaner_rl.view.query import parse
    from cleaner_rl.view.sources import NothingToShowError

    parse(query)
    with Library(Path(path)) as library:
        library.update(_counted(library, progress))
        problems = {each["name"]: each["problem"] for each in library.overview()["problems"]}
        if len(problems) == len(library.sources.files) > 0:
            said = "".join(f"\nleft out: {name}: {problem}" for name, problem in problems.items())
            raise NothingToShowError(f"nothing could be read, so no page was written{said}")
        made = page_of(library, query)
    Path(out).write_bytes(made.page)
    return Exported(len(made.page), made.shown, made.total, problems)


def serve(
    path: str | Path,
    port: int = 0,
    *,
    ready: Callable[[str, bool], None] = lambda *_: None,
    progress: Progress = lambda *_: None,
) -> None:
    """Serve a store, a run's folder or results of an evaluation to this machine's browsers, until interrupted.

    `port` 0 is any free port. `ready` is called with the address, and with whether the index is kept in the user's
    cache: a second viewer of the same store makes its own, in memory. Raises `NothingToShowError` if there is nothing.

    Example: `serve("runs/saar", ready=lambda address, shared: print(address))`
    """
    from cleaner_rl.view.library import Library
    from cleaner_rl.view.server import bind, run

    with Library(Path(path)) as library:
        listening = bind(port)
        ready(f"http://127.0.0.1:{listening.getsockname()[1]}/", library.index.shared)
        run(library, listening, _counted(library, progress))


def _counted(library: Library, progress: Progress) -> Callable[[StoreFile], None]:
    """Tells how many of the bytes that aren't in the index yet are done."""
    total, done = sum(file.size for file in library.index.stale(library.sources)), 0

    def count(file: StoreFile) -> None:
        nonlocal done
        done += file.size
        progress(done, max(total, done))

    return count
