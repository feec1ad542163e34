"""Whether a shell command may stand for one that failed.

Both are parsed into steps (what `&&`, `||`, `;` and new lines join). All steps but one have to be the same in both, and
of the kind that can be done twice; the one that differs is the mistake. It has to run the same program on the same
things, and its failure has to be one of form: the command did nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from cleaner_rl.purify.warrant.reasons import Unwarranted
from cleaner_rl.purify.warrant.texts import alike, misspelt, same_path
from cleaner_rl.purify.warrant.words import (
    NO_SUCH_PACKAGE,
    NO_SUCH_PATH,
    SYNTAX,
    UNKNOWN_COMMAND,
    UNKNOWN_OPTION,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

JOINTS = frozenset({"&&", "||", ";", "&", ";;", "\n"})
WRAPPERS = frozenset({"time", "nice", "nohup", "env", "command", "exec", "stdbuf", "xvfb-run"})
"""Programs that run the one that follows them."""
RUNNERS = {"poetry": "run", "uv": "run", "pipenv": "run", "npx": "", "bundle": "exec", "pdm": "run", "hatch": "run"}
SAME_PROGRAMS = (
    {"python", "python3", "python3.10", "python3.11", "python3.12", "python3.13", "py"},
    {"pip", "pip3"},
    {"node", "nodejs"},
    {"docker-compose", "docker"},
    {"apt", "apt-get"},
    {"vi", "vim"},
    {"egrep", "grep", "fgrep", "rg"},
)
READERS = frozenset(
    {
        *("ls", "cat", "head", "tail", "grep", "egrep", "fgrep", "rg", "ag", "find", "fd", "wc", "sort", "uniq", "cut"),
        *("awk", "sed", "tr", "echo", "printf", "pwd", "which", "type", "file", "stat", "du", "df", "ps", "env"),
        *("printenv", "date", "whoami", "id", "uname", "tree", "less", "more", "nl", "tac", "jq", "yq", "xxd", "od"),
        *("basename", "dirname", "realpath", "readlink", "column", "seq", "sleep", "true", "test", "[", "hostname"),
        *("diff", "cmp", "comm", "md5sum", "sha256sum", "strings", "man", "help", "nproc", "free", "uptime", "cal"),
        *("sqlite3", "psql"),
    }
)
"""They change nothing, unless an option or a redirection says so."""
READING_WORDS = {
    "git": {"log", "status", "diff", "show", "branch", "rev-parse", "ls-files", "blame", "remote", "describe", "tag"},
    "pip": {"list", "show", "freeze", "index", "download", "--version"},
    "docker": {"ps", "images", "logs", "inspect", "version", "info"},
    "kubectl": {"get", "describe", "logs", "top", "explain", "version"},
    "npm": {"ls", "list", "view", "outdated", "--version"},
    "cargo": {"tree", "metadata", "--version"},
}
REPEATABLE = frozenset({"cd", "pushd", "export", "source", ".", "set", "alias", "unset", "ulimit", "shopt", "umask"})
"""Done twice they leave what they leave when done once. So do these with a word behind them:"""
REPEATABLE_WORDS = {
    "mkdir": {"-p", "-pv", "--parents"},
    "pip": {"install"},
    "pip3": {"install"},
    "npm": {"install", "ci", "i"},
    "git": {"fetch", "add", "init", "config"},
    "conda": {"activate"},
    "module": {"load"},
}
CHANGING_OPTIONS = {
    "sed": re.compile(r"^(?:-[nEr]*i|--in-place)"),
    "find": re.compile(r"^-(?:delete|exec|execdir|ok)$"),
    "awk": re.compile(r"inplace"),
    "sort": re.compile(r"^-o"),
    "psql": re.compile(r"(?i)\b(?:insert|update|delete|drop|create|alter|truncate)\b"),
    "sqlite3": re.compile(r"(?i)\b(?:insert|update|delete|drop|create|alter)\b"),
    "git": re.compile(r"^-[dDmM]$|^--delete$|^add$|^remove$"),
}
CHECKERS = frozenset(
    {
        *("pytest", "tox", "nox", "unittest", "jest", "vitest", "mocha", "rspec", "phpunit", "ctest", "gotestsum"),
        *("mypy", "pyright", "ruff", "flake8", "pylint", "eslint", "tsc", "black", "isort", "shellcheck", "hadolint"),
        *("pre-commit", "golangci-lint", "clippy", "rubocop", "prettier", "stylelint", "yamllint", "markdownlint"),
        *("grep", "egrep", "fgrep", "rg", "ag", "diff", "cmp", "comm", "test", "[", "[[", "ping", "nc", "curl", "wget"),
        *("pgrep", "systemctl", "pg_isready", "nslookup", "dig", "which", "cargo", "go", "make", "cmake", "gcc", "g++"),
        *("clang", "javac", "mvn", "gradle", "gradlew", "npm", "yarn", "pnpm", "python", "python3", "node", "ruby"),
        *("terraform", "ansible-playbook", "docker", "helm", "rustc", "ninja", "bazel", "dotnet", "pip-audit"),
    }
)
"""Programs whose exit code is about what they looked at or built. Of these a failure is a finding, unless the program
says that it was called wrongly."""
BYPASS = re.compile(
    r"""(?:^|\s)(?:
        sudo | doas | su\ -c | --no-verify | --force(?:-with-lease|-yes|-reinstall)? | -f(?=\s) | --skip\S* | -DskipTests
      | --no-check\S* | --insecure | -k(?=\s+https?) | --allow-\S+ | --ignore-\S+ | --break-system-packages
      | --legacy-peer-deps | --no-deps | --user | chmod\ (?:-R\ )?(?:0?777|a\+rwx) | set\ \+e | setenforce
      | --privileged | --dangerously\S* | --yes-i-really\S* | --assume-yes | --trusted-host | --no-gpg-sign
      | --no-strict\S* | --exit-zero | --maxfail | --deselect | --exclude-\S+ | -k\ ['"]?not | --noconftest
      | --no-cov | --passWithNoTests | --disable-\S+ | --unsafe\S* | -W\ ignore | --quiet-failures
    )
    | \|\|\s*(?:true\b|:(?=\s|$)|echo\b|exit\ 0) | (?:2|&)>\s*/dev/null | 2>&-
    | ;\s*(?:true|exit\ 0)\s*$""",
    re.VERBOSE,
)
INLINE = {"python": "-c", "python3": "-c", "node": "-e", "ruby": "-e", "perl": "-e", "bash": "-c", "sh": "-c"}
PROGRAMS_IN_WORDS = frozenset({"awk", "sed", "jq", "grep", "egrep", "rg", "perl", "find", "psql", "sqlite3", "xargs"})
"""Programs that have one of their own among the words: there a slip may be anywhere."""
ALIKE = 0.6
_MEANT_WRONGLY = (UNKNOWN_COMMAND, UNKNOWN_OPTION, SYNTAX)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a command: a pipeline, or anything that is more than that."""

    text: str
    commands: tuple[tuple[str, ...], ...]
    """The words of each simple command in it, without redirections."""
    writes: tuple[str, ...]
    """Files that its output goes to."""
    plain: bool
    """Whether it is a pipeline and no loop, function or condition."""
    background: bool = False

    @property
    def program(self) -> str:
        """The program that its last command runs, without what runs it."""
        return _program(self.commands[-1])[0] if self.commands else ""


def shell_refusal(failed: str, correction: str, told: str) -> Unwarranted | None:
    """Return why one command may not stand for another that failed and printed `told`; None if it may."""
    after = steps(correction)
    if after is None:
        return Unwarranted.UNREADABLE
    if bypasses(failed, correction):
        return Unwarranted.BYPASS
    before = steps(failed)
    if before is None:
        # The shell reads a command before it runs any of it.
        if not SYNTAX.search(told):
            return Unwarranted.UNREADABLE
        return None if alike(failed, correction) >= ALIKE else Unwarranted.OTHER_PURPOSE
    pair = _different(before, after)
    if pair is None:
        return Unwarranted.OTHER_PURPOSE
    wrong, right, others = pair
    if not (wrong.plain and right.plain) or wrong.background:
        return Unwarranted.CHANGED
    if (reason := _mistake(wrong, right, told)) is not None:
        return reason
    if not all(_repeatable(each) for each in others) or not _harmless(wrong, right, told):
        return Unwarranted.CHANGED
    return None


def bypasses(failed: str, correction: str) -> bool:
    """Return whether a command switches a safeguard off that the failed one had on."""
    had = {match.group().split("/")[0].strip() for match in BYPASS.finditer(failed)}
    return any(match.group().split("/")[0].strip() not in had for match in BYPASS.finditer(correction))


def _different(before: list[Step], after: list[Step]) -> tuple[Step, Step, list[Step]] | None:
    """Return the one step that differs, and the others of the failed command; None if more than that differs."""
    first = 0
    while first < min(len(before), len(after)) and before[first].text == after[first].text:
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last].text == after[-1 - last].text:
        last += 1
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    # Where to begin is a mistake of form as well: `cd` and its like may be new.
    moved = [each for each in new if each.program in REPEATABLE]
    new = [each for each in new if each not in moved]
    if not old and not new and moved and last:
        # The same command from another folder.
        return before[first], after[-last], before[:first] + before[first + 1 :]
    gone = [each for each in old if each.program == "cd"]
    old = [each for each in old if each not in gone]
    if gone and not moved:
        return None
    if len(old) != 1 or len(new) != 1:
        return None
    return old[0], new[0], [*before[:first], *before[len(before) - last :]]


