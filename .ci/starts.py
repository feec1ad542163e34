"""Runs the README's quickstarts in a clean environment: `python .ci/starts.py [NAME ...]`.

A block `<!-- start: NAME, SECONDS s -->` is run line by line as written. Its first line installs the package from this
checkout, with the pinned versions; the lines after it run in a folder of their own and must end within the stated
seconds. `train` reuses the environment in which this script runs, because installing an engine takes many minutes, and
leaves out the lines that need GPUs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- start: (\w+), (\d+) s -->\n```sh\n(.*?)\n```\n", re.DOTALL)
INSTALL_SECONDS = 900
REUSED = "train"
ELSEWHERE = "needs GPUs"


def starts() -> dict[str, tuple[int, list[str]]]:
    """The seconds and the lines of each quickstart, by its name."""
    found = BLOCK.findall((ROOT / "README.md").read_text())
    return {name: (int(seconds), lines.splitlines()) for name, seconds, lines in found}


def run(name: str, seconds: int, lines: list[str], folder: Path) -> None:
    """Run one quickstart; exits if a line fails and raises if the time is over."""
    environment = {
        **os.environ,
        "PIP_CONSTRAINT": str(ROOT / "constraints" / "slim.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_QUIET": "1",
    }
    place = folder / name
    place.mkdir()
    for needed in ("docs", "recipes"):
        (place / needed).symlink_to(ROOT / needed)
    install, *rest = lines
    if name != REUSED:
        if not (folder / "venv").exists():  # one environment for all of them
            venv.create(folder / "venv", with_pip=True)
        environment["PATH"] = f"{folder / 'venv' / 'bin'}:{environment['PATH']}"
        environment.pop("PYTHONPATH", None)
        subprocess.run(["bash", "-c", install], env=environment, cwd=ROOT, check=True, timeout=INSTALL_SECONDS)
    script = "\n".join(["set -euo pipefail", *(line for line in rest if ELSEWHERE not in line)])
    begun = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", script], env=environment, cwd=place, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        status = process.wait(timeout=seconds)
    finally:
        for each in (signal.SIGTERM, signal.SIGKILL):  # also what a line left running
            try:
                os.killpg(process.pid, each)
            except ProcessLookupError:
                break
            time.sleep(1)
    if status:
        sys.exit(f"{name}: a line of the start ended with {status}")
    print(f"{name}: {time.monotonic() - begun:.0f} s of {seconds}", flush=True)  # noqa: T201


def main() -> None:
    """Run the quickstarts that are named, or all that need no engine."""
    known = starts()
    names = sys.argv[1:] or [name for name in known if name != REUSED]
    # Not below /tmp: sandboxed programs have their own.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        for name in names:
            run(name, *known[name], Path(made))


if __name__ == "__main__":
    main()
