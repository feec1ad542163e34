"""Reads and writes files on local disks and in object stores, by paths and by URIs that pyarrow knows.

URIs begin with `s3://`, `gs://`, `abfs://`, `hdfs://` or `file://`.

A path without a scheme is a local one. Files whose name begins with a dot or an underscore are not logs. A link to a
file is that file; a link to a folder isn't followed, because it may lead anywhere, and round in a circle.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from string import ascii_letters, digits
from typing import BinaryIO, NamedTuple, cast

from pyarrow import fs

from cleaner_rl.trajectory.store import publish

UNQUOTED = frozenset(f"{ascii_letters}{digits}-_.~=/".encode())
"""The bytes of a file's name that are not escaped in a URI."""


class FoundFile(NamedTuple):
    """A file."""

    uri: str
    size: int
    name: str
    """Its path below the place that was asked for."""


def is_remote(uri: str) -> bool:
    """Return whether it has a scheme, so that nothing but pyarrow can open it."""
    return "://" in uri


def absolute(uri: str) -> str:
    """Return one name for one file, however it is named, and without options (`?region=…`)."""
    return uri.partition("?")[0] if is_remote(uri) else os.path.abspath(uri)


def is_below(uri: str, folder: str) -> bool:
    """Return whether a file is in a folder, or in one of that one's, by its name."""
    return absolute(uri).startswith(absolute(folder).rstrip("/") + "/")


def below(folder: str, name: str) -> str:
    """Return the address of a file in a folder. In a URI its name is quoted, and options (`?region=…`) stay last."""
    if not is_remote(folder):
        return f"{folder.rstrip('/')}/{name}"
    path, mark, options = folder.partition("?")
    quoted = "".join(chr(byte) if byte in UNQUOTED else f"%{byte:02X}" for byte in name.encode())
    return f"{path.rstrip('/')}/{quoted}{mark}{options}"


def find(uri: str, skip: Callable[[str], None] = lambda _: None) -> Iterator[FoundFile]:
    """Yield the file of this name, or all files below this folder, in the order of their names.

    `skip` is called with a sentence for each folder that is left out.
    """
    system, path = _system(uri)
    info = system.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is nothing at {uri}: no such file or folder")
    if info.type == fs.FileType.File:
        yield FoundFile(uri, info.size, info.base_name)
        return
    if isinstance(system, fs.LocalFileSystem):
        inside = system.get_file_info(list(_paths_in(path, skip)))
    else:
        inside = system.get_file_info(fs.FileSelector(path, recursive=True))
    for each in sorted(inside, key=lambda each: each.path):
        name = each.path[len(path.rstrip("/")) + 1 :]
        if each.type == fs.FileType.File and not any(map(_hidden, name.split("/"))):
            yield FoundFile(below(uri, name), each.size, name)


def _paths_in(folder: str, skip: Callable[[str], None]) -> Iterator[str]:
    """Yield the paths of all files below a local folder."""

    def unreadable(error: OSError) -> None:
        skip(f"{error.filename} can't be read: {error.strerror}")

    for where, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = [each for each in folders if not _hidden(each)]
        for each in folders:
            if os.path.islink(path := os.path.join(where, each)):  # which `walk` does not follow
                skip(f"{path} is a link to a folder, and these are not followed; to read it, give its path too")
        yield from (os.path.join(where, each) for each in files)


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def open_file(uri: str) -> BinaryIO:
    """Open a file to read, from any position."""
    if not is_remote(uri):
        return open(uri, "rb")
    system, path = _system(uri)
    return cast("BinaryIO", io.BufferedReader(system.open_input_file(path), 1 << 20))


def put(file: Path, uri: str) -> None:
    """Move a whole local file to its place; there it appears at once, and replaces what an earlier try left."""
    if not is_remote(uri):
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        publish(file, Path(uri))
        return
    system, path = _system(uri)
    system.create_dir(os.path.dirname(path), recursive=True)
    with file.open("rb") as source, system.open_output_stream(path) as target:
        while block := source.read(1 << 22):
            target.write(block)
    file.unlink()


def remove(uri: str) -> None:
    """Delete a file."""
    system, path = _system(uri)
    system.delete_file(path)


def _system(uri: str) -> tuple[fs.FileSystem, str]:
    if is_remote(uri):
        system, path = fs.FileSystem.from_uri(uri)
        return system, path
    return fs.LocalFileSystem(), absolute(uri)