def _mistake(wrong: Step, right: Step, told: str) -> Unwarranted | None:
    """Return why a failure isn't a mistake of form, or its correction isn't the same call; None if they are."""
    if len(wrong.commands) != len(right.commands):
        return Unwarranted.OTHER_PURPOSE
    inline = False
    for old, new in zip(wrong.commands, right.commands, strict=True):
        if old != new:
            if not _same_call(old, new, told):
                return Unwarranted.OTHER_PURPOSE
            inline = inline or _is_inline(old)
    if any(pattern.search(told) for pattern in _MEANT_WRONGLY):
        return None
    program = _program(wrong.commands[-1])[0] if wrong.commands else ""
    if inline:
        return None
    if "Traceback (most recent call last)" in told and not _cannot_open(told):
        return Unwarranted.FINDING
    if NO_SUCH_PATH.search(told) or NO_SUCH_PACKAGE.search(told):
        return None
    return Unwarranted.FINDING if program in CHECKERS else Unwarranted.CHANGED


def _cannot_open(told: str) -> bool:
    return "can't open file" in told


def _same_call(old: tuple[str, ...], new: tuple[str, ...], told: str) -> bool:
    """Return whether two simple commands run one program on the same things."""
    (program, words), (other, others) = _program(old), _program(new)
    same = program == other or misspelt(program, other) or any({program, other} <= each for each in SAME_PROGRAMS)
    if not same and same_path(program, other) and "/" in program + other:
        same = True
    if not same:
        return False
    if _is_inline(old) and _is_inline(new):
        return alike(" ".join(words), " ".join(others)) >= ALIKE
    operands, targets = _operands(words), _operands(others)
    missing = [each for each in operands if each not in targets]
    added = [each for each in targets if each not in operands]
    if program in PROGRAMS_IN_WORDS and missing and alike(" ".join(words), " ".join(others)) >= ALIKE:
        return len(missing) <= 2 and _last_is_kept(operands, targets)
    if len(missing) > 2 or len(added) > 2 + len(missing):
        return False
    if missing and len(missing) * 2 > len(operands) + 1:
        return False
    for each in missing:
        match = next((target for target in added if same_path(each, target) or misspelt(each, target)), None)
        if match is None:
            return False
        added.remove(match)
    # More operands than before: only where the program asked for them.
    return not added or bool(UNKNOWN_OPTION.search(told))


