r"""Find the answer in a model's final turn.

- Mathematics: in the last `\boxed{}` (or `\fbox{}`) whose braces balance, wherever in the text it is. Boxes side by
  side are one answer; boxes in a program or after "not" are ignored.
- Choices: see `choice`.
- Programs: in the last fenced block marked as Python, or the last fenced block of all, as far in as its fence.

All are linear in the length of the text. Limits: only the text given is searched, so give the final turn and not the
whole trajectory; an answer outside of a box is no answer to a mathematical question.
"""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_SHORT_BOX = re.compile(r"\\boxed\s*([0-9A-Za-z])")
_NEGATED = re.compile(r"\b(?:not|never|isn't|isn’t|rather than|instead of)[\s$*:({]*$", re.IGNORECASE)
_BESIDE = re.compile(r"\}[\s$*.]*(?:,|and|or|,\s*and|,\s*or|;)[\s$*]*$")
MOST_BOXES = 32
"""Boxes side by side that are read as one answer."""
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_OPENING = re.compile(r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w+-]*+)[^`]*+")
_PYTHON = ("python", "py", "python3")
_CLOSING = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)[`~]*+[ \t]*+")


def boxed(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{}`, without boxes around all of it; None if there is none."""
    found = _last_box(text)
    return None if found is None else text[found[1] : found[2]]


def boxed_answer(text: str) -> str | None:
    r"""Return what a text gives as its answer: its last box, and boxes side by side with it, as a list.

    Boxes in a program or after "not" are ignored.
    """
    text = _without_programs(text)
    found = _last_box(text)
    if found is None:
        short = _SHORT_BOX.findall(text)
        return short[-1] if short else None
    begin, start, end, _ = found
    if _NEGATED.search(text, max(0, begin - 40), begin):
        return None
    answers = [text[start:end]]
    while len(answers) < MOST_BOXES and (beside := _BESIDE.search(text, max(0, begin - 40), begin)):
        before = _last_box(text[: beside.start() + 1])
        if before is None or before[3] != beside.start():
            break
        answers.insert(0, "or" if "or" in beside[0] else ",")
        answers.insert(0, text[before[1] : before[2]])
        begin = before[0]
    return " ".join(answers)


def _last_box(text: str) -> tuple[int, int, int, int] | None:
    """Where the last complete box begins, where its content begins and ends, and where its last brace is."""
    boxes = {match.end() - 1: match.start() for match in _BOX.finditer(text)}
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
    outer = closed_by[last]
    start, end = _trimmed(text, last + 1, outer)
    while (inner := _BOX.match(text, start)) and closed_by.get(inner.end() - 1) == end - 1:
        start, end = _trimmed(text, inner.end(), end - 1)
    return boxes[last], start, end, outer


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def program(text: str) -> str | None:
    """Return the program in the text's last fenced block of Python, or of any or no language; None if there is no
    block.
    """
    blocks = _blocks(text)
    python = [code for language, code in blocks if language in _PYTHON]
    if python:
        return python[-1]
    return blocks[-1][1] if blocks else None


def _without_programs(text: str) -> str:
    """A text without its blocks of Python, whose boxes are strings of a program."""
    if "```" not in text and "~~~" not in text:
        return text
    for language, code in _blocks(text):
        if language in _PYTHON and "box" in code:
            text = text.replace(code, "\n")
    return text


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
