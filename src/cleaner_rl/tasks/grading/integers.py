r"""Integers compared as digits: most answers of the contests need no algebra, and no other process.

`42`, `042`, `+42`, `$42$`, `1,234`, `1{,}234`, `1\,234`, `-7` with a Unicode minus, `42.` and `42.0` are integers here.
Digits are compared as text, so a million of them cost a million steps.

Limits: grouping is read as thousands only where each group has three digits; everything else goes to the verifier.
"""

from __future__ import annotations

import re

_SPACES = re.compile(r"(?:\\[,;:!\s]|[\s~$])++")
_BETWEEN_DIGITS = re.compile(rf"(?<=[0-9]){_SPACES.pattern}(?=[0-9])")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?:\.0*)?")
_PLAIN = re.compile(r"([+-]?)([0-9]+)(?:\.0*)?")


def integer(answer: str) -> str | None:
    """An integer in its one form, without leading zeros; None if the answer isn't written as an integer."""
    text = answer.replace("−", "-")
    # Between digits a space of any kind groups like a comma: if it fell out, "1 2" would become 12.
    text = _SPACES.sub("", _BETWEEN_DIGITS.sub(",", text))
    if _GROUPED.fullmatch(text):
        text = text.replace("{,}", "").replace(",", "")
    if not (found := _PLAIN.fullmatch(text)):
        return None
    digits = found[2].lstrip("0") or "0"
    return f"-{digits}" if found[1] == "-" and digits != "0" else digits
