"""Pairs of real Python code, made from published packages in two releases each.

Three sets: `edits` (a function in the older and in the newer release, where it changed: what people really change),
`slips` (a function with a mistake put into it, and the function: what a failing program and its correction look like
when the idea was right), and `others` (two functions of a module: other ideas under one roof).

The packages are fetched by the ordinary pip client into a temporary folder; none of their code is kept. Docstrings are
cut out, since programs that a model writes for a tool have hardly any. The slips are ours, not a model's: a model's
correction often changes more than the mistake.
"""

from __future__ import annotations

import ast
import keyword
import random
import re
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES: dict[str, tuple[str, str]] = {
    "attrs": ("20.3.0", "24.2.0"),
    "click": ("8.0.0", "8.1.7"),
    "flask": ("2.0.0", "3.0.3"),
    "jinja2": ("2.11.3", "3.1.4"),
    "networkx": ("2.5", "3.4"),
    "pygments": ("2.7.0", "2.18.0"),
    "requests": ("2.22.0", "2.32.3"),
    "rich": ("10.0.0", "13.9.4"),
    "sympy": ("1.6", "1.13.3"),
    "werkzeug": ("1.0.1", "3.0.6"),
}
"""All under MIT, BSD or Apache licences, pure Python, as wheels."""
FOLDERS = {"sympy": ("sympy/combinatorics/", "sympy/geometry/", "sympy/ntheory/", "sympy/solvers/")}
"""Of a large package, the part that is read."""
LENGTHS = range(100, 10_001)
"""Characters of a function that is taken."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module's source, its functions by qualified name, and its import lines."""

    source: str
    functions: dict[str, str] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)


Release = dict[str, Module]
Pair = tuple[str, str]
"""The original, and what came after."""


def read_packages() -> dict[str, tuple[Release, Release]]:
    """Both releases of every package."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: (_read_release(Path(folder), name, old), _read_release(Path(folder), name, new))
            for name, (old, new) in PACKAGES.items()
        }


def edits(old: Release, new: Release) -> list[Pair]:
    """Functions of both releases whose text differs."""
    return [
        (code, new[path].functions[name])
        for path, module in old.items()
        if path in new
        for name, code in module.functions.items()
        if new[path].functions.get(name, code) != code
    ]


def slips(release: Release, rng: random.Random) -> list[Pair]:
    """Every function with one mistake in it, of a kind drawn at random, and the function itself."""
    pairs = []
    for module in release.values():
        for code in module.functions.values():
            for slip in rng.sample(SLIPS, len(SLIPS)):
                pair = slip(code, module, rng)
                if pair is not None:
                    pairs.append(pair)
                    break
    return pairs


def others(release: Release, rng: random.Random) -> list[Pair]:
    """Of each module with n functions, n - 1 pairs of two of them."""
    pairs = []
    for module in release.values():
        codes = sorted(set(module.functions.values()))
        for _ in codes[1:]:
            one, other = rng.sample(codes, 2)
            pairs.append((one, other))
    return pairs


def _read_release(folder: Path, name: str, version: str) -> Release:
    target = folder / f"{name}-{version}"
    requirement = f"{name}=={version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "--dest", str(target), requirement], check=True, stderr=subprocess.DEVNULL)
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        paths = [path for path in archive.namelist() if path.endswith(".py") and "test" not in path]
        wanted = FOLDERS.get(name, ("",))
        return {path: _read_module(archive.read(path).decode()) for path in paths if path.startswith(wanted)}


def _read_module(source: str) -> Module:
    module = Module(source)
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno == node.end_lineno:
            module.imports.append(lines[node.lineno - 1])
    for name, function in _functions(tree, ""):
        code = _text(function, lines)
        if len(code) in LENGTHS:
            module.functions[name] = code
    return module


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _text(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> str:
    assert function.end_lineno is not None
    kept = range(function.lineno - 1, function.end_lineno)
    dropped: range = range(0)
    if ast.get_docstring(function) is not None and len(function.body) > 1:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        dropped = range(docstring.lineno - 1, docstring.end_lineno)
    return textwrap.dedent("".join(lines[index] for index in kept if index not in dropped))


# The slips: each takes a function and gives it with a mistake, and as it should be; None where it can't be made.

Slip = Callable[[str, Module, random.Random], Pair | None]


def _at_random(pattern: str, change: Callable[[str, random.Random], str]) -> Slip:
    """Changes one of the places that a pattern finds, drawn at random."""

    def slip(code: str, _: Module, rng: random.Random) -> Pair | None:
        places = list(re.finditer(pattern, code, re.MULTILINE))
        if not places:
            return None
        place = rng.choice(places)
        wrong = code[: place.start()] + change(place.group(), rng) + code[place.end() :]
        return None if wrong == code else (wrong, code)

    return slip


def _without_a_letter(name: str, rng: random.Random) -> str:
    if keyword.iskeyword(name):
        return name
    place = rng.randrange(1, len(name))
    return name[:place] + name[place + 1 :]


def _missing_import(code: str, module: Module, rng: random.Random) -> Pair | None:
    words = set(re.findall(r"\w+", code)) - set(keyword.kwlist)
    used = [line for line in module.imports if words & set(re.findall(r"\w+", line))]
    if not used:
        return None
    missing = rng.randrange(len(used))
    return "".join(used[:missing] + used[missing + 1 :]) + "\n" + code, "".join(used) + "\n" + code


SLIPS: list[Slip] = [
    _at_random(r"[)\]}]", lambda *_: ""),  # a bracket never closed
    _at_random(r":$", lambda *_: ""),  # no colon
    _at_random(r"[\"']", lambda *_: ""),  # no quote
    _at_random(r"\b[A-Za-z_]\w{3,}\b", _without_a_letter),  # a name misspelt
    _at_random(r"(?<=\.)[a-z]\w{2,}\b", lambda name, rng: rng.choice(["get_" + name, name + "s", "value", "items"])),
    _at_random(r"\w+, ", lambda *_: ""),  # an argument or a name left out
    _at_random(r"^ {4}(?=\S)", lambda _, rng: " " * rng.choice([0, 3, 5, 8])),  # a line at the wrong level
    _at_random(r" (?:==|!=|<=|>=|<|>|\+|-|\*|/) ", lambda _, rng: rng.choice([" = ", " + ", " / ", " == "])),
    _missing_import,
]
