"""Code as sequences of words, of Python lexemes, or of nodes of the syntax tree.

`words` leaves nothing out. `tokens` leaves out the layout and reads any text, broken or not, since failed code often
does not parse. `nodes` needs code that parses.

Limits: `tokens` reads with one regular expression. A string that is never closed runs to the end of its line (with
three quotes: to the end of the text), an f-string is one lexeme, and so is each character that Python does not know.
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

WORD = re.compile(r"\w+|[^\w\s]+|\s+")


def words(code: str) -> list[str]:
    """Return the words, the runs of punctuation and the runs of white space, in order."""
    return WORD.findall(code)


def tokens(code: str) -> list[str]:
    """Return the lexemes, in order, without white space and comments.

    Indentation is left out too: code that is off by a level is a slip of writing, not another idea.
    """
    return [lexeme for lexeme in LEXEME.findall(code) if not lexeme.startswith("#")]


def nodes(code: str) -> list[Hashable] | None:
    """Return the syntax tree in preorder: kinds of nodes, names and constants; None if the code doesn't parse.

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
