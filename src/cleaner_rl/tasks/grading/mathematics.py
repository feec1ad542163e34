r"""Mathematical answers: the last box, compared as text and as numbers, and only then by algebra in another process.

Before math-verify, which judges the algebra, answers are brought to one way of writing (`normalise`), plain numbers and
units are compared here (`numbers`, `units`), and what math-verify would read too kindly is settled:

- words are compared as words (it multiplies their letters: `no` would be `on`), and letters by their case;
- alternatives (`5 or 6`) are right only if the reference has several values, and a set is no tuple;
- of a chain `2 + 3 = 5` the end counts, unless two numbers in it differ; of `\frac{2}{5} \approx 0.4` the part that is
  written like the reference.

Limits: what math-verify takes for equal is equal. It reads `(1,2)` as an open interval and as a pair. Products of small
letters can be written in any order, so `ab` is `ba`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cleaner_rl.tasks.grading.extraction import boxed_answer
from cleaner_rl.tasks.grading.grades import Grade, Outcome
from cleaner_rl.tasks.grading.math_pool import MathPool, MathVerdict
from cleaner_rl.tasks.grading.normalise import normalise
from cleaner_rl.tasks.grading.numbers import number, same_number
from cleaner_rl.tasks.grading.units import Unit, split_unit
from cleaner_rl.tasks.task import Task

LONGEST = 1_000
"""Characters of an answer, if the reference isn't longer itself: what is longer is a text, not an answer, and would
only keep the parser busy."""

_SPACES = re.compile(r"\\(?:,|;|!|:|quad|qquad| )(?![a-zA-Z])|[$~]")
_WORDS = re.compile(r"\\(?:text|textrm|textup|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")
_NAME = re.compile(r"\b(?:and|or|infinity|inf|pi|ln|log|exp|sqrt|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)")
_SHORT_WORDS = {"no", "on", "up", "in", "is", "it", "at", "if", "we", "he", "so", "to", "go"}
_ALTERNATIVES = re.compile(
    r"\b(?:or|either|maybe|perhaps|possibly|probably|not|isn't|unless|guess|unsure|wrong|incorrect|more|less|fewer|least|most)\b|\\(?:lor|vee|neg|ne|neq)\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(r",|;|\\pm|\\mp|\\cup|\\\{|\b(?:and|or)\b|\\lor|\\vee|\\ne")
_OR = re.compile(r"\s*(?:,\s*)?(?:\\text\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b|\\lor\b|\\vee\b)\s*")
_MOD = re.compile(r"\s*(?:\\pmod\s*(?:\{[^{}]*\}|\d+)|\(\s*\\?b?mod\s*\w+\s*\))\s*$")
_REMAINDER = re.compile(r"\\b?mod\b|\bmod\b")
_INTEGER_NOTE = re.compile(
    r"[,;]?\s*(?:\\q?quad|\\text\s*\{[^{}]*\}|\\[,; ]|where|for|with|\()*\s*[a-z]\s*\\in\s*\\mathbb\s*\{?[ZN]\}?.*$"
)
_PARAMETER = re.compile(r"(?<![a-zA-Z\\])[kmn](?![a-zA-Z])")
_IMPLIES = re.compile(r"\\(?:Rightarrow|implies|Longrightarrow)(?![a-zA-Z])")
_NEAR = re.compile(r"\\(?:approx|simeq|cong)(?![a-zA-Z])")
_EQUALS = re.compile(r"(?<![<>!\\:])=(?!=)")
_VARIABLE = re.compile(r"\\?[a-zA-Z]+(?:_\{?\w+\}?)?")
_CLOCK = re.compile(r"(\d+(?::\d+)+)\s*([ap]\.?m\.?)?", re.IGNORECASE)
_OPEN_INTERVAL = re.compile(r"([\[\]])([^\[\]()]*,[^\[\]()]*)([\[\]])")
_ANGLED = re.compile(r"\\langle(?![a-zA-Z])([^<>]*)\\rangle(?![a-zA-Z])")
_FALLING = re.compile(r"([^<>]+)(>|\\geq?(?![a-zA-Z]))([^<>]+)(>|\\geq?(?![a-zA-Z]))([^<>]+)")
_RISING = {">": "<", "\\ge": "\\le", "\\geq": "\\le"}
_COLUMN = re.compile(r"\\begin\{([pb]matrix)\}([^&]*)\\end\{\1\}")
_COMMAND = re.compile(r"\\[a-zA-Z]+|\s")
_LETTER = re.compile(r"(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])")
_TRIG = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc))\s*[({]?\s*(\d+(?:\.\d+)?)\s*\^\s*\{?\s*\\circ\s*\}?\s*[)}]?(?!\s*\^)"
)
_HALF_LINE = re.compile(r"[a-zA-Z]\s*(?P<sign>[<>]|\\[lg](?:t|eq?(?:slant)?))(?![a-z])\s*(?P<bound>[^<>,=]+)")
_RELATION = re.compile(r"[<>]|\\(?:[lg](?:t|eq?(?:slant)?))(?![a-zA-Z])")
_YES_OR_NO = ("yes", "no", "true", "false")
_REASON = re.compile(r"(yes|no|true|false)\s*[,.;:]?\s*(?:because|since|as)\b.*", re.DOTALL)
_SAME = (
    ("dne", "doesnotexist", "undefined", "notdefined"),
    (
        "\\emptyset",
        "\\varnothing",
        "\\{\\}",
        "emptyset",
        "nosolution",
        "nosolutions",
        "norealsolution",
        "norealsolutions",
    ),
    ("\\mathbb{R}", "allrealnumbers", "allreals", "allrealx", "(-\\infty,\\infty)", "(-\\infty,+\\infty)"),
    ("\\infty", "+\\infty", "infinity", "inf", "+infinity"),
    ("-\\infty", "-infinity", "-inf", "negativeinfinity"),
)
"""Ways to say the same, without spaces."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What only the verifier can decide."""

    truth: str
    answer: str