def _last_is_kept(operands: list[str], targets: list[str]) -> bool:
    """Return whether both work on the same file, which is the last word."""
    if len(operands) < 2 or len(targets) < 2:
        return True
    return operands[-1] == targets[-1] or same_path(operands[-1], targets[-1])


def _operands(words: tuple[str, ...]) -> list[str]:
    return [word.strip("'\"") for word in words if not word.startswith("-") or word == "-"]


def _is_inline(words: tuple[str, ...]) -> bool:
    program, rest = _program(words)
    return INLINE.get(program) in rest


def _repeatable(step: Step) -> bool:
    """Return whether a step that was done before the failure, and again in the correction, leaves the same."""
    return (
        step.plain
        and not step.background
        and not step.writes
        and all(_reads(words) or _can_be_repeated(words) for words in step.commands)
    )


def _harmless(wrong: Step, right: Step, told: str) -> bool:
    """Return whether a step that failed by its form changed nothing that its correction doesn't do again."""
    if any(path not in right.writes for path in wrong.writes):
        return False
    if any(pattern.search(told) for pattern in _MEANT_WRONGLY):
        # Before the one that could not be run, others of the pipeline may have been.
        return all(_reads(words) for words in wrong.commands[:-1]) or len(wrong.commands) == 1
    return all(_reads(words) or _stops_at_once(words) for words in wrong.commands)


