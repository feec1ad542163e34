"""Ways of writing numbers and answers, and which of them are equal."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cleaner_rl.tasks import Grade, Outcome
from cleaner_rl.tasks.grading.mathematics import compare
from cleaner_rl.tasks.grading.normalise import normalise
from cleaner_rl.tasks.grading.numbers import number, same_number
from cleaner_rl.tasks.grading.units import split_unit

GAPS = st.sampled_from([" ", "~", "\\,", "\\;", "\\ ", "\\!", "{,}", ",\\!", ",", "'"])
LOOKS = (
    " {} ",
    "${}$",
    "**{}**",
    "`{}`",
    "\\textbf{{{}}}",
    "\\color{{red}}{{{}}}",
    "\\left({}\\right)",
    "{{{}}}",
)
SENTENCES = (
    "{}",
    "{}.",
    "{},",
    "{}?",
    "x = {}",
    "= {}",
    "\\approx {}",
    "The answer is {}",
    "The answer is {}.",
    "\\text{{The final answer is }} {}",
)
NUMBERS = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.decimals(-1000, 1000, places=4).map(str),
    st.tuples(st.integers(-99, 99), st.integers(2, 99)).map(lambda pair: f"\\frac{{{pair[0]}}}{{{pair[1]}}}"),
    st.tuples(st.decimals(1, 9, places=3), st.integers(-40, 40)).map(lambda pair: f"{pair[0]}e{pair[1]}"),
)


def judged(truth: str, answer: str) -> Outcome | None:
    """The grade of an answer, or None if it takes algebra."""
    settled = compare([truth], answer)
    return settled.outcome if isinstance(settled, Grade) else None


@given(NUMBERS, st.lists(st.sampled_from(LOOKS), max_size=3, unique=True), st.sampled_from(SENTENCES))
def test_formatting_that_changes_no_meaning_changes_no_grade(written: str, looks: list[str], sentence: str) -> None:
    dressed = written
    for look in looks:
        dressed = look.format(dressed)
    assert judged(written, sentence.format(dressed)) is Outcome.RIGHT, dressed


@given(NUMBERS)
def test_a_number_never_equals_one_of_twice_its_size(written: str) -> None:
    found = number(written)
    assert found is not None
    assume(found.value != 0)
    for factor in (2, -1, Fraction(1, 2)):
        other = found.value * factor
        for form in (f"{other.numerator}/{other.denominator}", f"{float(other):.10e}"):
            assert judged(written, form) is Outcome.WRONG, form
    for zero in ("0", "0.0", "0.0000000", "0e5"):
        assert judged(written, zero) is Outcome.WRONG


@given(st.fractions(max_denominator=10**6), st.integers(6, 30))
def test_six_significant_digits_are_a_rounding(value: Fraction, digits: int) -> None:
    assume(value.denominator > 1)
    exact = f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
    rounded = number(f"{float(value):.{min(digits, 15) - 1}e}")
    assert rounded is not None
    if rounded.value.denominator > 1 and rounded.digits and rounded.digits >= 6:
        assert same_number(number(exact), rounded)  # type: ignore[arg-type]


@given(st.integers(-(10**15), 10**15))
def test_an_integer_has_many_forms_and_no_neighbour(value: int) -> None:
    for written in (str(value), f"{value:,}", f"{value}.0", f"{value}.", str(value).replace("-", "−"), f"{value}e0"):
        assert judged(str(value), written) is Outcome.RIGHT, written
    for other in (f"{value}.0000001", str(value + 1)):
        assert judged(str(value), other) is Outcome.WRONG


@given(st.integers(1000, 10**12), GAPS)
def test_groups_of_three_digits_are_thousands(value: int, gap: str) -> None:
    assert number(f"{value:,}".replace(",", gap)) == number(str(value))


@given(st.lists(st.text("0123456789", min_size=1, max_size=5), min_size=2, max_size=4), GAPS)
def test_other_groups_are_no_number(groups: list[str], gap: str) -> None:
    assume(len(groups[0]) > 3 or any(len(group) != 3 for group in groups[1:]))
    assume(not (gap == "," and len(groups) > 2))  # 12,34,567 is written so in India
    assert number(gap.join(groups)) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6.02e23", Fraction(602 * 10**21)),
        ("6.02 \\times 10^{23}", Fraction(602 * 10**21)),
        ("1.6\\cdot10^{-19}", Fraction(16, 10**20)),
        ("10^6", Fraction(10**6)),
        ("1 1/2", Fraction(3, 2)),
        ("1\\frac{1}{2}", Fraction(3, 2)),
        ("-\\frac{3}{4}", Fraction(-3, 4)),
        ("1.234,5", Fraction(2469, 2)),
        ("1.234.567", Fraction(1_234_567)),
        ("12,34,567", Fraction(1_234_567)),
        ("2.5 million", Fraction(2_500_000)),
        ("seven", Fraction(7)),
        ("7 (seven)", Fraction(7)),
    ],
)
def test_a_plain_number_is_read(text: str, value: Fraction) -> None:
    found = number(text)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize("text", ["", "x", "12, 144", "1,2", "1 2", "--1", "5!", "9^9", "1e99999", "1/0", "7 (eight)"])
def test_what_is_no_plain_number_is_left_alone(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("truth", "answer", "wanted"),
    [
        ("0.1234567", "0.1234568", Outcome.WRONG),
        ("0.333333", "0.33333333", Outcome.RIGHT),
        ("\\frac{1}{3}", "0.333", Outcome.WRONG),
        ("3.14", "3.14159", Outcome.WRONG),
        ("50\\%", "0.5", Outcome.RIGHT),
        ("50", "50\\%", Outcome.RIGHT),
        ("1", "1\\%", Outcome.WRONG),
        ("5 km", "5000 m", Outcome.RIGHT),
        ("5 cm", "5 m", Outcome.WRONG),
        ("10 m/s", "36 km/h", Outcome.RIGHT),
        ("25\\text{ cm}^2", "25\\text{ cm}^3", Outcome.WRONG),
        ("45", "45^\\circ", Outcome.RIGHT),
        ("30^\\circ", "30'", Outcome.WRONG),
        ("12", "12 dollars", Outcome.RIGHT),
        ("5 yen", "5 rupees", Outcome.WRONG),
        ("5 yen", "5 yuan", Outcome.WRONG),
        ("5 yuan", "5 rupees", Outcome.WRONG),
        ("5 yen", "₹5", Outcome.WRONG),
        ("¥5", "5 rupees", Outcome.WRONG),
        ("₹5", "5 rupees", Outcome.RIGHT),
        ("¥5", "5 yen", Outcome.RIGHT),
        ("5 yuan", "¥5", Outcome.RIGHT),
        ("5 yen", "5 dollars", Outcome.WRONG),
        ("3.5", "3,5", Outcome.RIGHT),
        ("100200", "100, 200", Outcome.WRONG),
        ("5", "6=5", Outcome.WRONG),
        ("5", "n=3+2=5", Outcome.RIGHT),
        ("8", "8 \\approx 3", Outcome.WRONG),
        ("8", "8 \\text{ (or possibly 9)}", Outcome.WRONG),
        ("no", "on", Outcome.WRONG),
        ("A", "a", Outcome.WRONG),
        ("\\mathbb{R}", "\\text{all real numbers}", Outcome.RIGHT),
        ("\\{1,2,3\\}", "(1,2,3)", Outcome.WRONG),
        ("(0,1)", "\\{0,1\\}", Outcome.WRONG),
        ("1, 2", "1 < x < 2", Outcome.WRONG),
        ("1 < x < 2", "1, 2", Outcome.WRONG),
    ],
)
def test_a_pair_that_needs_no_algebra(truth: str, answer: str, wanted: Outcome) -> None:
    assert judged(truth, answer) is wanted


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("−５", "-5"),
        ("½", "\\frac{1}{2}"),
        ("1½", "1\\frac{1}{2}"),
        ("x²", "x^{2}"),
        ("x⁻¹⁰", "x^{-10}"),
        ("√2", "\\sqrt{2}"),
        ("√(x+1)", "\\sqrt{x+1}"),
        ("٣", "3"),
        ("９９％", "99%"),
        ("5!", "5!"),
        ("(1,2)", "(1,2)"),
        ("(x+1)(x-1)", "(x+1)(x-1)"),
        ("9**9", "9**9"),
    ],
)
def test_unicode_and_looks_have_one_writing(written: str, wanted: str) -> None:
    assert normalise(written) == wanted


@given(st.text(max_size=60))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    once = normalise(text)
    assume(len(once) < 40)
    assert normalise(normalise(once)) == normalise(once)


def test_a_letter_is_a_unit_only_where_it_is_set_apart() -> None:
    assert split_unit("5m")[1] is None
    assert split_unit("5 m")[1] is not None
    assert split_unit("5\\text{m}")[1] is not None
    assert split_unit("2x")[1] is None