class MathGrader:
    """Grades the last box of a text against a reference in LaTeX."""

    def __init__(self, pool: MathPool) -> None:
        self._pool = pool

    def check(self, task: Task) -> str | None:
        """Return what is wrong with a task's truth; None if nothing is."""
        return check_reference(task)

    async def grade(self, task: Task, text: str) -> Grade:
        """Grade as right if the box equals one of the task's references."""
        truths = [line for line in task.truth.splitlines() if line.strip()]
        answer = boxed_answer(text)
        if not truths:
            return Grade(Outcome.FAULT, answer, "The task has no reference answer.", task_fault=True)
        if answer is None:
            return Grade(Outcome.WRONG, None, "There is no complete \\boxed{} in the final turn.")
        settled = compare(truths, answer)
        if isinstance(settled, Grade):
            return settled
        verdicts: list[MathVerdict] = []
        for question in settled:
            verdicts.append(await self._pool.ask_async([question.truth], question.answer))
            if verdicts[-1].equal:
                return Grade(Outcome.RIGHT, answer, verdicts[-1].reason)
        broken = next((verdict for verdict in verdicts if verdict.equal is None), None)
        if broken is not None:
            return Grade(Outcome.FAULT, answer, broken.reason, task_fault=broken.task_fault)
        return Grade(Outcome.WRONG, answer, verdicts[-1].reason)


def check_reference(task: Task) -> str | None:
    """Return what is wrong with the reference of a task; None if nothing is."""
    return None if task.truth.strip() else "the truth is empty; give the reference answer in LaTeX"


def compare(truths: Sequence[str], answer: str) -> Grade | list[_Question]:
    """The grade of an answer that needs no algebra; otherwise what the verifier should be asked."""
    stripped = answer.strip()
    if len(stripped) > max(LONGEST, *map(len, truths)):
        return Grade(Outcome.WRONG, answer[:LONGEST], f"The answer has {len(stripped)} characters.")
    if not stripped:
        return Grade(Outcome.WRONG, answer, "The box is empty.")
    given = normalise(stripped)
    settled = [_settle(normalise(truth), given) for truth in truths]
    for each in settled:
        if isinstance(each, tuple) and each[0]:
            return Grade(Outcome.RIGHT, answer, each[1])
    questions = [each for each in settled if isinstance(each, _Question)]
    if questions:
        return questions
    return Grade(Outcome.WRONG, answer, next(each[1] for each in settled if isinstance(each, tuple)))


def _settle(truth: str, answer: str) -> tuple[bool, str] | _Question:
    """Whether an answer is right, and why; or what to ask the verifier. Both are normalised."""
    # Not `1,200` and `1, 200`, which differ by more than looks.
    if _plain(truth) == _plain(answer) and not (number(truth) and not number(answer)):
        return True, "The answer is written like the reference."
    if _same_words(truth, answer):
        return True, "The answer says what the reference says."
    if _other_words(truth, answer):
        return False, "The words differ."
    if refused := _too_kind(truth, answer):
        return False, refused
    chosen = _part(truth, answer)
    if chosen is None:
        return False, "The answer equates or approximates numbers that differ."
    return _as_quantities(_rewritten(truth), _rewritten(chosen))


