r"""Mathematical answers: the last box, compared as digits, as text, and only then by algebra in another process.

Limits: what math-verify takes for equal is equal. It reads `(1,2)` as an open interval and as a pair, takes 50 % for
both 50 and 0.5, forgets units, and compares decimals to six places, so that a reference below 5e-7 equals `0.0`. Of a
chain of equations it takes the end. It does not see `1 \le x \le 2` as the reference `[1,2]`. It multiplies the letters
of a word, so words never get there: `abc` is not `cab`, though `ab` is `ba`, and so `no` is `on`.
"""

from __future__ import annotations

import re

from cleaner_rl.tasks.grading.extraction import boxed
from cleaner_rl.tasks.grading.grades import Grade, Outcome
from cleaner_rl.tasks.grading.integers import integer
from cleaner_rl.tasks.grading.math_pool import MathPool
from cleaner_rl.tasks.task import Task

LONGEST = 1_000
"""Characters of an answer, if the reference isn't longer itself: what is longer is a text, not an answer, and would
only keep the parser busy."""

_LOOKS = re.compile(r"\\(?:left|right|displaystyle|,|;|!|:|quad|qquad)(?![a-zA-Z])|\$")
_WORDS = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")
_NAME = re.compile(r"\b(?:and|infinity|inf|pi|ln|log|exp|sqrt|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)")


class MathGrader:
    """Grades the last box of a text against a reference in LaTeX."""

    def __init__(self, pool: MathPool) -> None:
        self._pool = pool

    async def grade(self, task: Task, text: str) -> Grade:
        """Grade as right if the box equals one of the task's references."""
        answer = boxed(text)
        if answer is None:
            return Grade(Outcome.WRONG, None, "There is no complete \\boxed{} in the final turn.")
        truths = [line for line in task.truth.splitlines() if line.strip()]
        if not truths:
            return Grade(Outcome.FAULT, answer, "The task has no reference answer.", task_fault=True)
        settled = compare(truths, answer)
        if settled is not None:
            return settled
        verdict = await self._pool.ask_async([each for each in truths if not _other_words(each, answer)], answer)
        if verdict.equal is None:
            return Grade(Outcome.FAULT, answer, verdict.reason, task_fault=verdict.task_fault)
        return Grade(Outcome.RIGHT if verdict.equal else Outcome.WRONG, answer, verdict.reason)


def compare(truths: list[str], answer: str) -> Grade | None:
    """The grade of an answer that needs no algebra; None if it does."""
    if len(answer) > max(LONGEST, *map(len, truths)):
        return Grade(Outcome.WRONG, answer[:LONGEST], f"The answer has {len(answer)} characters.")
    if not answer.strip():
        return Grade(Outcome.WRONG, answer, "The box is empty.")
    if _plain(answer) in {_plain(truth) for truth in truths}:
        return Grade(Outcome.RIGHT, answer, "The answer is written like the reference.")
    if all(_other_words(truth, answer) for truth in truths):
        return Grade(Outcome.WRONG, answer, "The words differ.")
    given = integer(answer)
    wanted = [integer(truth) for truth in truths]
    if given is None or None in wanted:
        return None
    equal = given in wanted
    reason = "The integers are equal." if equal else "The integers differ."
    return Grade(Outcome.RIGHT if equal else Outcome.WRONG, answer, reason)


def _other_words(truth: str, answer: str) -> bool:
    """Whether both are words, and not the same ones: the verifier would compare them as products of their letters."""
    texts = [_cased(truth), _cased(answer)]
    wanted, given = (text.replace(" ", "") for text in texts)
    return f"{wanted}{given}".isalpha() and wanted.lower() != given.lower() and all(map(_has_word, texts))


def _has_word(text: str) -> bool:
    """Whether some of it is too long for factors: three letters, or two with a capital, names of functions aside."""
    rests = _NAME.sub("", text).split()
    return any(len(rest) > 2 or (len(rest) == 2 and not rest.islower()) for rest in rests)


def _plain(answer: str) -> str:
    """An answer without what only changes its looks; words of more than one letter in lower case."""
    text = _cased(answer)
    return text.lower() if len(text) > 1 and text.replace(" ", "").isalpha() else text


def _cased(answer: str) -> str:
    """The same with the letters as they are."""
    text = _WORDS.sub(r"\1", answer).replace("−", "-").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    # What only changes looks leaves a space, which stays between digits: 1\,2 is not 12.
    text = " ".join(_LOOKS.sub(" ", text).split())
    return _LOOSE_SPACE.sub("", text.rstrip(".").strip())
