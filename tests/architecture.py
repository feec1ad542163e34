"""The structure of the package, read from its imports: the diagram in ARCHITECTURE.md, and what breaks the rules.

python -m tests.architecture      print cycles and imports past a face
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"
DIAGRAM = re.compile(r"(?<=```mermaid\n).*?(?=```\n)", re.DOTALL)
PACKAGE = "cleaner_rl"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE
FACES = (
    "trajectory.store", "rollout.engines", "rollout.balance",
    "train.rows", "train.trl", "train.verifiers", "train.openenv",
)  # fmt: skip
"""Public beside the packages themselves: each needs libraries that the package as a whole does not."""
SANDBOX = "cleaner_sandbox"
SANDBOX_FACES = (SANDBOX, f"{SANDBOX}.client", f"{SANDBOX}.protocol", f"{SANDBOX}.cli.options")
"""What may be imported of the other distribution; the last, so that one option has one meaning in both commands."""


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Each module, without the package's name in front, and the modules that it imports."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    return {
        _short(module): frozenset(map(_short, graph.find_modules_directly_imported_by(module)))
        for module in graph.modules
        if module != PACKAGE
    }


def packages() -> dict[str, set[str]]:
    """Each package, and the packages that it imports."""
    found: dict[str, set[str]] = {module.partition(".")[0]: set() for module in imports() if "." in module}
    for importer, imported in imports().items():
        for other in imported:
            package, another = importer.partition(".")[0], other.partition(".")[0]
            if package in found and another in found and package != another:
                found[package].add(another)
    return found


def past_a_face() -> Iterator[tuple[str, str]]:
    """Each import of a module that is private to another package: who imports what.

    Read from the source rather than from the graph, which can't tell a function from the module of the same name.
    """
    for file in sorted(SOURCE.rglob("*.py")):
        module = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        package = module.partition(".")[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom):
                continue
            if (node.module or "").partition(".")[0] == SANDBOX and node.module not in SANDBOX_FACES:
                yield module, node.module or ""
            if not (node.module or "").startswith(f"{PACKAGE}."):
                continue
            imported = _short(node.module or "")
            if imported.partition(".")[0] == package:
                continue
            if "." in imported and imported not in FACES:
                yield module, imported
            for name in (each.name for each in node.names):
                if (
                    _is_module(f"{imported}.{name}")
                    and f"{imported}.{name}" not in FACES
                    and not _offers(imported, name)
                ):
                    yield module, f"{imported}.{name}"


def _is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _offers(face: str, name: str) -> bool:
    return name in getattr(importlib.import_module(f"{PACKAGE}.{face}"), "__all__", ())


def cycles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """The groups of modules that import each other, directly or not (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        path.append(module)
        for other in graph.get(module, ()):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in path:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            place = path.index(module)
            if len(path) - place > 1:
                found.append(sorted(path[place:]))
            del path[place:]

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def drawn(imports: dict[str, set[str]]) -> str:
    """Mermaid's text: an arrow from each package to those that it imports, without arrows that follow from others."""
    reach: dict[str, set[str]] = {}

    def reached(package: str) -> set[str]:
        if package not in reach:
            reach[package] = imports[package].union(*(reached(each) for each in imports[package]))
        return reach[package]

    lines = ["graph BT\n"]
    for package in sorted(imports):
        follows = set().union(*(reached(each) for each in imports[package]))
        lines += [f"    {package} --> {each}\n" for each in sorted(imports[package] - follows)]
    return "".join(lines)


def redrawn() -> str:
    """The page with the diagram that the imports draw."""
    return DIAGRAM.sub(lambda _: drawn(packages()), PAGE.read_text())


def _short(module: str) -> str:
    return module.removeprefix(f"{PACKAGE}.")


if __name__ == "__main__":
    broken = [f"cycle: {', '.join(cycle)}" for cycle in cycles(imports())]
    broken += [f"past a face: {importer} imports {other}" for importer, other in past_a_face()]
    sys.stdout.write("".join(f"{line}\n" for line in broken))
    raise SystemExit(1 if broken else 0)
