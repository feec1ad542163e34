r"""Find the answer in a model's final turn.

- Mathematics: in the last `\boxed{}` (or `\fbox{}`) whose braces balance, wherever in the text it is.
- Choices: the same box; without one, the last "answer: C", "answer is (C)" or "answer is option C". "A or B" is none.
- Programs: in the last fenced block marked as Python, or the last fenced block of all, as far in as its fence.

All are linear in the length of the text. Limits: only the text given is searched, so give the final turn and not the
whole trajectory; an answer outside of a box is no answer to a mathematical question.
"""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
# Model text decides what these see: possessive quantifiers give nothing back, so a long run is never tried twice.
_OPTION = r"(?:(?:option|choice)\b[\s*:]*+)?"
# "A or B" chooses neither; "C and nothing else" does.
_ALONE = r"(?-i:(?![\s).*]*+(?:or|and|&)[\s(*]++[A-Z]\b))"
_STATED = re.compile(
    r"\banswer\b\**+\s*+(?:is|:)[\s*:]*+"
    rf"{_OPTION}[\\$({{\[]{{0,3}}\s*+(?:text\{{)?\(?([A-Z])\b(?![a-z'’]){_ALONE}",
    re.IGNORECASE,
)
_LETTER = re.compile(rf"(?i:{_OPTION})\(?([A-Z])\)?{_ALONE}(?:[.:)\s].*)?", re.DOTALL)
_WRAPPERS = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textrm)\s*\{([^{}]*)\}")
_OPENING = re.compile(r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w+-]*+)[^`]*+")
_CLOSING = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)[`~]*+[ \t]*+")


def boxed(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{}`, without boxes around all of it; None if there is none."""
    boxes = {match.end() - 1 for match in _BOX.finditer(text)}
    if not boxes:
        return None
    opened: list[int] = []
    closed_by: dict[int, int] = {}
    last: int | None = None
    for match in _BRACES.finditer(text, min(boxes)):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            brace = opened.pop()
            if brace in boxes:
                # Of nested boxes the outer one closes last, and is the one that counts.
                closed_by[brace] = match.start()
                last = brace
    if last is None:
        return None
    start, end = _trimmed(text, last + 1, closed_by[last])
    while (inner := _BOX.match(text, start)) and closed_by.get(inner.end() - 1) == end - 1:
        start, end = _trimmed(text, inner.end(), end - 1)
    return text[start:end]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def choice_letter(text: str, letters: str = "ABCD") -> str | None:
    """Return the chosen letter; None if the text chooses none of `letters`."""
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
    """Return the program in the text's last fenced block of Python, or of any or no language; None if there is no
    block.
    """
    blocks = _blocks(text)
    python = [code for language, code in blocks if language in ("python", "py", "python3")]
    if python:
        return python[-1]
    return blocks[-1][1] if blocks else None


def _blocks(text: str) -> list[tuple[str, str]]:
    """The language and the text of each fenced block. A fence that no later line closes opens none."""
    lines = text.split("\n")
    closings = [_CLOSING.fullmatch(line) for line in lines]
    openings: dict[int, re.Match[str]] = {}
    longest_behind = {"`": 0, "~": 0}
    for number in reversed(range(len(lines))):
        opening, closing = _OPENING.fullmatch(lines[number]), closings[number]
        if opening and len(opening["fence"]) <= longest_behind[opening["fence"][0]]:
            openings[number] = opening
        if closing:
            kind = closing[1][0]
            longest_behind[kind] = max(longest_behind[kind], len(closing[1]))
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    start = 0
    for number, closing in enumerate(closings):
        if opened is None:
            opened, start = openings.get(number), number + 1
        elif closing and closing[1].startswith(opened["fence"]):
            inside = _outdented(lines[start:number], len(opened["indent"]))
            blocks.append((opened["language"].lower(), "".join(f"{line}\n" for line in inside)))
            opened = None
    return blocks


def _outdented(lines: list[str], most: int) -> list[str]:
    """Lines without what they are indented by because their fence is, as in an item of a list."""
    # Of a program the first line is never indented itself: one that isn't shows that its fence alone is.
    first = next((line for line in lines if line.strip()), "")
    width = min(most, _indent(first))
    return [line[min(width, _indent(line)) :] for line in lines]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
