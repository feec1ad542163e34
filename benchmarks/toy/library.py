"""Twenty operations on lists of integers, and the library `kit` that offers them under names that may change.

A library's functions are called `stem_suffix`; `Names` says which suffix each stem has today. The library is a real
distribution in a folder of its own (`write`), so that a sandbox offers it as it offers any other: programs import it,
their line numbers are their own, and tracebacks show its lines.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

MODULE = "kit"
SUFFIXES = ("of", "all", "up", "fast", "list", "new")
Names: TypeAlias = Mapping[str, str]
"""The suffix of each stem."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: from a list to a list, or from a list to the number that answers the question."""

    stem: str
    words: str
    body: str
    """A Python expression over `x`."""


MAPS = (
    Operation("droplow", "drop the lowest", "[v for i, v in enumerate(x) if i != x.index(min(x))]"),
    Operation("drophigh", "drop the highest", "[v for i, v in enumerate(x) if i != x.index(max(x))]"),
    Operation("double", "double each", "[2 * v for v in x]"),
    Operation("grow", "add one to each", "[v + 1 for v in x]"),
    Operation("square", "square each", "[v * v for v in x]"),
    Operation("sort", "sort them", "sorted(x)"),
    Operation("turn", "reverse them", "x[::-1]"),
    Operation("once", "drop repeats", "list(dict.fromkeys(x))"),
    Operation("odds", "keep the odd ones", "[v for v in x if v % 2]"),
    Operation("evens", "keep the even ones", "[v for v in x if v % 2 == 0]"),
)
FOLDS = (
    Operation("total", "give the total", "sum(x)"),
    Operation("largest", "give the largest", "max(x)"),
    Operation("smallest", "give the smallest", "min(x)"),
    Operation("count", "give the count", "len(x)"),
    Operation("spread", "give the spread", "max(x) - min(x)"),
    Operation("first", "give the first", "x[0]"),
    Operation("last", "give the last", "x[-1]"),
    Operation("middle", "give the median", "sorted(x)[len(x) // 2]"),
    Operation("ends", "give the sum of both ends", "x[0] + x[-1]"),
    Operation("gap", "give the gap between the ends", "abs(x[0] - x[-1])"),
)
OPERATIONS = {each.stem: each for each in (*MAPS, *FOLDS)}


def random_names(draw: random.Random) -> dict[str, str]:
    """A suffix for each stem."""
    return {stem: draw.choice(SUFFIXES) for stem in OPERATIONS}


def changed(names: Names, count: int, draw: random.Random) -> dict[str, str]:
    """The same names, but for `count` stems that have another suffix now."""
    moved = draw.sample(sorted(names), count)
    return {**names, **{stem: draw.choice([each for each in SUFFIXES if each != names[stem]]) for stem in moved}}


def called(stem: str, names: Names) -> str:
    """A function's name in the library."""
    return f"{stem}_{names[stem]}"


def source(names: Names, *, hint: bool) -> str:
    """The library as Python. With `hint`, asking for a name that it lacks is answered with the right one."""
    parts = ["def ints(text):\n    return list(map(int, text.split()))\n"]
    for stem, operation in OPERATIONS.items():
        check = "    if not all(type(v) is int for v in x):\n        raise TypeError('x must hold integers')\n"
        parts.append(f"def {called(stem, names)}(x):\n{check}    return {operation.body}\n")
    if hint:
        table = {stem: called(stem, names) for stem in OPERATIONS}
        parts.append(
            f"_NAMES = {table}\n\n\n"
            "def __getattr__(name):\n"
            "    right = _NAMES.get(name.partition('_')[0])\n"
            "    more = f'; use {right}' if right else ''\n"
            f'    raise AttributeError(f"no {MODULE}.{{name}}{{more}}")\n'
        )
    return "\n\n".join(parts)


SALT, FACTOR, MODULUS = 1_000_003, 48_271, 2_147_483_647


def task_names(numbers: Sequence[int], world: int) -> dict[str, str]:
    """The suffix of each stem in a task over these numbers, where names differ from task to task."""
    value = world + 1
    for number in numbers:
        value = (value * SALT + number) % MODULUS
    return {
        stem: SUFFIXES[(value + place * SALT) * FACTOR % MODULUS // 1_000 % len(SUFFIXES)]
        for place, stem in enumerate(OPERATIONS)
    }


def task_source(world: int) -> str:
    """The library whose names differ from task to task, as Python: `ints` tells it the task. It always gives hints.

    Before `ints` was called, no list holds integers, and every name is answered with that.
    """
    parts = [
        f"_STEMS = {list(OPERATIONS)}\n_SUFFIXES = {SUFFIXES}\n_task = []\n",
        "def ints(text):\n    _task[:] = map(int, text.split())\n    return list(_task)\n",
    ]
    check = "    if not all(type(v) is int for v in x):\n        raise TypeError('x must hold integers')\n"
    for stem, operation in OPERATIONS.items():
        parts.append(f"def _{stem}(x):\n{check}    return {operation.body}\n")
    parts.append(
        "def _right(stem):\n"
        f"    value = {world + 1}\n"
        "    for number in _task:\n"
        f"        value = (value * {SALT} + number) % {MODULUS}\n"
        f"    place = (value + _STEMS.index(stem) * {SALT}) * {FACTOR} % {MODULUS} // 1000 % len(_SUFFIXES)\n"
        "    return f'{stem}_{_SUFFIXES[place]}'\n"
    )
    parts.append(
        "def __getattr__(name):\n"
        "    stem = name.partition('_')[0]\n"
        "    right = _right(stem) if stem in _STEMS else ''\n"
        "    if right and (not _task or name == right):\n"
        "        return globals()['_' + stem]\n"
        "    more = f'; use {right}' if right else ''\n"
        f'    raise AttributeError(f"no {MODULE}.{{name}}{{more}}")\n'
    )
    return "\n\n".join(parts)


def functions(names: Names) -> dict[str, Callable[[list[int]], Any]]:
    """The library's own functions by stem: what the sandbox runs is also what says what is right."""
    namespace: dict[str, Callable[[list[int]], Any]] = {}
    exec(source(names, hint=False), namespace)
    return {stem: namespace[called(stem, names)] for stem in OPERATIONS}


def write(folder: Path, names: Names, *, hint: bool) -> Path:
    """The library as a sandbox's environment, which a node loads from its folder; returns the folder."""
    return write_source(folder, source(names, hint=hint))


def write_source(folder: Path, text: str) -> Path:
    """A library of this source as a sandbox's environment; returns the folder."""
    packages = folder / "packages"
    info = packages / f"{MODULE}-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (packages / f"{MODULE}.py").write_text(text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1\n")
    (info / "RECORD").write_text(f"{MODULE}.py,,\n{MODULE}-1.dist-info/METADATA,,\n{MODULE}-1.dist-info/RECORD,,\n")
    (folder / "environment.json").write_text(json.dumps({"requirements": MODULE}))
    return folder
