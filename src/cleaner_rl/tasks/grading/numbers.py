r"""Plain numbers, compared exactly or as roundings: most answers need no algebra, and no other process.

Integers, decimals, `6.02e23`, `6.02 \times 10^{23}`, `10^6`, `3/4`, `\frac{3}{4}`, `1\frac{1}{2}`, `50\%`, `2 million`,
`five`.

Two numbers are equal if they have the same value, or if they differ by at most 5 millionths (`TOLERANCE`) of the
larger one and one of them is a rounding of the other: a decimal with a fraction part and six significant digits or
more, beside an exact value or a decimal with more digits. Integers are never rounded. So `0.333333` is 1/3 and `0.333`
isn't; `0.1234567` isn't `0.1234568`; and a number never equals one of twice its size, or zero.

Thousands are read where the grouping is unambiguous: `1,234`, `1 234 567`, `1\,234`, `1{,}234`, `1'234`, `12,34,567`,
`1.234.567`, `1.234,5`. A comma with a space behind it separates two numbers, so `12, 144` is a list. `3,5` is a decimal
only beside a decimal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

TOLERANCE = Fraction(5, 1_000_000)
"""Relative to the larger number: what rounding to six significant digits can change. `math_worker` has the same."""
DIGITS = 6
"""Significant digits that a decimal needs to be taken for a rounding."""
LONGEST = 4_000
"""Characters of a number, and the most that its exponent may be: what is larger goes to the verifier's process."""

