"""Which programs a shell command runs, and which of them its exit code is from; read without running anything.

It is a light reading, for judging what a command printed: quotes, operators, here-documents and the usual prefixes
(`sudo`, `timeout 60`, `python -m`) are known. Nothing is expanded.

Limits: functions, `case`, and programs that a program starts are not seen, nor is a command longer than `LONGEST`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LONGEST = 20_000
TOKEN = re.compile(
    r"""(?P<operator>&&|\|\|?&?|;;|[;\n]|&(?![>\d]))
      | \d*(?:&>>?|>>?&?|<<<|<)\s*(?P<file>"[^"]*"|'[^']*'|[^\s;|&<>()]*)
      | (?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s;|&<>'"\\])+)
      | \s | .""",
    re.VERBOSE | re.DOTALL,
)
HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(?P<rest>[^\n]*)\n(?:.*?\n)??[ \t]*\2[ \t]*(?=\n|\Z)", re.DOTALL)
STRICT = re.compile(r"\bset -\w*e|\bpipefail\b|\berrexit\b")
"""What makes the failure of any program the failure of the whole."""
ASSIGNMENT = re.compile(r"\w+=")
KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "("})
"""Words that may precede a command."""
NO_COMMAND = frozenset({"for", "case", "done", "fi", "esac", "}", ")", "in", "select", "function"})
PREFIXES = frozenset(
    {
        *("sudo", "time", "nohup", "env", "timeout", "xargs", "nice", "stdbuf", "command", "exec", "unbuffer", "doas"),
        *("npx", "uv", "uvx", "poetry", "pipenv", "bundle", "conda", "pnpm", "yarn", "bunx", "hatch", "pdm"),
    }
)
"""Programs that run the program named behind them."""
BETWEEN = frozenset({"run", "exec", "x", "dlx"})
OWN = "./"
"""A name of every script and program of the project itself."""
PYTHON = re.compile(r"(?:python|pypy)[\d.]*")


@dataclass(frozen=True, slots=True)
class Command:
    """What a shell command runs. A program is a set of names: `python -m pytest` is `python` and `pytest`."""

    programs: tuple[frozenset[str], ...]
    """Every program, in order."""
    deciding: frozenset[str]
    """Names of the programs that the exit code can be from, and of the files that they are redirected to."""

    def runs_only(self, names: frozenset[str]) -> bool:
        """Return whether each of its programs has one of these names."""
        return bool(self.programs) and all(program & names for program in self.programs)


def read_command(code: str) -> Command:
    """Return what a shell command runs.

    The exit code is from the last pipeline, and from those before it that `&&` joins to it; of a pipeline it is from
    the last program.
    """
    if len(code) > LONGEST:
        return Command((), frozenset())
    bare = HERE_DOCUMENT.sub(lambda found: found["rest"], code.replace("\\\n", " "))
    every: list[frozenset[str]] = []
    deciding: set[str] = set()
    strict = STRICT.search(bare)
    before = "\n"
    for operator, words, files in _segments(bare):
        names = _names(words)
        if not names:
            continue
        every.append(names)
        if before == "|" and not strict:
            deciding -= every[-2]
        elif before != "&&" and not strict:
            deciding.clear()
        deciding |= names | {_last_part(file) for file in files}
        before = operator
    return Command(tuple(every), frozenset(deciding))


def _segments(code: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the words of each simple command and the files that it is redirected to, with the operator behind it."""
    words: list[str] = []
    files: list[str] = []
    for found in TOKEN.finditer(code):
        if found["word"]:
            words.append(found["word"])
        elif found["file"]:
            files.append(found["file"])
        elif found["operator"]:
            yield found["operator"].replace("|&", "|"), words, files
            words, files = [], []
    yield "", words, files


def _names(words: Sequence[str]) -> frozenset[str]:
    """Return the names that the program of a simple command goes by; none if there is no program."""
    names: list[str] = []
    rest = [word.strip("()`'\"") if word not in KEYWORDS else word for word in words]
    rest = [word.removeprefix("$(") for word in rest if word]
    while rest and (rest[0] in KEYWORDS or ASSIGNMENT.match(rest[0])):
        rest.pop(0)
    if not rest or rest[0] in NO_COMMAND:
        return frozenset()
    while rest:
        word = rest.pop(0)
        program = _last_part(word)
        names.append(program)
        if ("/" in word and "bin/" not in word) or program.endswith(".sh"):
            names.append(OWN)
        if PYTHON.fullmatch(program):
            return frozenset([*names, "python", *_of_python(rest)])
        if program not in PREFIXES:
            break
        while rest and (rest[0].startswith("-") or rest[0] in BETWEEN or rest[0][:1].isdigit() or "=" in rest[0]):
            rest.pop(0)
    if rest and not rest[0].startswith("-"):
        names.append(f"{names[-1]} {rest[0]}")
    return frozenset(names)


def _of_python(words: Sequence[str]) -> list[str]:
    """Return the module or the script that Python runs."""
    for option, word in zip(("", *words), words, strict=False):
        if option == "-m":
            return [word]
        if option == "-c" or word == "-c":
            return []
        if not word.startswith("-"):
            return [_last_part(word)]
    return []


def _last_part(path: str) -> str:
    return path.strip("'\"").rpartition("/")[2]
