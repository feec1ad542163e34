"""Finds classes and functions in the source of installed packages, without importing the packages.

Limits: it follows imports and base classes that are written in a module's own statements. What a package creates while
it runs isn't found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Definition:
    """A class or a function, and the module that it is written in."""

    module: str
    node: ast.ClassDef | Function


def package_folder(name: str) -> Path:
    """Return the folder of an installed package; raise `LookupError` if there is none."""
    spec = find_spec(name)  # of a package at the top, so that nothing is imported
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(f"{name} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def definition(place: str) -> Definition:
    """Return what is at "package.module:name" or "package.module:Class.method"; a method may be inherited.

    Raises:
        LookupError: It isn't there; the message says what of it isn't.
    """
    module, _, path = place.partition(":")
    name, *rest = path.split(".")
    found = _top(module, name)
    for member in rest:
        found = _member(found, member)
    return found


def parameters(found: Definition) -> set[str]:
    """Return the names of a function's parameters."""
    assert not isinstance(found.node, ast.ClassDef)
    given = found.node.args
    others = [each for each in (given.vararg, given.kwarg) if each is not None]
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *others)}


def annotated(found: Definition) -> set[str]:
    """Return the fields of a data class, those of its bases too."""
    return {
        each.target.id
        for part in _family(found)
        for each in part.node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def methods(found: Definition, only: str = "") -> set[str]:
    """Return the names of a class's own methods; `only` those with a decorator of this name."""
    return {
        each.name
        for each in found.node.body
        if isinstance(each, Function)
        and (not only or any(isinstance(mark, ast.Name) and mark.id == only for mark in each.decorator_list))
    }


def _top(module: str, name: str) -> Definition:
    for statement in _statements(_parsed(module).body):
        if isinstance(statement, ast.ClassDef | Function) and statement.name == name:
            return Definition(module, statement)
        if isinstance(statement, ast.ImportFrom):
            for each in statement.names:
                if (each.asname or each.name) == name:
                    return _top(_absolute(module, statement), each.name)
    raise LookupError(f"{module} has no {name}")


def _member(found: Definition, name: str) -> Definition:
    for part in _family(found):
        for each in _statements(part.node.body):
            if isinstance(each, Function) and each.name == name:
                return Definition(part.module, each)
    raise LookupError(f"{found.node.name} has no {name}")


def _family(found: Definition) -> Iterator[Definition]:
    """Yield a class and its bases, as far as their source is found."""
    yield found
    assert isinstance(found.node, ast.ClassDef)
    for base in found.node.bases:
        if isinstance(base, ast.Name):
            try:
                above = _top(found.module, base.id)
            except LookupError:
                continue  # of another package, or built in
            yield from _family(above)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those within `if` and `try` too."""
    for each in body:
        yield each
        if isinstance(each, ast.If | ast.Try):
            yield from _statements([*each.body, *each.orelse])


def _absolute(module: str, statement: ast.ImportFrom) -> str:
    """Return the module that a statement imports from."""
    if not statement.level:
        return statement.module or ""
    parts = module.split(".")
    package = parts if _file(module).name == "__init__.py" else parts[:-1]
    return ".".join([*package[: len(package) - statement.level + 1], *filter(None, [statement.module])])


def _file(module: str) -> Path:
    top, *rest = module.split(".")
    folder = package_folder(top).joinpath(*rest)
    return next((file for file in (folder / "__init__.py", folder.with_suffix(".py")) if file.is_file()), folder)


@cache
def _parsed(module: str) -> ast.Module:
    file = _file(module)
    if not file.is_file():
        raise LookupError(f"there is no module {module}")
    return ast.parse(file.read_text(encoding="utf-8"))