_GAP = r"(?:,\\!|,|\{,\}|\\[,;: !]|~|'|\s)"
_GROUPED = rf"\d{{1,3}}(?P<gap>{_GAP})\s*\d{{3}}(?:(?P=gap)\s*\d{{3}})*(?!\d)(?:\.\d*)?"
_INDIAN = r"\d{1,2}(?:,\d\d)+,\d{3}(?:\.\d*)?"
_DOTTED = r"\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}(?:\.\d{3})+,\d+"
_PLAIN = r"\d+(?:\.\d*)?|\.\d+"
_POWER = r"10\s*(?:\^|\*\*)\s*(?:\{\s*(?P<braced>[+-]?\d+)\s*\}|(?P<power>[+-]?\d+))"
_TIMES = r"(?:\\times|\\cdot|\*|[xX])"
_SIMPLE = re.compile(
    rf"({_INDIAN}|{_DOTTED}|{_GROUPED}|{_PLAIN})(?:[eE]\s*\{{?(?P<e>[+-]?\d+)\}}?|\s*{_TIMES}\s*{_POWER})?"
)
_ONLY_POWER = re.compile(_POWER)
_LATEX_FRACTION = re.compile(r"\\frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
_MIXED = re.compile(r"(\d+)\s*(?:\\[,; ])?\s*(\\frac.*)|(\d+)\s+(\d+\s*/\s*\d+)")
_PERCENT = re.compile(r"\s*(?:\\?%|\\?\s*\bper\s?cent\b|\bpct\b)$", re.IGNORECASE)
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = re.compile(rf"(.*?)\s*({'|'.join(_SCALES)})$", re.IGNORECASE | re.DOTALL)
_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_SPELT_BEHIND = re.compile(r"\s*\(([a-z]+)\)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    value: Fraction
    digits: int | None = None
    """Significant digits, if it is a decimal with a fraction part; None: it is exact."""
    percent: bool = False


def number(text: str, *, decimal_comma: bool = False) -> Number | None:
    """Read a plain number; None if the text isn't one. `decimal_comma`: `3,5` is 3.5."""
    if not text or len(text) > LONGEST:
        return None
    text = text.strip()
    spelt = _SPELT_BEHIND.search(text)
    if spelt and spelt[1].lower() in _WORDS and number(text[: spelt.start()]) == number(spelt[1]):
        text = text[: spelt.start()]
    if text.lower() in _WORDS:
        return Number(Fraction(_WORDS.index(text.lower())))
    percent = _PERCENT.search(text)
    if percent:
        text = text[: percent.start()]
    found = _signed(text.strip(), decimal_comma)
    if found is None:
        return None
    return Number(found.value, found.digits, bool(percent))


def _signed(text: str, decimal_comma: bool) -> Number | None:
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-").removeprefix("+").strip()
    if scaled := _SCALE.fullmatch(text):
        head = _unsigned(scaled[1], decimal_comma)
        return None if head is None else Number(sign * head.value * 10 ** _SCALES[scaled[2].lower()])
    found = _unsigned(text, decimal_comma)
    return None if found is None else Number(sign * found.value, found.digits)


def _unsigned(text: str, decimal_comma: bool) -> Number | None:
    if found := _decimal(text, decimal_comma):
        return found
    if power := _ONLY_POWER.fullmatch(text):
        return _scaled(Number(Fraction(1)), power["power"] or power["braced"])
    if mixed := _MIXED.fullmatch(text):
        whole, part = mixed[1] or mixed[3], _fraction(mixed[2] or mixed[4])
        return None if part is None or not 0 < part.value < 1 else Number(int(whole) + part.value)
    return _fraction(text)


def _fraction(text: str) -> Number | None:
    if latex := _LATEX_FRACTION.fullmatch(text):
        above, below = latex[1] or latex[2], latex[3] or latex[4]
    else:
        above, slash, below = text.partition("/")
        if not slash:
            return None
    sides = [_side(above or ""), _side(below or "")]
    if sides[0] is None or sides[1] is None or not sides[1]:
        return None
    return Number(sides[0] / sides[1])


def _side(text: str) -> Fraction | None:
    text = text.strip()
    found = _decimal(text.removeprefix("-").strip(), decimal_comma=False)
    return None if found is None else -found.value if text.startswith("-") else found.value


def _decimal(text: str, decimal_comma: bool) -> Number | None:
    if decimal_comma and re.fullmatch(r"\d+,\d+", text) and not re.fullmatch(r"\d{1,3},\d{3}", text):
        text = text.replace(",", ".")
    match = _SIMPLE.fullmatch(text)
    if not match:
        return None
    written = match[1]
    if re.fullmatch(_DOTTED, written):
        written = written.replace(".", "").replace(",", ".")
    elif re.search(r"(?<!\\),\s", written):  # a comma and a space separate two numbers
        return None
    written = re.sub(r"[^\d.]", "", written)
    whole, _, part = written.partition(".")
    value = Fraction(int(whole or "0")) + (Fraction(int(part), 10 ** len(part)) if part else 0)
    digits = len((whole + part).lstrip("0")) if part.strip("0") else None
    return _scaled(Number(value, digits), match["e"] or match["power"] or match["braced"])


def _scaled(found: Number, exponent: str | None) -> Number | None:
    if exponent is None:
        return found
    if len(exponent) > len(str(LONGEST)) or abs(int(exponent)) > LONGEST:
        return None
    value = found.value * Fraction(10) ** int(exponent)
    return Number(value, found.digits if value.denominator > 1 else None)


def same_number(one: Number, other: Number) -> bool:
    """Whether two numbers are equal, or one is a rounding of the other.

    A number with a percent sign equals its hundredth part, and also the bare number if that is above 1: a share can't
    be meant then.
    """
    if one.percent == other.percent:
        return _close(one, other)
    share, bare = (one, other) if one.percent else (other, one)
    if _close(Number(share.value / 100, share.digits), bare):
        return True
    return bare.value > 1 and _close(share, bare)


def _close(one: Number, other: Number) -> bool:
    if one.value == other.value:
        return True
    if one.value.denominator == 1 or other.value.denominator == 1 or one.digits == other.digits:
        return False
    shorter = min(one.digits or LONGEST, other.digits or LONGEST)
    return shorter >= DIGITS and abs(one.value - other.value) <= TOLERANCE * max(abs(one.value), abs(other.value))
