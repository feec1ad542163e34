"""What a program may leave that plain recursion doesn't get to the end of."""

from __future__ import annotations

import os
from pathlib import Path


def nested(top: Path) -> None:
    """Folders within folders, as a program that runs may make them."""
    top.mkdir(exist_ok=True)
    descriptor = os.open(top, os.O_PATH)
    for _ in range(1200):
        os.mkdir("inner", dir_fd=descriptor)
        inner = os.open("inner", os.O_PATH, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
