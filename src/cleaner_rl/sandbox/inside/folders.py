"""Removing what a program left, whatever it made of it."""

from __future__ import annotations

import contextlib
import os


def remove(path: str) -> None:
    """Remove a folder and all in it, following no link; what can't be removed stays.

    `shutil.rmtree` calls itself for each folder within a folder: a program that nests enough of them ends the process
    that cleans up after it. Here every folder is first moved to the top, so nothing is ever deep.
    """
    unlike_any = f"{path}/{os.urandom(8).hex()}"
    folders = [path]
    for folder in folders:
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
            for entry in list(os.scandir(folder)):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)  # it can't be moved while its owner may not write to it
                        moved = f"{unlike_any}-{len(folders)}"
                        os.rename(entry.path, moved)
                        folders.append(moved)
                    else:
                        os.unlink(entry.path)
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
