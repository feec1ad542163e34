"""Whether a shell command may stand for one that failed.

Both are parsed into steps. All steps but one have to be the same in both, and those that ran have to be of the kind
that can be done twice; the one that differs is the mistake. It has to run the same program on the same things but for
slips, the program has to say that it was called wrongly, and it has to name what was wrong. Programs inside of a
command (`python -c`, a here-document, a query for `psql`) are compared as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from cleaner_rl.logs.warrant.offers import substituted
from cleaner_rl.logs.warrant.programs import (
    ALL_OR_NOTHING,
    BYPASS,
    CHANGING_OPTIONS,
    CHECKERS,
    DATABASES,
    EXISTENCE,
    FORCED,
    INLINE,
    LANGUAGES,
    MOVES,
    OUTWARD_WORDS,
    READERS,
    READING_WORDS,
    REPEATABLE,
    REPEATABLE_WORDS,
    SAME_PROGRAMS,
    WANTED_OPTIONS,
)
from cleaner_rl.logs.warrant.python import WasGiven, nothing_given, nothing_reads, python_refusal
from cleaner_rl.logs.warrant.reasons import Unwarranted
from cleaner_rl.logs.warrant.sql import sql_refusal
from cleaner_rl.logs.warrant.steps import APPENDED, OVER, Step, program_of, steps
from cleaner_rl.logs.warrant.texts import alike, comparisons, lost_and_new, misspelt, same_path, same_words
from cleaner_rl.logs.warrant.words import (
    LACKING,
    NO_SUCH_PACKAGE,
    NO_SUCH_PATH,
    SYNTAX,
    UNKNOWN_COMMAND,
    UNKNOWN_OPTION,
)

ALIKE = 0.6
CALLED_WRONGLY = (UNKNOWN_COMMAND, UNKNOWN_OPTION, SYNTAX)
NO_SUCH_THING = (NO_SUCH_PATH, NO_SUCH_PACKAGE)
KNOWN = READERS | CHECKERS | ALL_OR_NOTHING | REPEATABLE
_PYTHON = re.compile(r"python[\d.]*")
_SLIP = re.compile(r"\b(?:Reference|Syntax|Type|Name)Error\b|NoMethodError")
_TRACEBACK = re.compile(r'Traceback \(most recent call last\)|^\s*File "/[^"\n]+", line \d+, in ', re.MULTILINE)


class Pair(NamedTuple):
    """The step that differs in two commands, and what ran beside it."""

    wrong: Step
    right: Step
    ran: list[Step]
    """The other steps of the failed command that ran."""
    moved: bool
    """Whether the correction runs in another folder."""


def shell_refusal(
    failed: str,
    correction: str,
    told: str,
    names: Mapping[str, str] = MappingProxyType({}),
    was_given: WasGiven = nothing_given,
) -> Unwarranted | None:
    """Return why one command may not stand for another that failed and printed `told`; None if it may.

    `names` are words of the failed command for which the program offered others (`offers`). `was_given` says whether
    the model had been given a value before it wrote the command.
    """
    after = steps(correction)
    if after is None:
        return Unwarranted.UNREADABLE
    if bypasses(failed, correction):
        return Unwarranted.BYPASS
    before = steps(failed)
    if before is None:
        return _unread_refusal(failed, correction, told)
    pair = _different(before, after)
    if pair is None:
        return Unwarranted.OTHER_PURPOSE
    wrong, right = pair.wrong, pair.right
    if wrong.document is not None or right.document is not None:
        return _document_refusal(pair, told)
    if not all(_repeatable(each) for each in pair.ran):
        return Unwarranted.CHANGED
    if not (wrong.plain and right.plain) or wrong.background or right.background:
        return Unwarranted.CHANGED
    if wrong.settings != right.settings or wrong.writes != right.writes:
        return Unwarranted.OTHER_PURPOSE
    if any(how == APPENDED for how, _ in wrong.writes) and not UNKNOWN_OPTION.search(told):
        return Unwarranted.CHANGED
    return _step_refusal(pair, told, names, was_given)


def bypasses(failed: str, correction: str) -> bool:
    """Return whether a command switches a safeguard off that the failed one had on."""
    if FORCED.search(correction) and not FORCED.search(failed):
        return True
    had = [match.group().split("/")[0].strip() for match in BYPASS.finditer(failed)]
    had += [word.partition("=")[0] for word in failed.split() if word.startswith("--")]
    new = [match.group().split("/")[0].strip() for match in BYPASS.finditer(correction)]
    return any(not any(each == other or misspelt(each.strip("-"), other.strip("-")) for other in had) for each in new)


def _unread_refusal(failed: str, correction: str, told: str) -> Unwarranted | None:
    """Judge a command that the shell could not read: it ran nothing of the line."""
    if not SYNTAX.search(told) or "\n" in failed.strip():
        return Unwarranted.UNREADABLE
    gone, come = lost_and_new(failed, correction)
    return None if not gone and len(come) <= 2 else Unwarranted.OTHER_PURPOSE


def _different(before: list[Step], after: list[Step]) -> Pair | None:
    """Return the one step that differs, and the others that ran; None if more than that differs."""
    first = 0
    while first < min(len(before), len(after)) and before[first].text == after[first].text:
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last].text == after[-1 - last].text:
        last += 1
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    moves = [each for each in new if each.program in MOVES]
    if not old and new == moves and moves and last:
        # The same command from another folder.
        return _pair(before, first, after[len(after) - last], moved=True)
    if len(old) == 1 and len(new) == 1:
        return _pair(before, first, new[0], moved=False)
    if len(old) == 1 and len(new) == 2 and new[:1] == moves and old[0].program not in MOVES:
        return _pair(before, first, new[1], moved=True)
    return None


def _pair(before: list[Step], index: int, right: Step, moved: bool) -> Pair:
    ran = before[:index]
    for step in before[index + 1 :]:
        if step.joint == "&&":
            break  # what follows a failure is not run
        ran.append(step)
    return Pair(before[index], right, ran, moved)


def _document_refusal(pair: Pair, told: str) -> Unwarranted | None:
    """Judge a Python program in a here-document: run at once, or written to a file that a later step runs."""
    wrong, right = pair.wrong, pair.right
    if wrong.document is None or right.document is None:
        return Unwarranted.OTHER_PURPOSE
    if (wrong.commands, wrong.writes, wrong.settings) != (right.commands, right.writes, right.settings):
        return Unwarranted.OTHER_PURPOSE
    run = [each for each in pair.ran if _PYTHON.fullmatch(each.program)]
    if not all(_repeatable(each) for each in pair.ran if each not in run):
        return Unwarranted.CHANGED
    if not wrong.writes and not run and _PYTHON.fullmatch(wrong.program):
        return python_refusal(wrong.document, right.document, told, nothing_reads, lasting=True)
    targets = [path for how, path in wrong.writes if how == OVER]
    if wrong.program != "cat" or len(targets) != 1 or len(run) != 1 or targets[0] not in run[0].text.split():
        return Unwarranted.CHANGED
    # The program's own frames are those of a file here.
    own = re.sub(rf'File "[^"\n]*{re.escape(targets[0].rpartition("/")[2])}"', 'File "<stdin>"', told)
    return python_refusal(wrong.document, right.document, own, nothing_reads, lasting=True)


def _step_refusal(pair: Pair, told: str, names: Mapping[str, str], was_given: WasGiven) -> Unwarranted | None:
    """Judge the step that differs."""
    wrong, right = pair.wrong, pair.right
    if len(wrong.commands) != len(right.commands) or not wrong.commands:
        return Unwarranted.OTHER_PURPOSE
    judged = False
    for old, new in zip(wrong.commands, right.commands, strict=True):
        if old == new:
            continue
        inner = _inner_refusal(old, new, told)
        if inner is not None:
            judged = True
            if inner.reason is not None:
                return inner.reason
        elif not _same_call(old, new, told, was_given) and tuple(substituted(each, names) for each in old) != new:
            return Unwarranted.OTHER_PURPOSE
    if judged:
        return None
    called_wrongly = bool(names) or any(pattern.search(told) for pattern in CALLED_WRONGLY)
    if _TRACEBACK.search(told) and "can't open file" not in told:
        return Unwarranted.FINDING
    if not called_wrongly and not any(pattern.search(told) for pattern in NO_SUCH_THING):
        return Unwarranted.FINDING if wrong.program in CHECKERS else Unwarranted.CHANGED
    if not called_wrongly and wrong.program in EXISTENCE and not pair.moved:
        return Unwarranted.FINDING
    if called_wrongly:
        # Before the one that could not be run, others of the pipeline may have been.
        harmless = all(_reads(words) for words in wrong.commands[:-1])
    else:
        harmless = all(_reads(words) or _stops_at_once(words) for words in wrong.commands)
    return None if harmless else Unwarranted.CHANGED


class Judged(NamedTuple):
    """What was found about a program inside of a command."""

    reason: Unwarranted | None


def _inner_refusal(old: tuple[str, ...], new: tuple[str, ...], told: str) -> Judged | None:
    """Judge the program inside of a command; None if there is none."""
    (program, words), (other, others) = program_of(old), program_of(new)
    if program != other:
        return None
    code, corrected = _inline(program, words), _inline(program, others)
    if code is not None and corrected is not None:
        if _PYTHON.fullmatch(program):
            own = told.replace('"<string>"', '"<stdin>"')
            return Judged(python_refusal(code, corrected, own, nothing_reads, lasting=True))
        if program in ("bash", "sh"):
            return Judged(shell_refusal(code, corrected, told))
        if any(lost_and_new(code, corrected)) or OUTWARD_WORDS.search(code):
            return Judged(Unwarranted.OTHER_PURPOSE)
        return Judged(None if _SLIP.search(told) else Unwarranted.FINDING)
    if program in DATABASES:
        queries, corrections = _operands(words), _operands(others)
        different = [(one, two) for one, two in zip(queries, corrections, strict=False) if one != two]
        if len(queries) == len(corrections) and len(different) == 1 and " " in different[0][0]:
            return Judged(sql_refusal(*different[0], told))
    return None


def _inline(program: str, words: tuple[str, ...]) -> str | None:
    """Return the program that an interpreter is given as a word."""
    option = INLINE.get(program)
    if option not in words[:-1]:
        return None
    return _bare(words[words.index(option) + 1])


def _same_call(old: tuple[str, ...], new: tuple[str, ...], told: str, was_given: WasGiven) -> bool:
    """Return whether two simple commands run one program on the same things, but for what the program found wrong."""
    (program, words), (other, others) = program_of(old), program_of(new)
    if program != other and not any({program, other} <= each for each in SAME_PROGRAMS):
        elsewhere = "/" in old[0] + new[0] and same_path(old[0], new[0])
        # A known program that isn't installed is no slip.
        if not elsewhere and (program in KNOWN or not misspelt(program, other)):
            return False
        return _split(words) == _split(others) or (_matched(words, others, told, program, was_given) is not None)
    if " ".join(new) in told and old[:2] == new[:2]:
        return True  # the program itself gave the right call
    if program in LANGUAGES and SYNTAX.search(told) and f"{program}:" in told:
        kept = _operands(words)[-1:] == _operands(others)[-1:] or len(_operands(words)) < 2
        kept = kept and comparisons(" ".join(words)) == comparisons(" ".join(others))
        kept = kept and not any(
            len(each) > 2 or each.isdigit() for each in lost_and_new(*map(" ".join, (words, others)))[0]
        )
        return kept and alike(" ".join(words), " ".join(others)) >= ALIKE
    return _matched(words, others, told, program, was_given) is not None


def _matched(
    words: tuple[str, ...], others: tuple[str, ...], told: str, program: str, was_given: WasGiven
) -> bool | None:
    """Return True if all words of a call come again but for slips and for what the program named; None if not."""
    (options, operands), (new_options, new_operands) = _split(words, program), _split(others, program)
    gone, come = _without_common(operands, new_operands)
    if not gone and not come and operands != new_operands:
        return None  # in another order they mean something else
    for each in tuple(gone):
        match = next((one for one in come if _same_operand(each, one, told)), None)
        if match is None:
            return None
        gone.remove(each)
        come.remove(match)
    gone_options, come_options = _without_common(options, new_options)
    values = [each for each in come if _is_value_of(each, others, come_options)]
    asked = come == values and len(come) <= 2 and LACKING.search(told) and all(map(was_given, come))
    if come and not asked and come != [""]:
        return None
    if not _same_options(gone_options, come_options, told, program):
        return None
    return True


def _same_options(gone: list[str], come: list[str], told: str, program: str) -> bool:
    """Return whether the options of a call come again, but for those that the program didn't know or asked for."""
    unknown = UNKNOWN_OPTION.search(told)
    for each in gone:
        name = each.strip("-")
        match = next((one for one in come if misspelt(name, one.strip("-"))), None)
        if match is None and unknown and _is_named(each, told):
            match = next((one for one in come if _is_short_for(name, one.strip("-"), program)), None)
        if match is None:
            return False
        come.remove(match)
    asked = LACKING.search(told)
    return all(asked or _is_named(each, told) or each in WANTED_OPTIONS.get(program, ()) for each in come)


