"""A session's files as layers: going back takes a layer off instead of copying anything.

Each layer is an overlay mounted on the session's folder, over the ones before. A process keeps working in the layer in
which it opened its files and entered its folder, so a state that moves to another layer opens them again there.

Limits: a file that is held open for writing is copied whole when a state moves to a new layer.
"""

from __future__ import annotations

import os

from cleaner_rl.sandbox.inside import kernel

MOST = 200
"""The kernel takes the list of layers in one page."""


class Layers:
    """The stack of layers on a session's folder."""

    def __init__(self, store: str, target: str, owner: int, size: str) -> None:
        self._store = store
        self._target = target
        self._count = 0
        self._stack: list[tuple[str, kernel.Mount]] = []
        kernel.mount("layers", store, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=700,{size}")
        self._base = f"{store}/base"
        os.mkdir(self._base, 0o755)
        for name in ("work", "tmp", "shm"):
            os.mkdir(f"{self._base}/{name}", 0o700)
            os.chown(f"{self._base}/{name}", owner, owner)

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
        self._count += 1
        upper, work = (f"{self._store}/{name}{self._count}" for name in "uw")
        os.mkdir(upper, 0o755)
        os.mkdir(work, 0o755)
        lower = ":".join([*(each for each, _ in reversed(self._stack)), self._base])
        options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
        mount = kernel.Mount("box", self._target, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, options)
        mount.mount()
        self._stack.append((upper, mount))

    def cut(self, depth: int) -> None:
        """Take off all layers above `depth`."""
        while len(self._stack) > depth:
            self._stack.pop()[1].umount()
