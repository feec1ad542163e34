"""What the wheels and the source archives of both distributions hold, and how much they weigh.

    python -m release.contents dist/cleaner-sandbox dist/cleaner-rl

Exits with 1 if something is missing, something doesn't belong there, or a wheel is too heavy.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Contents:
    """What the files of one distribution have to hold."""

    package: str
    needed: tuple[str, ...]
    """Files of the wheel, some of each kind."""
    archived: tuple[str, ...]
    """Names at the top of the source archive."""
    most: int
    """Bytes of the wheel, compressed, without `unweighed`."""
    unweighed: tuple[str, ...] = ()
    """Folders of the wheel that may weigh more."""


CLEANER_RL = Contents(
    package="cleaner_rl",
    needed=(
        "cleaner_rl/py.typed",
        "cleaner_rl/tasks/prompts/stateless.toml",
        "cleaner_rl/view/assets/app.js",
        "cleaner_rl/view/assets/LICENSES.txt",
        "cleaner_rl/contracts/tools.py",
    ),
    archived=(
        "src", "tests", "benchmarks", "constraints", "docs", "deploy", "recipes", "release", "viewer", "LICENSE",
    ),
    most=1_000_000,
    unweighed=("cleaner_rl/view/assets/", "cleaner_rl/view/demo/"),
)  # fmt: skip
CLEANER_SANDBOX = Contents(
    package="cleaner_sandbox",
    needed=("cleaner_sandbox/py.typed", "cleaner_sandbox/__main__.py", "cleaner_sandbox/check/__init__.py"),
    archived=("src", "tests", "deploy", "constraints.txt", "README.md", "CHANGELOG.md", "LICENSE", "Containerfile"),
    most=500_000,
)
SUFFIXES = {".py", ".typed", ".toml", ".css", ".html", ".js", ".json", ".jsonl", ".parquet", ".svg", ".txt"}
SECRET = re.compile(r"(^|/)(\.git|__pycache__|\.venv|node_modules|\.env|.*\.pyc|.*\.pem|.*token.*\.toml)(/|$)")


def problems_of_wheel(sizes: dict[str, int], wanted: Contents) -> list[str]:
    """What is wrong with a wheel of these files."""
    own = {name: size for name, size in sizes.items() if ".dist-info/" not in name}
    found = [f"{name} is missing" for name in wanted.needed if name not in own]
    found += [f"{name} is no part of the package" for name in own if not name.startswith(f"{wanted.package}/")]
    found += [f"{name} has no business there" for name in own if PurePosixPath(name).suffix not in SUFFIXES]
    weight = weighed(sizes, wanted)
    return found + ([f"it weighs {weight:,} bytes, more than {wanted.most:,}"] if weight > wanted.most else [])


def weighed(sizes: dict[str, int], wanted: Contents) -> int:
    """Bytes of all that counts, as compressed in the wheel."""
    return sum(size for name, size in sizes.items() if not name.startswith(wanted.unweighed))


def problems_of_archive(names: list[str], wanted: Contents) -> list[str]:
    """What is wrong with a source archive of these files."""
    inner = [name.partition("/")[2] for name in names]
    found = [f"{each} is missing" for each in wanted.archived if not any(name.split("/")[0] == each for name in inner)]
    return found + [f"{name} has no business there" for name in inner if SECRET.search(name)]


def main() -> None:
    """The command."""
    files = [file for folder in sys.argv[1:] for file in sorted(Path(folder).iterdir())]
    problems = []
    for wanted in (CLEANER_SANDBOX, CLEANER_RL):
        wheel, archive = (
            next(file for file in files if file.name.startswith(f"{wanted.package}-") and file.name.endswith(ending))
            for ending in (".whl", ".tar.gz")
        )
        with zipfile.ZipFile(wheel) as opened:
            sizes = {each.filename: each.compress_size for each in opened.infolist()}
        with tarfile.open(archive) as packed:
            names = packed.getnames()
        problems += [f"{wheel.name}: {each}" for each in problems_of_wheel(sizes, wanted)]
        problems += [f"{archive.name}: {each}" for each in problems_of_archive(names, wanted)]
        apart = f" ({weighed(sizes, wanted):,} without {' and '.join(wanted.unweighed)})" if wanted.unweighed else ""
        sys.stdout.write(f"{wheel.name}: {len(sizes)} files, {wheel.stat().st_size:,} bytes{apart}\n")
        sys.stdout.write(f"{archive.name}: {len(names)} files, {archive.stat().st_size:,} bytes\n")
    for each in problems:
        sys.stderr.write(f"{each}\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
