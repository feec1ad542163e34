"""Bases of sessions: folders that working folders begin with, shared by all sessions and changed by none.

A base is a folder or a tar file in the folder that `NodeConfig.bases` names, and is called by its name without the
ending. It is copied into the node's own folder when the first session asks for it, and kept until the node ends. A
session sees it as the lowest layer of its files, with itself as the owner: opening one copies nothing, and only what a
program writes takes the session's space.

Limits: a base that changes while the node runs is not read again. Hard links become files of their own.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

OLDEST_KERNEL = (5, 19)
"""The first that shows a folder with other owners in an overlay."""
TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
SHOWN = 8
"""Names that an error lists."""


class Bases:
    """The bases of one node."""

    def __init__(self, source: Path, folder: Path) -> None:
        if not source.is_dir():
            raise ValueError(f"there is no folder of bases {source}")
        version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
        if version < OLDEST_KERNEL:
            raise ValueError(f"bases need Linux 5.19 or later, and this is {platform.release()}; leave `bases` out")
        self._source, self._folder = source, folder
        folder.mkdir(0o700)
        self._copies: dict[str, asyncio.Task[str]] = {}

    async def copied(self, name: str) -> str:
        """Return the name of a base's copy in the node's folder. Raises `ValueError` if there is no such base."""
        found = self._find(name)
        if name not in self._copies:
            self._copies[name] = asyncio.create_task(asyncio.to_thread(self._copy, found))
        try:
            return await asyncio.shield(self._copies[name])
        except (OSError, shutil.Error, tarfile.TarError) as error:
            self._copies.pop(name, None)  # the next session tries again
            raise ValueError(f"the base '{name}' can't be read: {error}") from error

    def _find(self, name: str) -> Path:
        plain = name == os.path.basename(name) and not name.startswith(".")
        for path in (self._source / f"{name}{ending}" for ending in ("", *TARS)):
            if plain and path.exists():
                return path
        known = sorted({each.name.partition(".tar")[0].removesuffix(".tgz") for each in self._source.iterdir()})
        listed = ", ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
        raise ValueError(f"there is no base '{name}'; available: {listed or 'none'}")

    def _copy(self, found: Path) -> str:
        copy = Path(tempfile.mkdtemp(dir=self._folder))
        work = copy / "work"
        if found.is_dir():
            shutil.copytree(found, work, symlinks=True)
        else:
            work.mkdir()
            with tarfile.open(found) as tar:
                tar.extractall(work, filter="data")
        _own(copy)
        return copy.name


def _own(folder: Path) -> None:
    """Make all of it the node's, and let its owner change it: the session that sees it is its owner."""
    os.chmod(folder, 0o755)
    for root, folders, files in os.walk(folder):
        for path in (os.path.join(root, each) for each in (*folders, *files)):
            os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
            if not os.path.islink(path):
                mode = os.stat(path).st_mode & 0o777
                os.chmod(path, mode | (0o700 if os.path.isdir(path) else 0o600))
