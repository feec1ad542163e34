"""The nodes of a syntax tree, found once: the rules look at each program many times."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)
T = TypeVar("T", bound=ast.AST)
R = TypeVar("R")
_LEAVES = frozenset({ast.Name, ast.Constant})
"""Most of the nodes. There is nothing below them but contexts."""


def kept(find: Callable[[T], R]) -> Callable[[T], R]:
    """Return a function of a tree that keeps what it finds with the tree. Nobody may change what it returns."""
    name = f"_{find.__module__}.{find.__name__}"

    def found(tree: T) -> R:
        facts = tree.__dict__
        if name not in facts:
            facts[name] = find(tree)
        result: R = facts[name]
        return result

    found.__doc__ = find.__doc__
    return found


@kept
def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return a node and all below it, in the order of the text. They are kept with the node."""
    if isinstance(tree, ast.Module):
        return [tree, *(node for each in tree.body for node in nodes(each))]
    found: list[ast.AST] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if type(node) in _LEAVES:
            continue
        children: list[ast.AST] = []
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                children += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:  # operators and contexts are read by name
                children.append(value)
        waiting += reversed(children)
    return found


@kept
def kinds_of(tree: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    """Return the nodes of a tree by their types. They are kept with the tree."""
    kinds: dict[type[ast.AST], list[ast.AST]] = {}
    if isinstance(tree, ast.Module):
        kinds[ast.Module] = [tree]
        for statement in tree.body:
            for kind, some in kinds_of(statement).items():
                kinds.setdefault(kind, []).extend(some)
    else:
        for node in nodes(tree):
            kinds.setdefault(type(node), []).append(node)
    return kinds


def nodes_of(tree: ast.AST, kind: type[N]) -> list[N]:
    """Return the nodes of one type, the first of them being the first in the text."""
    return kinds_of(tree).get(kind, [])  # type: ignore[return-value]


def has(tree: ast.AST, *kinds: type[ast.AST]) -> bool:
    """Return whether a tree has a node of one of these types."""
    return not kinds_of(tree).keys().isdisjoint(kinds)
