"""Files that a run left below its folder: found by name, by folder or by pattern, then read or listed.

The folder is a program's own, and may change meanwhile: every part of a path is opened below the part before it, and no
link is followed. Only regular files count.

There can be many, and the event loop that looks at them serves everybody: it looks in steps, and no further than to a
bound.
"""

from __future__ import annotations

import asyncio
import copy
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from cleaner_sandbox.protocol.requests import MOST_NAMES, MOST_PARTS, FileList, path_problem

STEP: Final = 64
"""Files and folders that are opened or looked at before the event loop may serve others."""
MOST_LOOKED_AT: Final = 16_384
"""Entries of folders that are looked at for one call."""
ANY_DEPTH: Final = "**"
ANY_NAME: Final = "*"
FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW


class Fetched(NamedTuple):
    """What was read."""

    files: dict[str, bytes]
    left_out: int
    """Files that were asked for and are there, and were not read: they are too large or too many."""


NOTHING: Final = Fetched({}, 0)


async def fetched(folder: int, paths: Sequence[str], limit: int) -> Fetched:
    """Read files, `limit` bytes together.

    A path names a file, a folder with all files below it, or, if nothing has this very name, a pattern: `*`, `?` and
    `[...]` match within a name, `**` matches folders of any depth.
    """
    files: dict[str, bytes] = {}

    def take(path: str, parent: int, name: str) -> bool:
        nonlocal limit
        if path in files:
            return True
        data = _read(parent, name, limit) if len(files) < MOST_NAMES else None
        if data is not None:
            files[path] = data
            limit -= len(data)
        return data is not None

    search = Search(take)
    for path in paths:
        await search.find(folder, path)
    return Fetched(files, search.left_out)


async def listed(folder: int) -> FileList:
    """List the files, with their sizes."""
    sizes: dict[str, int] = {}

    def take(path: str, parent: int, name: str) -> bool:
        if len(sizes) == MOST_NAMES:
            return False
        sizes[path] = os.stat(name, dir_fd=parent, follow_symlinks=False).st_size
        return True

    search = Search(take)
    await search.find(folder, ANY_DEPTH)
    return FileList(sizes, search.left_out)


class Pattern:
    """A pattern of paths, and how far names have matched it: one place in it, or several after a `**`."""

    def __init__(self, parts: Sequence[str]) -> None:
        # A last `**` stands for files, too: those at any depth.
        names = [*parts, ANY_NAME] if parts[-1] == ANY_DEPTH else parts
        self._parts = [None if name == ANY_DEPTH else re.compile(fnmatch.translate(name)) for name in names]
        """None: any depth."""
        self._places = self._and_beyond({0})

    def after(self, name: str) -> Pattern:
        """Return the pattern after one more part of a path."""
        after = copy.copy(self)
        after._places = self._and_beyond(set(self._next(name)))
        return after

    @property
    def matches(self) -> bool:
        """Return whether a path that ends here matches."""
        return len(self._parts) in self._places

    @property
    def goes_on(self) -> bool:
        """Return whether a longer path can match."""
        return any(place < len(self._parts) for place in self._places)

    def _next(self, name: str) -> Iterator[int]:
        for place in self._places:
            if place < len(self._parts):
                part = self._parts[place]
                if part is None:
                    yield place
                elif part.match(name):
                    yield place + 1

    def _and_beyond(self, places: set[int]) -> set[int]:
        """Add the places that are reached if a `**` stands for no folder."""
        for place in range(len(self._parts)):
            if place in places and self._parts[place] is None:
                places.add(place + 1)
        return places


class Search:
    """Finds files, within bounds.

    `take` is called with each file's path, the folder that it is in, and its name there; it says whether the file could
    be taken, and may raise `OSError` for one that is gone.
    """

    def __init__(self, take: Callable[[str, int, str], bool]) -> None:
        self.left_out = 0
        """Files that could not be taken, at least: the search has a bound."""
        self._take = take
        self._looked_at = 0
        self._since = 0

    async def find(self, folder: int, path: str) -> None:
        """Find what a path names; see `fetched`."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        await self._step(len(parts))
        with suppress(OSError), _opened(folder, parts[:-1]) as parent:
            kind = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISREG(kind):
                self._try(path, parent, parts[-1])
            elif stat.S_ISDIR(kind):
                with _opened(parent, parts[-1:]) as found:
                    await self._walk(found, tuple(parts), Pattern([ANY_DEPTH]))
            return
        fixed = next((place for place, part in enumerate(parts) if re.search(r"[*?[]", part)), len(parts))
        if fixed < len(parts):
            with suppress(OSError), _opened(folder, parts[:fixed]) as found:
                await self._walk(found, tuple(parts[:fixed]), Pattern(parts[fixed:]))

    async def _walk(self, folder: int, above: tuple[str, ...], pattern: Pattern) -> None:
        for name, is_folder in sorted(await self._names(folder)):  # what is left out must not depend on their order
            path, rest = (*above, name), pattern.after(name)
            await self._step()
            if is_folder and rest.goes_on:
                if len(path) >= MOST_PARTS:
                    self.left_out += 1
                    continue
                with suppress(OSError), _opened(folder, [name]) as found:
                    await self._walk(found, path, rest)
            elif not is_folder and rest.matches:
                whole = "/".join(path)
                if _can_be_named(whole):
                    self._try(whole, folder, name)
                else:
                    self.left_out += 1

    async def _names(self, folder: int) -> list[tuple[str, bool]]:
        """The files and folders in a folder, with whether each is a folder."""
        names: list[tuple[str, bool]] = []
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        try:
            with os.scandir(readable) as entries:
                for entry in entries:
                    if self._looked_at == MOST_LOOKED_AT:
                        self.left_out += 1
                        break
                    self._looked_at += 1
                    await self._step()
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder or entry.is_file(follow_symlinks=False):
                        names.append((entry.name, is_folder))
        finally:
            os.close(readable)
        return names

    def _try(self, path: str, parent: int, name: str) -> None:
        with suppress(OSError):
            self.left_out += not self._take(path, parent, name)

    async def _step(self, opens: int = 1) -> None:
        self._since += opens
        if self._since > STEP:
            self._since = 0
            await asyncio.sleep(0)


def _can_be_named(path: str) -> bool:
    """Whether a caller could ask for the file by this name, in JSON too."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return path_problem(path) is None


@contextmanager
def _opened(folder: int, parts: Sequence[str]) -> Iterator[int]:
    """Open a folder below another one."""
    opened: list[int] = []
    try:
        for part in parts:
            folder = os.open(part, FOLDER, dir_fd=folder)
            opened.append(folder)
        yield folder
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _read(folder: int, name: str, limit: int) -> bytes | None:
    """The content of a file; None if it is no regular one, or too large."""
    # Non-blocking, because it may have become a pipe that nobody writes to.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            return None
        return os.pread(file, found.st_size, 0)
    finally:
        os.close(file)