def _as_quantities(truth: str, answer: str) -> tuple[bool, str] | _Question:
    """The same for values: numbers and units."""
    (wanted_head, wanted_unit), (given_head, given_unit) = split_unit(_value(truth)), split_unit(_value(answer))
    wanted = number(_bare(wanted_head))
    given = number(_bare(given_head), decimal_comma=wanted is not None and wanted.value.denominator > 1)
    if wanted_unit and given_unit and not wanted_unit.measures_as(given_unit):
        return False, "The units measure different things."
    if wanted and given:
        if wanted_unit and given_unit:
            scale = given_unit.factor / wanted_unit.factor
            given = type(given)(given.value * scale, given.digits, given.percent)
        equal = same_number(wanted, given)
        return equal, "The numbers are equal." if equal else "The numbers differ."
    if wanted and wanted.value.denominator == 1 and not given and _list_of_numbers(given_head):
        return False, "The answer is a list, the reference one number."
    if given and _list_of_numbers(wanted_head):
        return False, "The answer is one number, the reference a list."
    if wanted_unit == given_unit:
        return _Question(*_algebra(truth, answer, wanted_head, given_head, wanted_unit))
    if wanted_unit and given_unit:
        return False, "The units differ."
    if given_unit is not None and given_unit.degrees and wanted is None:
        return _Question(truth, f"({given_head}) \\cdot \\frac{{\\pi}}{{180}}")
    if given_unit is not None:
        return _Question(truth, given_head)
    return _Question(wanted_head, answer)


def _algebra(truth: str, answer: str, wanted: str, given: str, unit: Unit | None) -> tuple[str, str]:
    return (truth, answer) if unit is None else (wanted, given)


def _list_of_numbers(text: str) -> bool:
    parts = re.split(r"[,;]\s*", text)
    return len(parts) > 1 and all(number(part) for part in parts)


def _too_kind(truth: str, answer: str) -> str | None:
    """Why an answer is wrong that the verifier might take for right."""
    words = _WORDS.sub(r" \1 ", answer)
    if (
        _ALTERNATIVES.search(words)
        and not _SEVERAL.search(truth)
        and not _ALTERNATIVES.search(_WORDS.sub(r"\1", truth))
    ):
        return "The answer gives alternatives."
    if _REMAINDER.search(_MOD.sub("", answer)) and not _REMAINDER.search(truth):
        return "The answer is left to be computed modulo something."
    starts = {truth[:1], answer[:1]}
    if starts == {"\\", "("} and "," in truth and "," in answer and "\\{" in (truth[:2], answer[:2]):
        return "One of the two is a tuple, the other a set."
    if bool(_RELATION.search(truth)) != bool(_RELATION.search(answer)) and (_bare_list(truth) or _bare_list(answer)):
        return "One of the two is an inequality, the other a list."
    if bool(_CLOCK.fullmatch(truth)) != bool(_CLOCK.fullmatch(answer)) and ":" in truth + answer:
        return "One of the two is a ratio or a time of day."
    wanted, given = set(_letters(truth)), set(_letters(answer))
    if wanted != given and {each.lower() for each in wanted} == {each.lower() for each in given}:
        return "The letters differ by their case."
    return None


def _bare_list(text: str) -> bool:
    return bool(re.search(r",|;|\b(?:and|or)\b", text)) and not re.search(r"[(\[{<>=]", text)


def _letters(text: str) -> list[str]:
    return _LETTER.findall(_COMMAND.sub(" ", _WORDS.sub(" ", text)))


def _part(truth: str, answer: str) -> str | None:
    """Of an answer that says more than one thing in a row, the one that counts; None if two of them are at odds."""
    answer = _IMPLIES.split(answer)[-1].strip()
    wanted = number(truth)
    near = [normalise(part) for part in _NEAR.split(answer)]
    if len(near) > 1:
        values = [found.value for part in near if (found := number(_bare(_value(part))))]
        if any(abs(each - values[0]) * 100 > abs(values[0]) for each in values):
            return None
        answer = near[-1] if wanted and wanted.digits else near[0]
    if "=" not in answer or _several(answer):
        return answer
    parts = [normalise(part) for part in _EQUALS.split(answer)]
    written = [found for part in parts if (found := number(_bare(part)))]
    if any(not same_number(wanted or written[0], each) for each in written):
        return None
    if "=" in truth:
        return answer
    if len(parts) == 2 and number(parts[0]) and re.fullmatch(r"\\?[a-zA-Z]+", parts[1]):
        return parts[0]
    return parts[-1] if number(parts[-1]) else answer


