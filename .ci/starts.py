"""The README's four starts, line by line, in clean environments: `python .ci/starts.py [NAME ...]`.

A block `<!-- start: NAME, SECONDS s -->` is copied as it stands. Its first line installs the package, here from a wheel
of this checkout and with the pinned versions; the lines after it have the stated seconds. `train` reuses the
environment it is started in, because installing an engine takes many minutes, and leaves out what needs GPUs.
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
    """By name: the seconds, and the lines."""
    found = BLOCK.findall((ROOT / "README.md").read_text())
    return {name: (int(seconds), lines.splitlines()) for name, seconds, lines in found}


def wheel(folder: Path) -> None:
    """This checkout as it would be published."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS)


def run(name: str, seconds: int, lines: list[str], folder: Path) -> None:
    """One start; raises if a line fails or the time is over."""
    environment = {
        **os.environ,
        "PIP_CONSTRAINT": str(ROOT / "constraints" / "slim.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_QUIET": "1",
    }
    place = folder / name
    place.mkdir()
    for needed in ("docs", "recipes"):
        (place / needed).symlink_to(ROOT / needed)
    install, *rest = lines
    if name != REUSED:
        venv.create(place / "venv", with_pip=True)
        environment["PATH"] = f"{place / 'venv' / 'bin'}:{environment['PATH']}"
        environment.pop("PYTHONPATH", None)
        subprocess.run(["bash", "-c", install], env=environment, cwd=place, check=True, timeout=INSTALL_SECONDS)
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
    """Those that are named, or all that need no engine."""
    known = starts()
    names = sys.argv[1:] or [name for name in known if name != REUSED]
    # Not below /tmp: sandboxed programs have their own.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        if names != [REUSED]:
            wheel(Path(made))
        for name in names:
            run(name, *known[name], Path(made))


if __name__ == "__main__":
    main()
