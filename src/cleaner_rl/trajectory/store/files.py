"""Files that appear under their name only when they are whole; what changes them afterwards replaces them whole.

A file grows under a hidden name that no reader looks for, is flushed to the disk, and is then renamed. A process that
dies leaves at most that hidden file behind: it is of no use, and safe to delete once its writer is gone.

`only_writer` keeps a folder to one process.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cleaner_rl.trajectory.store.errors import StoreError

UNFINISHED = ".unfinished"


def unfinished(folder: Path) -> Path:
    """A new hidden name in this folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f".{uuid.uuid4().hex}{UNFINISHED}"


def publish(temporary: Path, name: Path) -> None:
    """Give a complete file its name, so that after a power loss it is there and complete."""
    descriptor = os.open(temporary, os.O_RDWR)  # Windows flushes only what may be written to
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, name)
    if sys.platform == "win32":
        return  # where folders can't be opened
    folder = os.open(name.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class BusyError(Exception):
    """Another process writes to this store, or may do so."""


@contextmanager
def only_writer(lock: Path) -> Iterator[None]:
    """Hold this file's lock; raise `BusyError` if another process does. The system releases it when its holder ends."""
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
    try:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # the second is Windows'
            raise BusyError(f"another process writes to {lock.parent}; wait for it, or choose another folder") from None
        except OSError as error:
            raise BusyError(
                f"{lock.parent} can't be kept to one process: its file system has no locks ({error.strerror}); choose "
                "another folder, or have it mounted with them"
            ) from None
        yield
    finally:
        os.close(descriptor)


def find(path: Path) -> Iterator[Path]:
    """The files of a store, or the one file that the path names, in the order of run, phase, step and writing."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise StoreError(f"there is no store at {path}: no such file or folder")
    files = [each for each in path.rglob("*") if each.suffix in (".parquet", ".jsonl") and each.is_file()]
    if not files:
        raise StoreError(f"{path} is not a store: it holds no .parquet and no .jsonl file")
    yield from sorted(files, key=lambda each: [_sortable(part) for part in each.relative_to(path).parts])


def _sortable(part: str) -> tuple[str, int, str]:
    """`step=10` after `step=9`."""
    name, _, value = part.partition("=")
    return (name, int(value), "") if value.isdecimal() else (name, 0, value)
