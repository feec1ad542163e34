"""The nodes of a syntax tree, found once: the rules look at each program many times."""

from __future__ import annotations

import ast


def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return a node and all below it, in the order of the text. They are kept with the node."""
    found: list[ast.AST] | None = getattr(tree, "_nodes", None)
    if found is None:
        found = []
        waiting = [tree]
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
