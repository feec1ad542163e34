r"""Multiple choice: exactly one letter, in the last box or clearly stated; whoever names two has chosen none.

- In a box: the letter alone, in either case, or with its option: `\boxed{C}`, `\boxed{c}`, `\boxed{(C) 42}`,
  `\boxed{Option C}`, `\boxed{C is right}`.
- Without a box: `<answer>C</answer>`; or the last statement such as "The answer is (C)", "The correct option is C",
  "Answer: C", "I choose C", "C is correct"; or a letter as the whole text or its last line.
- A second letter beside it (`C or D`, `C/D`, `C (or D)`) or behind a change of mind ("C. Wait, actually it is D.")
  makes it none; "C, not D" stays C.

The letters of a task are in its `extra["letters"]`, such as "ABCDE". Without that they are those of the options in its
prompt, if it lists them by letter from A on; otherwise A to J.
"""

from __future__ import annotations

import re

from cleaner_rl.tasks.grading.extraction import boxed_answer
from cleaner_rl.tasks.grading.grades import Grade, Outcome
from cleaner_rl.tasks.grading.normalise import normalise
from cleaner_rl.tasks.task import Task

LETTERS = "ABCDEFGHIJ"
_OPTION_LINE = re.compile(r"^[ \t]*(?:[-*][ \t]+)?\**\(?([A-Z])\)?[.):][ \t]*\S", re.MULTILINE)

# Model text decides what these see: possessive quantifiers give nothing back, so a long run is never tried twice.
_MARKUP = re.compile(
    r"\btext(?=\{)|</?[a-z]{1,10}>|\\[()\[\]]"
    r"|\\(?:text|textbf|textit|textsf|textrm|mathrm|mathbf|mathsf|bf|rm|quad|qquad|left|right|[,;!: ])(?![a-zA-Z])"
    r"|[*`$\"{}\\“”_]"
)
_VERB = r"(?:\s*+(?:is|should be|would be|must be|will be)\b|\s*+[:=-])"
_ADVERB = r"(?:[\s,]*+\b(?:definitely|clearly|certainly|indeed|probably|likely|therefore|thus|simply|then)\b)?+,?+"
_CHOSEN = r"[\s:(\[]*+(?:(?:option|choice|answer|letter)\b[\s:]*+)?[(\['\s]*+(?P<letter>[A-Z])\b(?!['’][a-z]|-\d)"
_STATED = re.compile(
    r"\b(?:answer|option|choice)(?:\s+(?:to|for)\s+(?:this|the)\s+(?:question|problem))?(?P<verb>"
    + _VERB
    + r")"
    + _ADVERB
    + _CHOSEN,
    re.IGNORECASE,
)
_CHOOSING = re.compile(
    r"\b(?:I|we)(?:'ll|'d| would| will)?\s+(?:choose|pick|select|go with)\b" + _CHOSEN, re.IGNORECASE
)
_CALLED_RIGHT = re.compile(
    r"(?<![\w'’])(?P<letter>[A-Z])[)\].]?\s+is\s+(?:the\s+)?(?:correct|right|best)(?:\s+(?:answer|option|choice)|\s*(?:[.!,;]|$))",
    re.MULTILINE,
)
_FIRST = re.compile(
    r"[(\['\s]*+(?:(?:option|choice|answer|letter)\b[\s:]*)?[(\['\s]*+(?P<letter>[A-Za-z])(?![\w'’]|-\d)", re.IGNORECASE
)
_JOINED = re.compile(
    r"[\s)\].:,'’]*+(?:(?:,|;|/|\+|&|\(|\[|\bor\b|\band\b|\bnor\b|\bmaybe\b|\bperhaps\b|\bpossibly\b|\beither\b|\balso\b|\boption\b)[\s(\[,]*+)*+"
    r"(?P<other>[A-Z])\b(?![\w'’])",
)
_CHANGED = re.compile(
    r"\b(?:wait|actually|correction|on second thought|scratch that|or maybe|or possibly)\b|\bno[,.]", re.IGNORECASE
)
_ANY_LETTER = re.compile(r"(?<![\w'’])([A-Z])(?![\w'’]|-\d)")
_REFUTED = re.compile(r"[)\]]?\s*(?:is|are|was)(?:n't|\s+(?:not|wrong|incorrect|false))", re.IGNORECASE)
_JOINING = re.compile(r"[/+&]|\b(?:or|and|nor|maybe|perhaps|possibly|either|also)\b")
_SENTENCE_GOES_ON = re.compile(r"\s+[a-z]")
_AFTER_A_LETTER = re.compile(r"\s+(?:is|because|since|as|and|but|not|or|which|with|by)\b")
_TAGGED = re.compile(r"<answer>([^<]{1,200})</answer>")
LONGEST_LINE = 200


