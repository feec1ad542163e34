"""Parses a shell command into its steps: what `&&`, `||`, `;` and new lines join."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from cleaner_rl.logs.warrant.programs import RUNNERS, WRAPPERS

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

COMPOUND = ("for_statement", "while_statement", "if_statement", "case_statement", "function_definition", "subshell")
JOINTS = frozenset({"&&", "||", ";", "&"})
OVER, APPENDED = ">", ">>"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a command: a pipeline, or anything that is more than that."""

    text: str
    commands: tuple[tuple[str, ...], ...]
    """The words of each simple command in it, without redirections."""
    settings: tuple[str, ...] = ()
    """Variables that are set for it."""
    writes: tuple[tuple[str, str], ...] = ()
    """Files that its output goes to, each with how: `>` or `>>`."""
    document: str | None = None
    """The text of its here-document."""
    plain: bool = True
    """Whether it is a pipeline and no loop, function or condition."""
    joint: str = ";"
    """What joins it to the step before it."""
    background: bool = False

    @property
    def program(self) -> str:
        """The program that its last command runs, without what runs it."""
        return program_of(self.commands[-1])[0] if self.commands else ""


@lru_cache(256)
def steps(command: str) -> list[Step] | None:
    """Return the steps of a command; None if it can't be parsed."""
    source = command.encode("utf-8", "replace")
    root = _parser().parse(source).root_node
    return None if root.has_error else list(_steps(root))


def program_of(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the program that a command runs in the end, and the words after it."""
    while words:
        name, rest = words[0].rpartition("/")[2] if "/" in words[0] else words[0], words[1:]
        if name in ("sudo", "doas") or name in WRAPPERS:
            words = _after_options(rest)
        elif name == "timeout":
            words = _after_options(rest)[1:]
        elif name in RUNNERS and (not RUNNERS[name] or rest[:1] == (RUNNERS[name],)):
            words = rest[1:] if RUNNERS[name] else rest
        elif name == "docker" and rest[:1] == ("compose",):
            return "docker-compose", rest[1:]
        elif re.fullmatch(r"python[\d.]*", name) and rest[:1] == ("-m",) and len(rest) > 1:
            return rest[1], rest[2:]
        else:
            return name, rest
    return "", ()


def _after_options(words: tuple[str, ...]) -> tuple[str, ...]:
    rest = list(words)
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        rest.pop(0)
    return tuple(rest)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _steps(node: Node) -> Iterator[Step]:
    joint = ";"
    for child in node.children:
        if child.type in JOINTS:
            joint = child.type
        elif child.type == "list" or (child.type == "redirected_statement" and child.children[0].type == "list"):
            listed = child if child.type == "list" else child.children[0]
            first, *others = _steps(listed)
            found = [replace(first, joint=joint), *others]
            if listed is not child:
                # The redirection after a list belongs to its last command.
                found[-1] = replace(found[-1], writes=(*found[-1].writes, *_writes(child, but=listed)))
            yield from found
            joint = ";"
        elif child.is_named and child.type != "comment":
            following = child.next_sibling
            yield _step(child, joint, background=following is not None and following.type == "&")
            joint = ";"


def _step(node: Node, joint: str, background: bool) -> Step:
    commands = tuple(tuple(map(_text, _words(each))) for each in _found(node, "command", "declaration_command"))
    return Step(
        text=" ".join(_text(node).split()),
        commands=tuple(each for each in commands if each),
        settings=tuple(map(_text, _found(node, "variable_assignment"))),
        writes=tuple(_writes(node)),
        document=next(map(_text, _found(node, "heredoc_body")), None),
        plain=not any(True for _ in _found(node, *COMPOUND)),
        joint=joint,
        background=background,
    )


def _writes(node: Node, but: Node | None = None) -> Iterator[tuple[str, str]]:
    for each in _found(node, "file_redirect", but=but):
        operator, _, target = _text(each).rpartition(">")
        if ">" in _text(each) and target.strip() not in ("/dev/null", "1", "2") and not target.startswith("&"):
            yield (APPENDED if operator.endswith(">") else OVER), target.strip("| ")


def _found(node: Node, *kinds: str, but: Node | None = None) -> Iterator[Node]:
    if node.type in kinds:
        yield node
        return
    for child in node.children:
        if but is None or child.id != but.id:
            yield from _found(child, *kinds)


def _words(command: Node) -> Iterator[Node]:
    for child in command.children:
        if child.type not in ("file_redirect", "herestring_redirect", "variable_assignment", "heredoc_redirect"):
            yield child


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
