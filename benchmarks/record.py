"""Keeps a benchmark's figures beside the commit and the machine that they are from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DIRTY = "-dirty"
RESULTS = ":(top,exclude)benchmarks/results"
"""Figures saved a moment ago change nothing of the next ones."""


def commit() -> str:
    """The commit that runs, marked if something beside the results differs from it."""
    name = _git("rev-parse", "--short", "HEAD")
    return f"{name}{DIRTY}" if _git("status", "--porcelain", "--untracked-files=no", "--", RESULTS) else name


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def save(path: Path, figures: Mapping[str, object], settings: Mapping[str, object]) -> None:
    """Write one JSON object: figures, settings, commit, machine.

    What was measured on a tree that differs from its commit is marked, and `tests/benchmarks` refuses to keep it.
    """
    measured = commit()
    if measured.endswith(DIRTY):
        sys.stderr.write(f"{path}: these figures are no commit's; to keep them, measure again on a clean clone\n")
    record = {
        "figures": figures,
        "settings": settings,
        "commit": measured,
        "machine": machine(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n")


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    load = [round(each, 1) for each in os.getloadavg()]  # over 1, 5 and 15 minutes: how alone it was
    return {"cpu": _cpu(), "cores": os.cpu_count(), "python": platform.python_version(), "load": load}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
