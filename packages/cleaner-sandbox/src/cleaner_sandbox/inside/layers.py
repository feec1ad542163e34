"""A session's files as layers: going back takes a layer off instead of copying anything.

Each layer is an overlay mounted on the session's folder, over the ones before. A process keeps working in the layer in
which it opened its files and entered its folder, so a state that moves to another layer opens them again there.

What is taken off is removed at once, so that a cell which is undone takes none of the session's space. Only what is
lent to the node stays, aside, until it is reclaimed or the next layer needs the space.

Limits: a file that is held open for writing is copied whole when a state moves to a new layer.
"""

from __future__ import annotations

import contextlib
import os

from cleaner_sandbox.inside import kernel
from cleaner_sandbox.inside.proc import Proc

MOST = 200
"""The kernel takes the list of layers in one page."""
INODES = 16
"""More than a layer itself has."""
FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV


class Layers:
    """The stack of layers on a session's folder."""

    def __init__(self, store: str, target: str, owner: int, size: str, proc: Proc, given: str | None = None) -> None:
        """`given`: a folder below all layers, which nobody writes to."""
        self._store = store
        self._proc = proc
        self._target = target
        self._count = 0
        self._stack: list[tuple[str, str]] = []
        self._mounts: list[int] = []
        """The kernel's numbers of what is mounted, a layer each."""
        self._taken_off: list[tuple[str, str]] = []
        self._lent = False
        kernel.mount("layers", store, "tmpfs", FLAGS, f"mode=700,{size}")
        base = f"{store}/base"
        self._lowest = [base] if given is None else [base, given]
        os.mkdir(base, 0o755)
        for name in ("work", "tmp", "shm"):
            os.mkdir(f"{base}/{name}", 0o700)
            os.chown(f"{base}/{name}", owner, owner)
        aside = f"{store}/aside"
        os.mkdir(aside, 0o755)
        self._move_aside = kernel.Mount(target, aside, None, kernel.MS_MOVE)
        self._aside = kernel.Mount("box", aside, None, kernel.MS_REMOUNT | FLAGS)

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return len(self._stack)

    @property
    def top(self) -> str:
        """The topmost one; no two ever have the same name."""
        return self._stack[-1][0]

    @property
    def dirty(self) -> bool:
        """Whether anything was written to the topmost one."""
        return bool(os.listdir(self.top))

    def push(self) -> None:
        """Put a fresh layer on top."""
        if os.statvfs(self._store).f_favail < INODES:
            self.reclaim()
        self._count += 1
        upper, work = (f"{self._store}/{name}{self._count}" for name in "uw")
        os.mkdir(upper, 0o755)
        os.mkdir(work, 0o755)
        lower = ":".join([*(each for each, _ in reversed(self._stack)), *self._lowest])
        options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
        kernel.mount("box", self._target, "overlay", FLAGS, options)
        self._stack.append((upper, work))
        self._mounts.append(self._proc.mount_of(self._target))

    @property
    def mount(self) -> int:
        """The kernel's number of the topmost layer's mount."""
        return self._mounts[-1]

    @property
    def frozen(self) -> frozenset[int]:
        """Numbers of the mounts below the topmost one, in which nobody may write any more."""
        return frozenset(self._mounts[:-1])

    def cut(self, depth: int) -> None:
        """Take off all layers above `depth`."""
        while len(self._stack) > depth:
            self._move_aside.mount()
            self._taken_off.append(self._stack.pop())
            self._mounts.pop()
        if not self._lent:
            self.reclaim()

    def lend(self) -> None:
        """Keep what is taken off until `reclaim`."""
        self._lent = True

    def reclaim(self) -> None:
        """Remove what was taken off."""
        self._lent = False
        while self._taken_off:
            for folder in self._taken_off.pop():
                remove_folder(folder)
            # A state that waits in this layer, until it is gone back to, keeps it mounted. Mounted anew, it forgets the
            # files that it knew, and only with that their space is free.
            self._aside.mount()
            self._aside.umount()


def remove_folder(path: str) -> None:
    """Remove a folder and all in it, following no link, itself neither; what can't be removed stays."""
    empty_folder(path)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def empty_folder(path: str) -> None:
    """Remove all that is in a folder, following no link; what can't be removed stays.

    `shutil.rmtree` calls itself for each folder within a folder: a program that nests enough of them ends the process
    that cleans up after it. Here every folder is first moved to the top, so nothing is ever deep.
    """
    unlike_any = f"{path}/{os.urandom(8).hex()}"
    folders = [] if os.path.islink(path) else [path]
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
    for folder in reversed(folders[1:]):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