class ChoiceGrader:
    """Grades a chosen letter."""

    def __init__(self, letters: str = LETTERS) -> None:
        self._letters = letters

    def letters(self, task: Task) -> str:
        """Return the letters that a task lets one choose from."""
        given = task.extra.get("letters")
        if isinstance(given, str) and given:
            return given
        return _listed(task.question) or self._letters

    def check(self, task: Task) -> str | None:
        """Return what is wrong with a task's truth; None if nothing is."""
        letters = self.letters(task)
        if (reference_letter(task.truth) or "?") in letters:
            return None
        return f"the truth '{task.truth}' is none of {letters}; correct it, or give the task extra[\"letters\"]"

    async def grade(self, task: Task, text: str) -> Grade:
        """Grade as right if the chosen letter is the task's."""
        if wrong := self.check(task):
            return Grade(Outcome.FAULT, None, f"{wrong[0].upper()}{wrong[1:]}.", task_fault=True)
        letters, truth = self.letters(task), reference_letter(task.truth)
        letter = choice_letter(text, letters)
        if letter is None:
            return Grade(Outcome.WRONG, None, f"The final turn does not choose exactly one of {letters}.")
        if letter == truth:
            return Grade(Outcome.RIGHT, letter, "The letters are equal.")
        return Grade(Outcome.WRONG, letter, "The letters differ.")


def reference_letter(truth: str) -> str | None:
    """Return the letter of a task's truth, such as `C`, `c` or `(C)`; None if it isn't one."""
    bare = truth.strip().strip("()[].").strip()
    return bare.upper() if len(bare) == 1 and bare.isascii() and bare.isalpha() else None


def choice_letter(text: str, letters: str = LETTERS) -> str | None:
    """Return the letter that a text chooses; None if it chooses none of `letters`, or more than one."""
    if (box := boxed_answer(text)) is not None:
        letter = _whole(box, any_case=True)
    else:
        plain = _MARKUP.sub(" ", text)
        said = _last_statement(plain)
        tagged = _TAGGED.findall(text)
        letter = (
            _whole(tagged[-1], any_case=True) if tagged else _of_statement(plain, said) if said else _whole_text(plain)
        )
    return letter if letter is not None and letter in letters else None


def _listed(question: str) -> str | None:
    """The letters of the options that a question lists, if they run from A on and are two at least."""
    found = "".join(dict.fromkeys(_OPTION_LINE.findall(question)))
    return found if len(found) > 1 and "ABCDEFGHIJKLMNOPQRSTUVWXYZ".startswith(found) else None


def _last_statement(plain: str) -> re.Match[str] | None:
    found: list[re.Match[str]] = []
    for pattern in (_STATED, _CHOOSING, _CALLED_RIGHT):
        found += [match for match in pattern.finditer(plain) if _is_choice(plain, match)]
    return max(found, key=lambda match: match.start("letter"), default=None)


def _is_choice(plain: str, match: re.Match[str]) -> bool:
    """Whether the letter is meant as one: "the answer is a" isn't, "answer: a" is, "A number" isn't."""
    letter, behind = match["letter"], plain[match.end("letter") :]
    if letter.islower():
        verb = (match.groupdict().get("verb") or "").strip()
        return verb in (":", "=") and not re.match(r"[ \t]*\w", behind)
    return _stands_alone(letter, behind)


def _stands_alone(letter: str, behind: str) -> bool:
    """Not the article of "A number", nor the pronoun of "I think"."""
    if letter not in "AI" or not _SENTENCE_GOES_ON.match(behind):
        return True
    return _AFTER_A_LETTER.match(behind) is not None and letter == "A"


def _of_statement(plain: str, said: re.Match[str]) -> str | None:
    letter = said["letter"].upper()
    return None if _hedged(letter, plain[said.end("letter") :]) else letter


def _whole_text(plain: str) -> str | None:
    """A letter that is all of a text, or its last line."""
    lines = [line for line in plain.splitlines() if line.strip()]
    if not lines or len(lines[-1]) > LONGEST_LINE:
        return None
    if len(lines) == 1:
        return _whole(lines[0], any_case=False)
    return _whole(lines[-1], any_case=False) if len(lines[-1].strip(" ().[]:")) == 1 else None


def _whole(text: str, any_case: bool) -> str | None:
    """The letter that a short text begins with, if all of it is about that one."""
    plain = " ".join(_MARKUP.sub(" ", normalise(text[:LONGEST_LINE])).split())
    if len(text) > LONGEST_LINE or not (match := _FIRST.match(plain)):
        return None
    letter, behind = match["letter"], plain[match.end("letter") :]
    if letter.islower() and not (any_case and not re.search(r"\w", behind)):
        return None
    if not _stands_alone(letter, behind) or _hedged(letter.upper(), behind):
        return None
    return letter.upper()


def _hedged(letter: str, behind: str) -> bool:
    """Whether the letter is taken back: refuted, or another is named beside it or in place of it."""
    if _REFUTED.match(behind):  # "B is not correct"
        return True
    joined = _JOINED.match(behind)
    if joined and _counts(joined["other"], behind[joined.end() :], letter):
        # "C (D is close)" says something about D; "C or D is right" doesn't decide.
        about = _SENTENCE_GOES_ON.match(behind, joined.end()) and not _JOINING.search(joined[0])
        if not about:
            return True
    changed = _CHANGED.search(behind, 0, 2_000)
    if not changed:
        return False
    later = _ANY_LETTER.finditer(behind, changed.end(), changed.end() + 200)
    named = [match[1] for match in later if _stands_alone(match[1], behind[match.end() :])]
    return bool(named) and named[-1] != letter


def _counts(other: str, behind: str, letter: str) -> bool:
    """Whether a letter in the text behind a choice is another choice."""
    return other != letter and _stands_alone(other, behind) and not _REFUTED.match(behind)