def _stops_at_once(words: tuple[str, ...]) -> bool:
    """Return whether a program does nothing if the one thing that it works on isn't there."""
    program, rest = _program(words)
    return program in INLINE or program in CHECKERS or len(_operands(rest)) <= 2


def _reads(words: tuple[str, ...]) -> bool:
    program, rest = _program(words)
    changing = CHANGING_OPTIONS.get(program)
    if changing is not None and any(changing.search(word) for word in rest):
        return False
    return program in READERS or bool(rest and rest[0] in READING_WORDS.get(program, ()))


def _can_be_repeated(words: tuple[str, ...]) -> bool:
    program, rest = _program(words)
    return program in REPEATABLE or bool(rest and rest[0] in REPEATABLE_WORDS.get(program, ()))


def _program(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the program that a command runs in the end, and the words behind it."""
    while words:
        name, rest = words[0].rpartition("/")[2] if "/" in words[0] else words[0], words[1:]
        if name in ("sudo", "doas") or name in WRAPPERS:
            words = tuple(_after_options(rest))
        elif name == "timeout":
            words = tuple(_after_options(rest))[1:]
        elif name in RUNNERS and (not RUNNERS[name] or rest[:1] == (RUNNERS[name],)):
            words = rest[1:] if RUNNERS[name] else rest
        elif name.startswith("python") and rest[:1] == ("-m",) and len(rest) > 1:
            return rest[1], rest[2:]
        else:
            return name, rest
    return "", ()


def _after_options(words: tuple[str, ...]) -> Iterator[str]:
    rest = list(words)
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        rest.pop(0)
    yield from rest


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@lru_cache(256)
def steps(command: str) -> list[Step] | None:
    """Return the steps of a command; None if it can't be parsed."""
    source = command.encode("utf-8", "replace")
    root = _parser().parse(source).root_node
    return None if root.has_error else list(_steps(root))


def _steps(node: Node) -> Iterator[Step]:
    for child in node.children:
        if child.type in ("list", "program"):
            yield from _steps(child)
        elif child.is_named and child.type != "comment":
            following = child.next_sibling
            yield _step(child, background=following is not None and following.type == "&")


def _step(node: Node, background: bool) -> Step:
    words = tuple(tuple(map(_text, _words(each))) for each in _found(node, "command", "declaration_command"))
    writes = tuple(
        _text(each).lstrip("012&>| ")
        for each in _found(node, "file_redirect")
        if ">" in _text(each) and "/dev/null" not in _text(each)
    )
    plain = not any(True for _ in _found(node, *COMPOUND)) and node.type not in COMPOUND
    return Step(" ".join(_text(node).split()), words, tuple(each for each in writes if each != "1"), plain, background)


COMPOUND = ("for_statement", "while_statement", "if_statement", "case_statement", "function_definition", "heredoc_body")


def _found(node: Node, *kinds: str) -> Iterator[Node]:
    if node.type in kinds:
        yield node
        return
    for child in node.children:
        yield from _found(child, *kinds)


def _words(command: Node) -> Iterator[Node]:
    for child in command.children:
        if child.type not in ("file_redirect", "herestring_redirect", "variable_assignment", "heredoc_redirect"):
            yield child


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
