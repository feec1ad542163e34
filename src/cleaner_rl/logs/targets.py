"""Whether two calls of one tool have the same target: the same file, arguments, program or tables.

It is asked only where the first call had no effect at all (`warrant`), so that nothing but the aim is left to compare.
What the tool named as wrong may differ; everything else has to come again.

Limits: names are compared by their letters. SQL is read by its words, without a grammar.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rapidfuzz.distance import OSA

from cleaner_rl.purify import code_similarity
from cleaner_rl.tools import CallKind, ToolCall

SIMILAR = 0.5
"""How alike two texts have to be that are to say the same."""
SHORT, LONG = 2, 5
"""Letters that a name needs for a slip of one letter, and for one that exchanges it."""
MOST_WORDS = 100
"""Different words beyond which two texts are not searched for slips: every pair would have to be compared."""
MORE = 0.4
"""Of a program's words, the share that its correction may have beside them."""
PATHS = ("path", "file_path", "filepath", "filePath", "target_file", "filename", "file_name", "file", "notebook_path")
OPERATIONS = ("command", "operation", "action", "mode")
PATCHES = ("patch", "diff", "input")
OLD = ("old_str", "old_string", "oldString", "oldText", "old_text", "search", "old")
NEW = ("new_str", "new_string", "newString", "newText", "new_text", "replace", "replacement", "new")
FILES = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:---|\+\+\+) (?:[ab]/)?)(\S+)", re.MULTILINE)
"""The files that a patch names."""
SQL_WORD = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\d+(?:\.\d+)?|\w+|[^\s\w]")
SQL_NAME = re.compile(r"[^\W\d]\w*")
SQL_TABLE = re.compile(r"\b(?:from|join|into|update|table|describe|desc)\s+([\w.`\"]+)", re.IGNORECASE)
SQL_WORDS = frozenset(
    {
        *("all", "and", "any", "as", "asc", "avg", "between", "by", "case", "count", "cross", "day", "delete"),
        *("desc", "describe", "distinct", "drop", "else", "end", "except", "exists", "from", "full", "group"),
        *("having", "in", "inner", "insert", "intersect", "interval", "into", "is", "join", "left", "like"),
        *("limit", "max", "min", "month", "not", "null", "offset", "on", "or", "order", "outer", "over"),
        *("partition", "right", "select", "set", "show", "sum", "table", "then", "union", "update", "using"),
        *("values", "when", "where", "with", "year"),
    }
)
"""Words that say what a statement does. Every other word is a name."""
FUNCTIONS = frozenset({"avg", "count", "day", "max", "min", "month", "sum", "year"})
"""Those of them that are names, too: they say what a statement does before a parenthesis only."""
FORM = frozenset(
    {
        *("as", "by", "desc", "end", "from", "full", "group", "inner", "into", "join", "left", "limit", "on"),
        *("order", "outer", "over", "set", "table", "using"),
    }
)
"""Those of them that may come and go where the database could not read the statement."""
PRECISE = frozenset("<>!")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_ADDRESSED = re.compile(r"\A(?:edit|insert)\b.*\n|\nend_of_edit\s*\Z")
"""What stands around the text in a command of SWE-agent's."""
_DIGITS = re.compile(r"\d+")
_COMPARISON = re.compile(r"[<>!=~]=|[<>]")


def same_target(failed: ToolCall, correction: ToolCall, told: str) -> bool:
    """Return whether a call is about the same thing as one of the same tool that had no effect.

    `told` is what the tool said of the failure.
    """
    if _asks_for_more(failed.arguments, correction.arguments):
        return False
    if failed.kind is CallKind.PYTHON:
        return same_words(failed.code, correction.code)
    if failed.kind is CallKind.SHELL:
        return _same_command(failed.code, correction.code)
    if failed.kind is CallKind.SQL:
        return _same_statement(failed.code, correction.code, told)
    if failed.kind is CallKind.EDIT or OLD_OR_PATCH & failed.arguments.keys():
        return _same_edit(failed.arguments, correction.arguments, told)
    return _same_arguments(failed.arguments, correction.arguments)


OLD_OR_PATCH = frozenset({*OLD, *PATCHES[:2], "replacement_text"})
"""Arguments that only a tool that edits has, whatever its name."""


