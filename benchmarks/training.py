"""Runs `cleaner train` on `recipes/tiny-cpu.yaml` in a process of its own, within a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes" / "tiny-cpu.yaml"
TAIL = 5_000
"""Characters of a failed run's last words."""


def train(
    world: Path, folder: Path, settings: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> Path:
    """Train in `folder` on a toy environment, without its cold start, and return the run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [f"--set={each}" for each in ("cold_start=null", f"run.folder={folder}", *settings)]
    program = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "train", str(RECIPE), *chosen]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"TOY": str(world), "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", **(environment or {})}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(program, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
        if code:
            log.seek(0)
            raise RuntimeError(f"the run ended with {code}: {log.read()[-TAIL:]}")
    return folder / "tiny-cpu"
