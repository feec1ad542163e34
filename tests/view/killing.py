"""A reader of files that one of them kills, as a machine does that has no memory left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa

from cleaner_rl.view import lines

DEADLY = "z.jsonl"
"""Not the first by name: that one is read by the viewer itself."""


def lines_of(path: Path) -> pa.Table:
    if path.name == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return lines.lines_of(path)