def _is_short_for(name: str, other: str, program: str) -> bool:
    """Return whether one option may be another's short or long form (`--output`, `-o`), or a reader's other letter."""
    if len(name) == len(other) == 1:
        return program in READERS
    shorter, longer = sorted((name, other), key=len)
    return longer.startswith(shorter)


def _same_operand(old: str, new: str, told: str) -> bool:
    """Return whether one operand is another with a slip that the program named, or in another form."""
    if same_words(old, new) and not lost_and_new(old, new)[0] and _plainly(old) == _plainly(new):
        return True
    if not _is_named(old, told):
        return False
    digits = re.findall(r"\d+", old)
    if digits and digits == re.findall(r"\d+", new) and (old.startswith(new) or new.startswith(old)):
        return True
    if "/" in old + new or "." in old + new:
        return same_path(old, new) or same_words(old, new)
    return misspelt(old, new) or same_words(old, new)


def _plainly(word: str) -> str:
    return re.sub(r"\W", "", word).lower()


def _is_named(word: str, told: str) -> bool:
    """Return whether the program's message names a word of the call, or its last part."""
    bare = word.strip("-")
    if len(bare) == 1:
        return re.search(rf"(?:option|flag|switch|argument)\S* (?:-- )?['`\"]?-?{re.escape(bare)}\b", told) is not None
    parts = {bare, *re.split(r"[:=,@]", bare), bare.rstrip("/").rpartition("/")[2]}
    return any(len(each) > 1 and each in told for each in parts)


