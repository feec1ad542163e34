"""How large the project is: lines, public names, recipe keys, options, plug-in groups, dependencies of a bare install.

python -m tests.size            the totals
python -m tests.size --json     all figures, as `benchmarks/results/size.json` keeps them

Names, options and keys are counted in the files that `python -m tests.frozen` writes from the code.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TypedDict

from benchmarks import record

ROOT = Path(__file__).parents[1]
FOLDERS = ("src/*", "packages/*/src/*", "tests", "packages/*/tests", "benchmarks")
GROUP = re.compile(r'\bgroup="(cleaner_\w+\.\w+)"')


class Size(TypedDict):
    """The figures of one checkout."""

    lines: dict[str, dict[str, int]]
    """Lines of Python in each folder, by package; `.` is what lies in the folder itself."""
    exports: dict[str, int]
    recipe_keys: dict[str, int]
    options: dict[str, int]
    plugin_groups: list[str]
    dependencies: dict[str, list[str]]
    """What a bare install of each distribution asks for, without what these packages ask for themselves."""


def measure(root: Path = ROOT) -> Size:
    """Measure a checkout."""
    folders = [folder for pattern in FOLDERS for folder in sorted(root.glob(pattern))]
    sources = [file for folder in folders if folder.parent.name == "src" for file in folder.rglob("*.py")]
    projects = [tomllib.loads(file.read_text())["project"] for file in _each(root, "pyproject.toml")]
    names = [re.split(r"[(:]", line)[0] for line in _listed(root, "public_api.txt")]
    section, keys = "", []
    for line in (root / "docs/reference/recipe.md").read_text().splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        keys += [section] if line.startswith("| `") else []
    return {
        "lines": {str(folder.relative_to(root)): _lines(folder) for folder in folders},
        "exports": Counter(name.rpartition(".")[0] for name in names if ".contracts." not in name),
        "recipe_keys": Counter(keys),
        "options": Counter(line.partition("  ")[0] for line in _listed(root, "flags.txt") if "  -" in line),
        "plugin_groups": sorted({group for file in sources for group in GROUP.findall(file.read_text())}),
        "dependencies": {
            project["name"]: sorted(re.split(r"[^\w-]", each)[0] for each in project["dependencies"])
            for project in projects
        },
    }


def totals(size: Size) -> dict[str, int]:
    """Add the figures up."""
    asked = {name for names in size["dependencies"].values() for name in names} - size["dependencies"].keys()
    return {
        **{f"lines of {folder}": sum(lines.values()) for folder, lines in size["lines"].items()},
        "exported names": sum(size["exports"].values()),
        "recipe keys": sum(size["recipe_keys"].values()),
        "options": sum(size["options"].values()),
        "options of the largest command": max(size["options"].values()),
        "plug-in groups": len(size["plugin_groups"]),
        "dependencies of a bare install": len(asked),
    }


def _each(root: Path, name: str) -> list[Path]:
    """Return the files of a name at the root and in each package, beside its sources or in its tests."""
    where = ("", "tests/", "tests/cli/")
    return [
        file for at in where for pattern in ("", "packages/*/") for file in sorted(root.glob(f"{pattern}{at}{name}"))
    ]


def _listed(root: Path, name: str) -> list[str]:
    return [line for file in _each(root, name) for line in file.read_text().splitlines()]


def _lines(folder: Path) -> dict[str, int]:
    lines: Counter[str] = Counter()
    for file in sorted(folder.rglob("*.py")):
        package, _, inner = str(file.relative_to(folder)).partition("/")
        lines[package if inner else "."] += len(file.read_text().splitlines())
    return lines


if __name__ == "__main__":
    measured = measure()
    if sys.argv[1:] == ["--json"]:
        sys.stdout.write(
            json.dumps({"commit": record.commit(), "totals": totals(measured), **measured}, indent=1) + "\n"
        )
    else:
        sys.stdout.writelines(f"{figure:7,}  {name}\n" for name, figure in totals(measured).items())
