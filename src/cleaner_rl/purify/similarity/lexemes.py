"""Python code as sequences that leave out what doesn't matter to a reader: layout, or spelling altogether.

`tokens` reads any text, broken or not, since failed code often doesn't parse. `nodes` needs code that parses.

Limits: the lexer is a regular expression. It takes a string that is never closed up to the end of its line (with three
quotes: of the text), an f-string as one lexeme, and characters that Python has no use for as a lexeme each.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Hashable

LEXEME = re.compile(
    r"""
      \#[^\n]*                                                        # a comment, dropped below
    | [a-zA-Z]{0,2} (?: \"{3} (?:\\.|[^\\])*? (?:\"{3}|\Z) | '{3} (?:\\.|[^\\])*? (?:'{3}|\Z) )
    | [a-zA-Z]{0,2} (?: " (?:\\.|[^"\\\n])* "? | ' (?:\\.|[^'\\\n])* '? )
    | \.?\d (?: [eE][+-](?=\d) | [\w.] )*                             # a number, or what looks like one
    | \w+
    | \*\*=? | //=? | <<=? | >>=? | -> | := | \.{3} | [-+*/%@&|^=!<>]=
    | \S
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(code: str) -> list[str]:
    """The lexemes, in order, without white space and comments.

    Indentation is left out too: code that is off by a level is a slip of writing, not another idea.
    """
    return [lexeme for lexeme in LEXEME.findall(code) if not lexeme.startswith("#")]


def nodes(code: str) -> list[Hashable] | None:
    """The syntax tree in preorder: kinds of nodes, names and constants; None if the code doesn't parse.

    Nesting too deep for the parser, and bytes that it refuses, count as not parsing.
    """
    try:
        with warnings.catch_warnings():
            # A warning (`"\d"`) can be set to be an error, which would make the result depend on the process.
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    sequence: list[Hashable] = []
    pending: list[object] = [*reversed(tree.body)]
    while pending:
        match pending.pop():
            case ast.Constant(value):
                sequence.append((type(value), value))  # with its type, for 1 == 1.0 == True
            case ast.expr_context() | None:
                pass  # whether a name is read or set follows from where it stands; None is a part left out
            case ast.AST() as node:
                sequence.append(type(node).__name__)
                pending.extend(getattr(node, field) for field in reversed(node._fields))
            case list() as parts:
                pending.extend(reversed(parts))
            case name:
                sequence.append((str, name))
    return sequence
