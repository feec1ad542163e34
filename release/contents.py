"""What a wheel and a source archive hold, and how much they weigh.

    python -m release.contents dist/

Exits with 1 if something is missing, something doesn't belong there, or the wheel is too heavy.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

MOST = 2_000_000
"""Bytes of a wheel without the viewer's page and sample."""
VIEWER = ("cleaner_rl/view/assets/", "cleaner_rl/view/demo/")
NEEDED = (
    "cleaner_rl/py.typed",
    "cleaner_rl/tasks/prompts/stateless.toml",
    "cleaner_rl/view/assets/app.js",
    "cleaner_rl/view/assets/LICENSES.txt",
    "cleaner_rl/contracts/tools.py",
)
SUFFIXES = {".py", ".typed", ".toml", ".css", ".html", ".js", ".json", ".jsonl", ".parquet", ".svg", ".txt"}
ARCHIVED = ("src", "tests", "benchmarks", "constraints", "docs", "deploy", "recipes", "release", "viewer", "LICENSE")
SECRET = re.compile(r"(^|/)(\.git|__pycache__|\.venv|node_modules|\.env|.*\.pyc|.*\.pem|.*token.*\.toml)(/|$)")


def problems_of_wheel(sizes: dict[str, int]) -> list[str]:
    """What is wrong with a wheel of these files."""
    own = {name: size for name, size in sizes.items() if ".dist-info/" not in name}
    found = [f"{name} is missing" for name in NEEDED if name not in own]
    found += [f"{name} is no part of the package" for name in own if not name.startswith("cleaner_rl/")]
    found += [f"{name} has no business there" for name in own if PurePosixPath(name).suffix not in SUFFIXES]
    slim = slim_size(sizes)
    return found + ([f"it weighs {slim:,} bytes without the viewer's, more than {MOST:,}"] if slim > MOST else [])


def slim_size(sizes: dict[str, int]) -> int:
    """Bytes of all but the viewer's page and sample, as compressed in the wheel."""
    return sum(size for name, size in sizes.items() if not name.startswith(VIEWER))


def problems_of_archive(names: list[str]) -> list[str]:
    """What is wrong with a source archive of these files."""
    inner = [name.partition("/")[2] for name in names]
    found = [f"{each} is missing" for each in ARCHIVED if not any(name.split("/")[0] == each for name in inner)]
    return found + [f"{name} has no business there" for name in inner if SECRET.search(name)]


def main() -> None:
    """The command."""
    folder = Path(sys.argv[1])
    wheel, archive = next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as opened:
        sizes = {each.filename: each.compress_size for each in opened.infolist()}
    with tarfile.open(archive) as files:
        names = files.getnames()
    problems = [f"{wheel.name}: {each}" for each in problems_of_wheel(sizes)]
    problems += [f"{archive.name}: {each}" for each in problems_of_archive(names)]
    for each in problems:
        sys.stderr.write(f"{each}\n")
    weights = f"{slim_size(sizes):,} bytes without the viewer's page and sample, {wheel.stat().st_size:,} with them"
    sys.stdout.write(f"{wheel.name}: {len(sizes)} files, {weights}\n")
    sys.stdout.write(f"{archive.name}: {len(names)} files, {archive.stat().st_size:,} bytes\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
