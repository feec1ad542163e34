"""The nodes of a syntax tree, found once: the rules look at each program many times."""

from __future__ import annotations

import ast
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)


def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return a node and all below it, in the order of the text. They are kept with the node."""
    found: list[ast.AST] | None = getattr(tree, "_nodes", None)
    if found is None:
        found = [tree, *(node for each in tree.body for node in nodes(each))] if isinstance(tree, ast.Module) else []
        waiting = [] if found else [tree]
        while waiting:
            node = waiting.pop()
            found.append(node)
            children: list[ast.AST] = []
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    children += [each for each in value if isinstance(each, ast.AST)]
                elif isinstance(value, ast.AST) and value._fields:  # operators and contexts are read by name
                    children.append(value)
            waiting += reversed(children)
        tree._nodes = found  # type: ignore[attr-defined]
    return found


def nodes_of(tree: ast.AST, kind: type[N]) -> list[N]:
    """Return the nodes of one type, the first of them being the first in the text. They are kept with the tree."""
    kinds: dict[type[ast.AST], list[ast.AST]] | None = getattr(tree, "_kinds", None)
    if kinds is None:
        kinds = {}
        for node in nodes(tree):
            kinds.setdefault(type(node), []).append(node)
        tree._kinds = kinds  # type: ignore[attr-defined]
    return kinds.get(kind, [])  # type: ignore[return-value]


def has(tree: ast.AST, *kinds: type[ast.AST]) -> bool:
    """Return whether a tree has a node of one of these types."""
    return any(nodes_of(tree, kind) for kind in kinds)
