"""The verifier's own process: reads one question a line, answers one line, dies when a question costs too much.

It is started as a file, knows nothing of the package, and alone imports sympy and math-verify. Answers are parsed as
LaTeX only: math-verify's parser for plain expressions ends in sympy's `parse_expr`, which evaluates its text as Python.

Each question arms a timer of the kernel that counts CPU time and whose default is to kill the process. So a limit means
the same on a busy machine, it needs no parent, and it stops what no handler in Python could interrupt.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import TextIO

import math_verify.grader
import sympy
from math_verify import LatexExtractionConfig, parse, verify

MEMORY_BYTES = 4 << 30
LATEX = [LatexExtractionConfig(boxed_match_priority=0)]
TOLERANCE = sympy.Rational(5, 1_000_000)
"""Between an exact value and a decimal, relative to the larger; `numbers` has the same."""
EXACT = sympy.Rational(1, 10**40)
"""Between two exact values, which are computed to `PLACES` digits."""
PLACES = 50
LARGEST_BITS = 1 << 24
"""Of a number that a power is computed to. A larger one stays a power, which compares fast: 3^{3^{27}}."""


def main() -> None:
    """Answer until the parent closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not look like an answer
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's to handle
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    judge(["\\frac{1}{2}"], "x^{2}+1")  # the parser builds its tables at first use, which no answer should pay for
    _say(answers, {"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, question["seconds"])
        verdict = judge(question["truths"], question["answer"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(answers, verdict)


def judge(truths: list[str], answer: str) -> dict[str, object]:
    """Whether the answer equals one of the truths, and why not; or what the comparison exhausted; or a fault."""
    try:
        given = _parse(answer)
        if not given:
            return {"equal": False, "reason": "The answer could not be read as mathematics."}
        if any(_equal(_parse(truth), given) for truth in truths):
            return {"equal": True, "reason": "The answer equals the reference."}
    except MemoryError:
        return {"cost": f"needed more than {MEMORY_BYTES >> 30} GiB of memory"}
    except RecursionError:
        return {"cost": "went too deep"}
    except _UnreadableReferenceError:
        return {"fault": "The verifier can't compare the reference even with itself; correct the task's truth."}
    return {"equal": False, "reason": "The answer differs from the reference."}


def numbers_equal(one: object, other: object, *options: int) -> bool:
    """Compare two numbers relative to their size, in place of math-verify's six decimal places.

    It decides for elements of sets, tuples and matrices too. What has no value as a number is left to math-verify.
    """
    values = [_value(one), _value(other)]
    if values[0] is None or values[1] is None:
        return bool(_numbers_equal(one, other, *options))
    if _is_integer(one) and _is_integer(other):
        return bool(sympy.sympify(one).doit() == sympy.sympify(other).doit())
    rounded = any(isinstance(each, sympy.Basic) and each.has(sympy.Float) for each in (one, other))
    # An integer is not rounded: 4.9999999 is no way to write it.
    whole = any(_is_integer(each) for each in (one, other))
    limit = TOLERANCE if rounded and not whole else EXACT if not rounded else sympy.Rational(1, 10**12)
    return bool(abs(values[0] - values[1]) <= limit * max(abs(values[0]), abs(values[1])))


_numbers_equal = math_verify.grader.sympy_numeric_eq
math_verify.grader.sympy_numeric_eq = numbers_equal


def _value(expression: object) -> sympy.Expr | None:
    """The value of an expression without variables; None if it has none, or is a share written with a percent sign."""
    if not isinstance(expression, sympy.Expr) or expression.free_symbols or expression.has(sympy.UnevaluatedExpr):
        return None
    value = expression.doit().evalf(PLACES)
    return value if value.is_number and value.is_finite and not value.has(sympy.nan) else None


def _is_integer(expression: object) -> bool:
    return isinstance(expression, sympy.Expr) and not expression.has(sympy.Float) and bool(expression.doit().is_integer)


class _UnreadableReferenceError(Exception):
    pass


def _equal(truth: list[object], given: list[object]) -> bool:
    try:
        return bool(verify(truth, given, timeout_seconds=None, raise_on_error=True, allow_set_relation_comp=True))
    except (MemoryError, RecursionError):
        raise
    except Exception:  # a foreign library's: it names its errors as it likes
        # Either the answer has no value that could be compared (1/0), which makes it wrong, or the reference has none.
        values = [each for each in truth if not isinstance(each, str)]
        if not verify(values, values, timeout_seconds=None, raise_on_error=False):
            raise _UnreadableReferenceError from None
        return False


def _parse(answer: str) -> list[object]:
    found: list[object] = parse(f"\\boxed{{{answer}}}", LATEX, parsing_timeout=None, raise_on_error=False)
    return [_with_large_powers(_with_imaginary_unit(each)) for each in found]


def _with_imaginary_unit(expression: object) -> object:
    """The same with `i` as the imaginary unit, which math-verify reads as a variable."""
    if not isinstance(expression, sympy.Basic):
        return expression
    units = {each: sympy.I for each in expression.free_symbols if str(each) == "i"}
    return expression.xreplace(units) if units else expression


def _with_large_powers(expression: object) -> object:
    """The same, in which powers that the parser left as they are written are marked if they are large."""
    if not isinstance(expression, sympy.Basic):
        return expression
    return expression.replace(lambda each: isinstance(each, sympy.Pow) and _is_large(each), lambda each: each.doit())


def _is_large(power: sympy.Pow) -> bool:
    return not power.free_symbols and isinstance(power.doit(), _LargePower)


class _LargePower(sympy.Function):  # type: ignore[misc]
    """A power of a number with too many digits to write out.

    It is no `Pow`: sympy takes one of two numbers for a power that it has yet to compute, and tries for ever.
    """

    nargs = 2

    def _eval_is_integer(self) -> bool | None:
        base, exponent = self.args
        whole: bool | None = base.is_integer and exponent.is_integer and exponent.is_nonnegative
        return whole

    def _eval_is_positive(self) -> bool | None:
        positive: bool | None = self.args[0].is_positive or self.args[1].is_even
        return positive

    def _eval_is_extended_real(self) -> bool:
        return True

    def _eval_evalf(self, prec: int) -> None:
        """None: it has no value to compute with. Of a sine of one, sympy would want billions of digits."""


def _bounded(power: Callable[[sympy.Rational, sympy.Expr], sympy.Expr | None]) -> Callable[..., sympy.Expr | None]:
    """The same way to compute a number's powers, but for those with too many digits to write out."""

    def bounded(base: sympy.Rational, exponent: sympy.Expr) -> sympy.Expr | None:
        if base.is_positive or exponent.is_integer:
            bits = max(abs(base.p), base.q).bit_length()
            size = abs(int(exponent)) if isinstance(exponent, sympy.Rational) else 0
            if bits * size > LARGEST_BITS or (exponent.is_extended_real and exponent.has(_LargePower)):
                return _LargePower(base, exponent)
        return power(base, exponent)

    return bounded


sympy.Integer._eval_power = _bounded(sympy.Integer._eval_power)
sympy.Rational._eval_power = _bounded(sympy.Rational._eval_power)


def _say(answers: TextIO, value: dict[str, object]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
