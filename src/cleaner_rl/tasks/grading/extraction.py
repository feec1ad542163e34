r"""Where the answer stands in a model's final turn.

- Mathematics: in the last `\boxed{}` (or `\fbox{}`) whose braces balance, wherever in the text it is.
- Choices: the same box; without one, the last "answer: C" or "answer is (C)".
- Programs: in the last fenced block marked as Python, or the last fenced block of all.

All are linear in the length of the text. Limits: only the text given is searched, so give the final turn and not the
whole trajectory; an answer outside of a box is no answer to a mathematical question.
"""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_STATED = re.compile(
    r"\banswer\b\**\s*(?:is|:)\s*\**\s*[\\$({\[]{0,3}\s*(?:text\{)?\(?([A-Z])\b(?![a-z'’])", re.IGNORECASE
)
_LETTER = re.compile(r"\(?([A-Z])\)?(?:[.:)\s].*)?", re.DOTALL)
_WRAPPERS = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textrm)\s*\{([^{}]*)\}")
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n`]*\n(.*?)^[ \t]*\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)


def boxed(text: str) -> str | None:
    r"""What the last complete `\boxed{}` holds, inner boxes taken off; None if there is none."""
    answer: str | None = None
    # One pass: where each box begins is looked up when its closing brace comes by.
    begins = {match.end() - 1: match.start() for match in _BOX.finditer(text)}
    if not begins:
        return None
    opened: list[int] = []
    last_end = -1
    for match in _BRACES.finditer(text, min(begins)):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            start = opened.pop()
            # Of nested boxes the outer one closes last, and replaces what the inner one said.
            if start in begins and match.start() > last_end:
                answer, last_end = text[start + 1 : match.start()], match.start()
    if answer is None:
        return None
    inner = answer.strip()
    while (match_inner := _BOX.match(inner)) and inner.endswith("}"):
        inner = inner[match_inner.end() : -1].strip()
    return inner


def choice_letter(text: str, letters: str = "ABCD") -> str | None:
    """The letter chosen; None if the text chooses none of `letters`."""
    if (box := boxed(text)) is not None:
        plain = _WRAPPERS.sub(r"\1", box).replace("$", "").replace("\\", "").strip()
        found = _LETTER.fullmatch(plain.strip("{} "))
        letter = found[1] if found else None
    else:
        # A letter counts in upper case only: "the answer is a number" chooses nothing.
        stated = [match[1] for match in _STATED.finditer(text) if match[1].isupper()]
        letter = stated[-1] if stated else None
    return letter if letter is not None and letter in letters else None


def program(text: str) -> str | None:
    """The program in the text's last fenced block of Python, or of any or no language; None if there is no block."""
    blocks = [(match[2].lower(), match[3]) for match in _FENCE.finditer(text)]
    python = [code for language, code in blocks if language in ("python", "py", "python3")]
    if python:
        return python[-1]
    return blocks[-1][1] if blocks else None