def _several(text: str) -> bool:
    return bool(_SEVERAL.search(text))


def _rewritten(text: str) -> str:
    """The same in forms that the verifier reads."""
    text = _INTEGER_NOTE.sub("", _MOD.sub("", text)).strip() or text
    if "\\pi" in text and len(set(_PARAMETER.findall(text))) == 1:
        text = _PARAMETER.sub("k", text)
    if interval := _OPEN_INTERVAL.fullmatch(text):
        left, right = {"[": "[", "]": "("}[interval[1]], {"]": "]", "[": ")"}[interval[3]]
        text = f"{left}{interval[2]}{right}"
    text = _ANGLED.sub(r"(\1)", text)
    if falling := _FALLING.fullmatch(text):
        text = f"{falling[5]} {_RISING[falling[4]]} {falling[3]} {_RISING[falling[2]]} {falling[1]}"
    if column := _COLUMN.fullmatch(text):
        text = "(" + column[2].replace("\\\\", ",") + ")"
    if "," not in text or not number(text):
        text = _union(_OR.split(text)) or _OR.sub(", ", text)
    return _TRIG.sub(r"\1(\2\\cdot\\frac{\\pi}{180})", text)


def _union(parts: list[str]) -> str | None:
    """Inequalities such as `x < 2` or `x > 3` as a union of intervals; None if some part is none."""
    if len(parts) < 2:
        return None
    found = [_HALF_LINE.fullmatch(part.strip()) for part in parts]
    return "\\cup".join(_interval(match) for match in found if match) if all(found) else None


def _interval(match: re.Match[str]) -> str:
    upper, closed = match["sign"].startswith(("<", "\\l")), "e" in match["sign"]
    if upper:
        return f"(-\\infty,{match['bound']}{']' if closed else ')'}"
    return f"{'[' if closed else '('}{match['bound']},\\infty)"


def _value(text: str) -> str:
    """What an equation such as `x = 5` gives; the text itself if it is none."""
    name, equals, value = text.partition("=")
    named = equals and "=" not in value and _VARIABLE.fullmatch(name.strip())
    return normalise(value) if named else text


def _bare(text: str) -> str:
    """A value without words around it."""
    return _WORDS.sub(r"\1", text).strip().strip("$").strip()


def _same_words(truth: str, answer: str) -> bool:
    wanted, given = _cased(truth).replace(" ", ""), _cased(answer).replace(" ", "")
    if any(wanted in each and given in each for each in _lowered(_SAME, wanted, given)):
        return True
    reason = _REASON.fullmatch(_cased(answer).lower())
    return bool(reason) and wanted.lower() in _YES_OR_NO and reason is not None and reason[1] == wanted.lower()


def _lowered(groups: tuple[tuple[str, ...], ...], *texts: str) -> list[tuple[str, ...]]:
    """The groups, with those of the texts added that differ from a member in case only."""
    return [(*group, *(text for text in texts if text.lower() in group)) for group in groups]


def _other_words(truth: str, answer: str) -> bool:
    """Whether both are words, and not the same ones: the verifier would compare them as products of their letters."""
    texts = [_cased(truth), _cased(answer)]
    wanted, given = (text.replace(" ", "") for text in texts)
    return f"{wanted}{given}".isalpha() and wanted.lower() != given.lower() and all(map(_has_word, texts))


def _has_word(text: str) -> bool:
    """Whether some of it is too long for factors: three letters, or two with a capital, names of functions aside."""
    rests = _NAME.sub("", text).split()
    return any(len(rest) > 2 or (len(rest) == 2 and (not rest.islower() or rest in _SHORT_WORDS)) for rest in rests)


def _plain(answer: str) -> str:
    """An answer without what only changes its looks; words of more than one letter in lower case."""
    text = _cased(answer)
    if clock := _CLOCK.fullmatch(text):
        return clock[1]
    return text.lower() if len(text) > 1 and text.replace(" ", "").isalpha() else text


def _cased(answer: str) -> str:
    """The same with the letters as they are."""
    # What only changes looks leaves a space, which stays between digits: 1\,2 is not 12.
    text = " ".join(_SPACES.sub(" ", _WORDS.sub(r"\1", answer)).split())
    return _LOOSE_SPACE.sub("", text.rstrip(".").strip())
