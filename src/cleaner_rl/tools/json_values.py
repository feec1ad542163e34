"""Reads JSON that somebody else wrote, within bounds.

Python's own reader takes lists within lists until its stack is full. A value just below that limit can be read, and
then neither stored nor compared, because the functions that do this have less of the stack left.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

DEEPEST = 100
"""Lists and objects in each other: far more than a log needs, far less than what JSON's writers give up at."""


def read_json(text: str | bytes) -> Any:
    """Read a JSON text from an untrusted source.

    Raises `ValueError`, and nothing else, if the text is not JSON, if it nests deeper than 100 lists or objects, or if
    it holds an integer with more digits than Python converts (4,300).

    Examples:
        >>> from cleaner_rl.tools import read_json
        >>> read_json('{"code": "print(1)"}')
        {'code': 'print(1)'}
        >>> read_json("[" * 100_000)
        Traceback (most recent call last):
        ...
        ValueError: more than 100 lists or objects are nested in each other
    """
    deep = f"more than {DEEPEST} lists or objects are nested in each other"
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        raise ValueError(f"an integer has more than {sys.get_int_max_str_digits():,} digits") from None
    # Brackets are counted first, because that is much faster than looking at every value.
    brackets = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if brackets > DEEPEST and is_too_deep(value):
        raise ValueError(deep)
    return value


def is_too_deep(value: object) -> bool:
    """Return whether a JSON value nests deeper than `DEEPEST`. It goes level by level, without recursion."""
    level: list[Iterable[object]] = [[value]]
    for _ in range(DEEPEST + 1):
        inside = (inner for outer in level for inner in outer)
        level = [each.values() if isinstance(each, dict) else each for each in inside if isinstance(each, dict | list)]
        if not level:
            return False
    return True
