"""Keeps a benchmark's figures beside the commit and the machine that they are from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path


def save(path: Path, figures: Mapping[str, object], settings: Mapping[str, object]) -> None:
    """Write one JSON object: figures, settings, commit, machine."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    record = {
        "figures": figures,
        "settings": settings,
        "commit": commit.stdout.strip(),
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