def same_program(failed: str, correction: str, told: str) -> bool:
    """Return whether a Python program that ran has a correction that does the same, but for what its error names.

    Everything that it reads, calls and compares has to come again, with the same values.
    """
    trees = [_tree(each) for each in (failed, correction)]
    if None in trees:
        return False
    values, others = (Counter(map(repr, _constants(each))) for each in trees)
    if _COMPARISON.findall(failed) != _COMPARISON.findall(correction):
        return False
    lost, new = unmatched(values.elements(), others.elements())
    if lost or new:
        return False
    gone, come = unmatched(words(failed), words(correction))
    named = {*words(told.rstrip().rpartition("\n")[2])}
    return {*gone} <= named and len(come) <= max(8, MORE * len(words(failed)))


def same_words(failed: str, correction: str) -> bool:
    """Return whether a text that could not be read says what another one does: no word is lost, and few are new."""
    if _COMPARISON.findall(failed) != _COMPARISON.findall(correction):
        return False
    gone, come = unmatched(words(failed), words(correction))
    return not gone and len(come) <= max(2, MORE * len(words(failed)))


def words(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case, without what is between them."""
    return [each.lower() for each in _WORD.findall(text)]


def misspelt(first: str, second: str) -> bool:
    """Return whether one name is the other with a slip: a letter too many, too few, exchanged or at the wrong place.

    The first letter and all digits have to be the same: `import` and `export`, `part1` and `part2` are two names.
    """
    first, second = first.lower(), second.lower()
    shortest = min(len(first), len(second))
    if shortest < SHORT or first[0] != second[0] or _DIGITS.findall(first) != _DIGITS.findall(second):
        return first == second
    exchanged = len(first) == len(second) and sorted(first) != sorted(second)
    return OSA.distance(first, second, score_cutoff=1) <= 1 and shortest >= (LONG if exchanged else SHORT)


def unmatched(before: Iterable[str], after: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return what is gone and what has come between two collections of words; a word with a slip is neither."""
    old, new = Counter(before), Counter(after)
    gone, come = list((old - new).elements()), list((new - old).elements())
    if max(len(gone), len(come)) > MOST_WORDS:
        return gone, come
    for each in tuple(gone):
        match = next((other for other in come if misspelt(each, other)), None)
        if match is not None:
            gone.remove(each)
            come.remove(match)
    return gone, come


def _asks_for_more(failed: Mapping[str, object], correction: Mapping[str, object]) -> bool:
    """Return whether a call sets a switch that the failed one had not set: to overwrite, to force, to replace all."""
    return any(value is True and failed.get(name) is not True for name, value in correction.items())


def _same_command(failed: str, correction: str) -> bool:
    """Return whether two commands have the same words, but for a slip or a version in the program's name."""
    (old, *rest), (new, *others) = (each.split() or [""] for each in (failed, correction))
    if rest and rest == others:
        slip = misspelt(old, new) and not new.startswith(old)
        return slip or re.fullmatch(rf"{re.escape(old)}[\d.]+", new) is not None
    return words(failed) == words(correction)


def _same_edit(failed: Mapping[str, object], correction: Mapping[str, object], told: str) -> bool:
    """Return whether two edits put the same words into one file by one operation. Line numbers may differ.

    Where an editor found the new text itself wrong (a syntax error), a text that is alike is enough.
    """
    if any(failed.get(name) != correction.get(name) for name in OPERATIONS):
        return False
    path, other = (next((str(each[name]) for name in PATHS if each.get(name)), "") for each in (failed, correction))
    if path != other and not (path and other and _ends_with(path, other)):
        return False
    known = {*failed, *OLD, *NEW, *PATHS}
    if any(not isinstance(value, int) for name, value in correction.items() if name not in known):
        return False
    edits, others = failed.get("edits"), correction.get("edits")
    if isinstance(edits, list) and isinstance(others, list):
        pairs = [
            (one, two)
            for one, two in zip(edits, others, strict=False)
            if isinstance(one, dict) is isinstance(two, dict)
        ]
        return len(pairs) == len(edits) == len(others) and all(_same_texts(*pair, told) for pair in pairs)
    return _same_texts(failed, correction, told)


def _same_texts(failed: Mapping[str, object], correction: Mapping[str, object], told: str) -> bool:
    """Return whether the texts of two edits say the same."""
    old, other_old = (_text(each, OLD) for each in (failed, correction))
    surrounding = {*words(old), *words(other_old)}
    for name in {*failed} - {*PATHS, *OPERATIONS, *OLD, "edits"}:
        value, new = failed[name], correction.get(name)
        if isinstance(value, int) or value == new:
            continue
        if not isinstance(value, str) or not isinstance(new, str) or FILES.findall(value) != FILES.findall(new):
            return False
        if name in PATCHES and "\n" not in value.strip():
            return False  # a command and a path, without a text
        if SYNTAX.search(told):
            value, new = _ADDRESSED.sub("", value), _ADDRESSED.sub("", new)
            if value.strip() not in new and code_similarity(value, new).value < SIMILAR:
                return False
        elif not _says_the_same(value, new, surrounding):
            return False
    if not old or not other_old:
        return True  # a part that the call lacked
    deletes = not _text(failed, NEW) and not _text(correction, NEW)
    if deletes:
        return unmatched(words(old), words(other_old)) == ([], [])
    return old.strip() in other_old or code_similarity(old, other_old).value >= SIMILAR


def _says_the_same(text: str, new: str, surrounding: set[str]) -> bool:
    """Return whether a text has all words of another, and beside them only words that the file already has there."""
    gone, come = unmatched(words(text), words(new))
    lost = Counter(_COMPARISON.findall(text)) - Counter(_COMPARISON.findall(new))
    return not gone and not lost and {*come} <= surrounding


def _text(arguments: Mapping[str, object], names: Iterable[str]) -> str:
    return next((value for name in names if isinstance(value := arguments.get(name), str)), "")


def _ends_with(path: str, other: str) -> bool:
    shorter, longer = sorted((path.removeprefix("./").strip("/"), other.strip("/")), key=len)
    return bool(shorter) and f"/{longer}".endswith(f"/{shorter}")


def _same_arguments(failed: Mapping[str, object], correction: Mapping[str, object]) -> bool:
    """Return whether a call gives the same values again, perhaps by other names or in another form."""
    old, new = (Counter(words(" ".join(map(str, _leaves(dict(each)))))) for each in (failed, correction))
    return old == new


def _leaves(value: object) -> Iterator[object]:
    """Yield the values in a value, without the names that they have in it."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value


def _same_statement(failed: str, correction: str, told: str) -> bool:
    """Return whether a statement asks for the same from the same tables.

    Names may differ by a slip, by the table before them, or by a part (`name`, `section_name`); values may not.
    """
    old, new = _statement(failed), _statement(correction)
    if not old or not new or old[0] != new[0] or ";" in (*old, *new):
        return False
    if [each for each in old if _is_value(each)] != [each for each in new if _is_value(each)]:
        return False
    if [each for each in old if each in PRECISE] != [each for each in new if each in PRECISE]:
        return False
    lost, added = unmatched(_keywords(old), _keywords(new))
    if {*lost, *added} - (FORM if SYNTAX.search(told) else frozenset()):
        return False
    if any(unmatched(_tables(failed), _tables(correction))):
        return False
    return _are_parts(*unmatched(_columns(old), _columns(new)))


SYNTAX = re.compile(r"syntax|parse", re.IGNORECASE)


def _statement(text: str) -> list[str]:
    """Return the words of a statement in lower case, without quotes around names."""
    found = SQL_WORD.findall(text.strip().rstrip(";").lower())
    return [each.strip('`"') if each[0] in '`"' else each for each in found]


def _is_value(word: str) -> bool:
    return word[:1] == "'" or word[:1].isdigit()


def _keywords(statement: list[str]) -> list[str]:
    return [each for each, after in _pairs(statement) if _is_keyword(each, after)]


def _is_keyword(word: str, after: str) -> bool:
    return word in SQL_WORDS and (after == "(" or word not in FUNCTIONS)


def _pairs(statement: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each word of a statement with the next one."""
    return zip(statement, [*statement[1:], ""], strict=True)


def _tables(text: str) -> list[str]:
    """Return the tables of a statement, without what is before a dot."""
    return sorted({each.strip('`"').lower().rpartition(".")[2].replace("_", "") for each in SQL_TABLE.findall(text)})


def _columns(statement: list[str]) -> list[str]:
    """Return the names of a statement, without the tables before a dot."""
    return [
        each
        for each, after in _pairs(statement)
        if after != "." and SQL_NAME.fullmatch(each) and not _is_keyword(each, after)
    ]


def _are_parts(gone: list[str], come: list[str]) -> bool:
    return len(gone) == len(come) and all(any(_is_part(each, other) for other in come) for each in gone)


def _is_part(name: str, other: str) -> bool:
    """Return whether one name ends with the other, however its words are joined: `id`, `studentId`, `student_id`."""
    short, long = sorted((name, other), key=len)
    return short.replace("_", "") == long.replace("_", "") or long.endswith(f"_{short}")


def _tree(program: str) -> ast.Module | None:
    try:
        return ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _constants(tree: ast.Module | None) -> list[object]:
    """Return the texts and numbers of a program."""
    return [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)] if tree is not None else []
