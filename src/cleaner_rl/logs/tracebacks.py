"""Finds the traceback that a text ends with, and its exception.

Python's own, with frames as `  File "…", line …`, and IPython's, with `Cell In[…]` and arrows; chained ones are one
ending. Terminals' colours are looked through."""

from __future__ import annotations

import re

from cleaner_rl.tools import ExceptionInfo

FIRST_WORDS = "Traceback (most recent call last)"
COLOUR = re.compile(r"\x1b\[[\d;]*m")
TRACEBACK = re.compile(
    r"^(?:-{10,}\n)?(?:  [+|] )?(?:Exception Group |[A-Z]\w+ +)?Traceback \(most recent call last\).*\n?", re.MULTILINE
)
SYNTAX_FRAME = re.compile(r"^ *(?:File \"[^\"\n]*\"|Cell In ?\[\d+\]), line \d+\n(?: .*\n)+", re.MULTILINE)
"""What a syntax error shows: no first line, one frame."""
LAST_LINE = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?"
    r"(?:Error|Exception|Exit|Interrupt|Warning|Iteration|Group|Fault|Timeout|Expired)|(?:[A-Za-z_]\w*\.)+[A-Z]\w*)"
    r"(?:: ?(?P<message>.*))?$"
)
HEAD = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
"""The same right behind frames, where anything that can be a name is one."""
FRAMES = re.compile(r"^(?: |File |Cell In|Input In|-+>|\[\.\.\.|\Z)")
"""Lines between a traceback's first and last: they are indented, but for IPython's."""
CHAINED = ("During handling of the above exception", "direct cause of the following exception")


def ending_traceback(text: str) -> tuple[int, ExceptionInfo] | None:
    """Return where the traceback begins that a text ends with, and its exception; None if there is none."""
    coloured, text = text, plain(text)
    if FIRST_WORDS not in text and ", line " not in text:
        return None  # nearly all texts, in a fraction of the time
    matches = list(TRACEBACK.finditer(text)) or list(SYNTAX_FRAME.finditer(text))
    if not matches:
        return None
    start = matches[-1].start()
    for earlier in (match.start() for match in reversed(matches[:-1])):
        if not any(words in text[earlier:start] for words in CHAINED):
            break
        start = earlier
    found = _exception(text[matches[-1].end() :].rstrip().splitlines())
    return None if found is None else (_place(coloured, start), found)


def plain(text: str) -> str:
    """Return a text without its colours."""
    return COLOUR.sub("", text) if "\x1b" in text else text


def _place(text: str, start: int) -> int:
    """Return where a character of the plain text is in the coloured one."""
    for colour in COLOUR.finditer(text):
        if colour.start() >= start:
            break
        start += len(colour[0])
    return start


def _exception(lines: list[str]) -> ExceptionInfo | None:
    """Return the exception of a traceback that goes on with these lines, if they are all of it."""
    for index, line in enumerate(lines):
        if FRAMES.match(line):
            continue
        head = HEAD.match(line)
        if head is None:
            return None
        message = head["message"] or ""
        further = lines[index + 1 :]
        if further and not _goes_on(head["type"], message, further):
            return None
        return ExceptionInfo(head["type"], "\n".join([message, *further]))
    return None


def _goes_on(kind: str, message: str, further: list[str]) -> bool:
    """Return whether lines behind an exception's line belong to it: its message goes on, or they are indented."""
    if message.rstrip().endswith((":", ",", "(", "[", "{")) or kind.endswith("Group"):
        return True
    return all(line.startswith((" ", "\t")) for line in further if line.strip())