def _without_common(first: Iterable[str], second: Iterable[str]) -> tuple[list[str], list[str]]:
    gone, come = list(first), list(second)
    for each in tuple(gone):
        if each in come:
            gone.remove(each)
            come.remove(each)
    return gone, come


def _is_value_of(operand: str, words: tuple[str, ...], options: list[str]) -> bool:
    """Return whether an operand is the value of one of these options."""
    flat = _flat(words)
    return any(value == operand and option in options for option, value in pairwise(flat))


def _split(words: tuple[str, ...], program: str = "") -> tuple[list[str], list[str]]:
    """Return the options and the operands of a call."""
    flat = _flat(words)
    if program == "tar" and flat and not flat[0].startswith("-"):
        flat[0] = f"-{flat[0]}"
    options = [each for each in flat if each.startswith("-") and len(each) > 1]
    if program == "tar":
        options = [f"-{letter}" for each in options for letter in (each[1:] if each[1] != "-" else ())]
    return options, [each for each in flat if not each.startswith("-") or each == "-"]


def _flat(words: tuple[str, ...]) -> list[str]:
    """Return words without quotes, and `--option=value` as two."""
    flat: list[str] = []
    for word in map(_bare, words):
        option = re.match(r"(--?[\w-]+|[A-Z_]+)=(.+)", word, re.DOTALL)
        flat += option.groups() if option else [word]
    return flat


