"""The words of README, documentation, docstrings and help texts: the field's words, and none of our old private ones.

Each pattern names a word that readers had to learn first, with the word to use instead. Code, tables that programs
write, and targets of links are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cleaner_rl.cli import main

ROOT = Path(__file__).parents[1]
GENERATED = re.compile(r"CHANGELOG\.md|docs/reference/(?:commands|recipe|api/.*)\.md")
"""History, and pages that programs write. Some are made of docstrings and help texts, which are checked below."""
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md"))
    if not GENERATED.fullmatch(str(path.relative_to(ROOT)))
)
SOURCES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "src" / "cleaner_rl").rglob("*.py"))

INSTEAD = {
    r"(?:un)?mend(?:s|ed|ing)?": "correct, correction; repair",
    r"seams?": "extension point, hook",
    r"pupils?": "toy model",
    r"taught": "toy model, demonstrations, trained on",
    r"unlearnt": "suppressed",
    r"dearer": "more expensive",
    r"(?:on|for|of) (?:an? )?processors?|processor time": "CPU",
    r"for want of": "because there is no",
    r"c[ao]mes? to": "reaches; result",
    r"groups? of (?:one|equal) rewards?": "zero-variance group",
    r"(?:the|a|this|each|its|our|other|pure|four) rooms?|rooms": "package",
    r"floors?": "layer",
    r"with room": "larger turn budget",
    r"collaps(?:e|es|ed|ing) (?:onto|afterwards|later|what|each|them)": "repair, replace",
    r"ledgers?": "edit",
    r"toolbox(?:es)?": "tool environment",
    r"hands of": "tool session",
    r"on the average": "on average",
    r"(?:calls?|seconds|tokens|rollouts|errors|failures) an? (?:step|trajectory|token|rollout|second|turn|hour)": "per",
    r"an? (?:row|line|message|object|entry|value) an? \w+": "per",
    r"(?:nobody's|whose|own) doing": "fault, blame",
    r"into (?:its|the model's) mouth": "prefill",
    r"live (?:edit|graft|repair|replacement|correction)s?|SAAR,? \(?live\)?": "SAAR",
    r"without a word|gave no word": "silently, timed out",
    r"no number": "NaN",
    r"furthest": "best",
    r"as it stands|where it stands|stands? (?:in|there|here|below|above|beside|between|first|under|behind)": "is",
    r"lies? (?:in|beside|below|there|here|where|flat|folded|together)": "is",
    r"(?:is|are|be|being) told (?:of|to)": "gets, reads",
}
ODD = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), better) for pattern, better in INSTEAD.items()]
NO_PROSE = [
    re.compile(pattern, re.DOTALL | re.MULTILINE)
    for pattern in (
        r"<!-- lab:.*?<!-- /lab:.*?-->",
        r"^(```+|~~~+).*?^\1$",
        r"<!--.*?-->",
        r"`[^`]*`",
        r"\]\([^)\s]*\)",
    )
]


def prose(text: str) -> str:
    """A text without code, comments, generated blocks and targets of links, on the same lines."""
    for pattern in NO_PROSE:
        text = pattern.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text


def odd_words(text: str) -> Iterator[tuple[int, str, str]]:
    """Each word that is not to be used: its line, the word, and what to say instead."""
    text = prose(text)
    for pattern, better in ODD:
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, found[0], better


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Every docstring with its line, also those behind a field."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, f"{path} {name}")


def test_odd_words_are_found_in_prose_only() -> None:
    page = "It mends a call.\n```sh\nmend\n```\nA room of ours, `mend`, [x](mend.md)."
    assert [(line, word) for line, word, _ in odd_words(page)] == [(1, "mends"), (5, "A room")]


@pytest.mark.parametrize("name", PAGES)
def test_pages_use_the_words_of_the_field(name: str) -> None:
    found = [f"{name}:{line}: {word!r}: {better}" for line, word, better in odd_words((ROOT / name).read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", SOURCES)
def test_docstrings_use_the_words_of_the_field(name: str) -> None:
    found = [
        f"{name}:{start + line - 1}: {word!r}: {better}"
        for start, text in docstrings((ROOT / name).read_text())
        for line, word, better in odd_words(text)
    ]
    assert not found, "\n".join(found)


def test_help_texts_use_the_words_of_the_field() -> None:
    found = []
    for path, command in commands(main, "cleaner"):
        texts = [command.help or "", *(each.help or "" for each in command.params if isinstance(each, click.Option))]
        found += [f"{path}: {word!r}: {better}" for text in texts for _, word, better in odd_words(text)]
    assert not found, "\n".join(found)