def _operands(words: tuple[str, ...]) -> list[str]:
    return _split(words)[1]


def _bare(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def _repeatable(step: Step) -> bool:
    """Return whether a step that was done before the failure, and again in the correction, leaves the same."""
    if step.document is not None:
        return step.program == "cat" and all(how == OVER for how, _ in step.writes)
    if not step.plain or step.background or any(how == APPENDED for how, _ in step.writes):
        return False
    if step.writes:
        return all(_reads(words) for words in step.commands)
    return all(_reads(words) or _can_be_repeated(words) for words in step.commands)


def _stops_at_once(words: tuple[str, ...]) -> bool:
    """Return whether a program does nothing if one of the things that it works on isn't there."""
    program, rest = program_of(words)
    return program in ALL_OR_NOTHING or program in CHECKERS or program in MOVES or len(_operands(rest)) <= 2


def _reads(words: tuple[str, ...]) -> bool:
    program, rest = program_of(words)
    changing = CHANGING_OPTIONS.get(program)
    if changing is not None and any(changing.search(word) for word in rest):
        return False
    return program in READERS or bool(rest and rest[0] in READING_WORDS.get(program, ()))


def _can_be_repeated(words: tuple[str, ...]) -> bool:
    program, rest = program_of(words)
    return program in REPEATABLE or bool(rest and rest[0] in REPEATABLE_WORDS.get(program, ()))
