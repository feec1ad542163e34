"""Similarity: the value of `difflib` within a bound, symmetric, and named after the measure that gave it."""

from __future__ import annotations

import difflib
import inspect
import random
import textwrap
import time
import warnings
from collections.abc import Callable
from itertools import takewhile
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.purify import similarity as module
from cleaner_rl.purify.similarity import MAX_LENGTH, Similarity, bounded, lexemes, similarity

Become: TypeAlias = Callable[[Callable[[str, str], object]], None]
OURS = ["ast", "difflib", "indel", "tokens"]

CODE = """\
import math

def area(radius):
    # of a circle
    return math.pi * radius ** 2

print(area(3))
"""
FIXED = CODE.replace("radius ** 2", "float(radius) ** 2").replace("# of a circle", "# pi r squared")


def by_difflib(a: str, b: str) -> float:
    return max(difflib.SequenceMatcher(None, x, y, autojunk=False).ratio() for x, y in ((a, b), (b, a)))


def few_letters(letters: str, longest: int = 60) -> st.SearchStrategy[str]:
    return st.text(alphabet=letters, min_size=1, max_size=longest)


@st.composite
def alike(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts made of the same few pieces: long blocks, many of the same length, in other orders."""
    pieces = draw(st.lists(few_letters("abc\n ", 8), min_size=1, max_size=4))
    a, b = ("".join(draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=12))) for _ in range(2))
    return a, b


# What it is over.


def test_s7_similarity_is_over_the_code() -> None:
    """With the JSON around them these two score 0.935, and the reasoning is never replaced."""
    alike = similarity("print(1+1)", "import os")
    assert alike == Similarity(6 / 19, "difflib")
    assert round(alike.value, 3) == 0.316
    assert alike.value < 0.5


# difflib.


def test_s8_the_order_of_the_arguments_does_not_matter() -> None:
    assert difflib.SequenceMatcher(None, "tide", "diet").ratio() == 0.25
    assert difflib.SequenceMatcher(None, "diet", "tide").ratio() == 0.5
    assert similarity("tide", "diet").value == similarity("diet", "tide").value == 0.5


def test_s8_no_character_is_junk_for_being_frequent() -> None:
    a, b = "y" + "x = 1\n" * 50, "x = 1\n" * 50 + "z"
    assert difflib.SequenceMatcher(None, a, b).ratio() == 0
    assert bounded.ratio(a, b, 10**9) == 600 / 602


def common_ends(a: str, b: str) -> int:
    begin = common_begin(a, b)
    return begin + common_begin(a[begin:][::-1], b[begin:][::-1])


def common_begin(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


@pytest.mark.parametrize("letters", ["a", "ab", "abc", "ab \n", "\0\ud800é𝄞"])
def test_equals_difflib_unless_half_of_the_text_is_common_at_the_ends(letters: str) -> None:
    @given(few_letters(letters), few_letters(letters))
    def equal(a: str, b: str) -> None:
        longer = max(len(a), len(b))
        assert bounded.ratio(a, b, 10**9) == by_difflib(a, b) or 2 * common_ends(a, b) >= longer

    equal()


@given(alike())
def test_equals_difflib_over_shuffled_pieces(pair: tuple[str, str]) -> None:
    a, b = f"<{pair[0]}>", f"[{pair[1]}]"  # nothing common at the ends
    assert bounded.ratio(a, b, 10**9) == by_difflib(a, b)


@given(st.text(min_size=1), st.text(min_size=1))
def test_equals_difflib_over_any_text(a: str, b: str) -> None:
    a, b = f"<{a}>", f"[{b}]"  # nothing common at the ends
    assert bounded.ratio(a, b) == by_difflib(a, b)


def test_equals_difflib_on_code_of_some_size() -> None:
    code, other = inspect.getsource(textwrap), inspect.getsource(difflib)
    for a, b in (
        (code[:500], other[:400]),
        (code[:500], code[:180] + code[220:500].replace("self", "this")),
        (code[:9_000], code[:2_000] + "\n# one line more\n" + code[2_000:9_000]),
    ):
        assert similarity(a, b) == Similarity(by_difflib(a, b), "difflib")


PIECE = st.text("ab", max_size=3)


@given(st.text("ab", max_size=9), PIECE, PIECE, st.text("abc", max_size=9))
def test_what_is_common_at_the_ends_is_matched(before: str, wrong: str, right: str, after: str) -> None:
    a, b = before + wrong + after, before + right + after
    if a != b:
        value = similarity(a, b).value
        ends = common_ends(a, b)
        assert value == by_difflib(a, b) or value >= 2 * ends / (len(a) + len(b)) >= 0.5


@pytest.mark.parametrize(
    ("a", "b", "matched"),
    [
        ("abXcd", "abYcd", 4),
        ("abcdefX", "abcdef", 6),
        ("Xabcdef", "abcdef", 6),
        ("aaa", "aa", 2),
        ("x = 1\n" * 50, "x = 1\n" * 20 + "y" + "x = 1\n" * 30, 300),  # difflib takes the last 30 lines only
        ("Xaaab", "Yaaba", 3),  # difflib's "aaa" or "aab", for nothing is common at the ends
    ],
)
def test_common_ends_by_hand(a: str, b: str, matched: int) -> None:
    assert similarity(a, b) == Similarity(2 * matched / (len(a) + len(b)), "difflib")


def test_both_orders_are_tried_where_they_differ() -> None:
    rng = random.Random(0)
    differing = 0
    for _ in range(300):
        a, b = ("".join(rng.choice("abcd") for _ in range(20)) for _ in range(2))
        one, other = (difflib.SequenceMatcher(None, x, y, autojunk=False).ratio() for x, y in ((a, b), (b, a)))
        differing += one != other
        assert bounded.ratio(a, b) == max(one, other)
    assert differing > 20


# The bound.


def steps_of(a: str, b: str) -> int:
    """Return the smallest bound within which the pair is measured."""
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high) // 2
        if within(a, b, middle):
            high = middle
        else:
            low = middle + 1
    return low


def within(a: str, b: str, max_steps: int) -> bool:
    try:
        bounded.ratio(a, b, max_steps)
    except bounded.TooManyStepsError:
        return False
    return True


WORST = {
    "two letters alternating": ("ab" * 5_000, "ba" * 4_999 + "c"),
    "one line repeated": ("x=1\n" * 2_500, "x=2\n" * 2_500),
    "two letters at random": (
        "".join(random.Random(1).choices("ab", k=10_000)),
        "".join(random.Random(2).choices("ab", k=10_000)),
    ),
    "every third character": (
        "".join(chr(5_000 + i if i % 3 else 1_000 + i) for i in range(1_500)),
        "".join(chr(30_000 + i if i % 3 else 1_000 + i) for i in range(1_500)),
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_s8_a_slow_pair_is_compared_by_words(name: str) -> None:
    """The first one takes 87 seconds in difflib."""
    a, b = WORST[name]
    words = module._indel(lexemes.words(a), lexemes.words(b))
    assert similarity(a, b) == similarity(b, a) == Similarity(words, "difflib>words")


@pytest.mark.parametrize("name", WORST)
def test_s8_no_search_begins_beyond_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the characters that `difflib` really compares: those of a with all equal ones of b up to the box's end."""
    compared = 0
    find = difflib.SequenceMatcher.find_longest_match

    def search(self: difflib.SequenceMatcher[str], alo: int, ahi: int, blo: int, bhi: int) -> difflib.Match:
        nonlocal compared
        compared += sum(self.b[:bhi].count(character) for character in self.a[alo:ahi])  # type: ignore[attr-defined]
        return find(self, alo, ahi, blo, bhi)

    monkeypatch.setattr(difflib.SequenceMatcher, "find_longest_match", search)
    similarity(*WORST[name])
    assert compared <= bounded.MAX_STEPS


@given(alike(), st.integers(0, 5_000))
def test_s8_giving_up_does_not_depend_on_the_order(pair: tuple[str, str], bound: int) -> None:
    a, b = pair
    assert within(a, b, bound) == within(b, a, bound)


def test_s8_the_steps_counted_never_change() -> None:
    """A change of these figures changes which recorded decisions can be reproduced."""
    # A search costs 25, each position 2, each pair of equal characters 1.
    assert steps_of("abcd", "bcde") == 25 + 4 * 2 + 3
    # "d" is the first block; the rest is "iet" against "e". No order matches more than these two.
    assert steps_of("tide", "diet") == (25 + 4 * 2 + 4) + (25 + 3 * 2 + 3)
    assert steps_of("xyz" + "abc" * 9, "q".join("cab" * 9)) == 4_834
    assert steps_of("ab" * 200, "ba" * 190 + "c") == 76_814


def test_the_bounds_are_the_documented_ones() -> None:
    assert bounded.MAX_STEPS == 150_000
    assert MAX_LENGTH == 50_000


# The other measures, by hand.


def test_indel_by_hand() -> None:
    assert similarity("kitten", "sitting", "indel") == Similarity(8 / 13, "indel")  # ittn


def test_tokens_by_hand() -> None:
    assert similarity("x = f(1)", "x=g( 1 )  # no", "tokens") == Similarity(10 / 12, "tokens")
    assert similarity("if x:\n    y", "if x:\ny", "tokens") == Similarity(1.0, "tokens")
    assert similarity("a b c d e", "a b c f g", "tokens").value == 0.6
    assert similarity("# one", "# other", "tokens") == Similarity(1.0, "tokens")
    assert similarity("# one", "x", "tokens") == Similarity(0.0, "tokens")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a+=b**c", ["a", "+=", "b", "**", "c"]),
        ("a**=b//c//=d", ["a", "**=", "b", "//", "c", "//=", "d"]),
        ("a<<b>>c<<=d>>=e", ["a", "<<", "b", ">>", "c", "<<=", "d", ">>=", "e"]),
        ("a<=b!=c==d>=e", ["a", "<=", "b", "!=", "c", "==", "d", ">=", "e"]),
        ("def f()->x:...", ["def", "f", "(", ")", "->", "x", ":", "..."]),
        ("(y:=1.5e-3+.5j)", ["(", "y", ":=", "1.5e-3", "+", ".5j", ")"]),
        ("0xFF 1_000 1e5-2", ["0xFF", "1_000", "1e5", "-", "2"]),
        ("rb'a\\'b' 'c' # d", ["rb'a\\'b'", "'c'"]),
        ('f"a#{b}" u"c"', ['f"a#{b}"', 'u"c"']),
        ("'''a'b\n#c'''+1", ["'''a'b\n#c'''", "+", "1"]),
        ('"""a"b\\"""c"""d', ['"""a"b\\"""c"""', "d"]),
        ("print('never closed)\nx", ["print", "(", "'never closed)", "x"]),
        ('print("never closed)\nx', ["print", "(", '"never closed)', "x"]),
        ("'''never\nclosed", ["'''never\nclosed"]),
        ('"""never\nclosed', ['"""never\nclosed']),
        ("'a\\\nb'", ["'a\\\nb'"]),
        ("größe = ?\0\ud800$", ["größe", "=", "?", "\0", "\ud800", "$"]),
        ("a\\", ["a", "\\"]),
        ("'\\", ["'", "\\"]),
        ("x #'''\n'y'", ["x", "'y'"]),
        ("'#' #", ["'#'"]),
        (" \t\r\n\f", []),
    ],
)
def test_lexemes(code: str, expected: list[str]) -> None:
    assert lexemes.tokens(code) == expected


@given(st.text())
def test_every_character_that_counts_is_in_a_lexeme(code: str) -> None:
    code = code.replace("#", "")
    assert "".join("".join(lexemes.tokens(code)).split()) == "".join(code.split())


def test_nodes_by_hand() -> None:
    assert lexemes.nodes("x = y.z + 1  # c") == [
        *("Assign", "Name", (str, "x")),
        *("BinOp", "Attribute", "Name", (str, "y"), (str, "z"), "Add", (int, 1)),
    ]
    assert lexemes.nodes("f(None, *a)\ndel b") == [
        *("Expr", "Call", "Name", (str, "f"), (type(None), None), "Starred", "Name", (str, "a")),
        *("Delete", "Name", (str, "b")),
    ]
    assert lexemes.nodes("# nothing") == []


def test_ast_by_hand() -> None:
    """Of 4 and 4 items, Assign, Name and x are the same."""
    assert similarity("x = 1", "x = 2", "ast") == Similarity(6 / 8, "ast")
    assert similarity("x = 1", "x=(1) # one", "ast") == Similarity(1.0, "ast")
    assert similarity("x = 1", "x = 1.0", "ast").value == similarity("x = 1", "x = True", "ast").value == 0.75
    # rapidfuzz compares hashes, and these two are the same.
    assert hash((-1,)) == hash((-2,))
    assert module._indel([(-1,)], [(-2,)]) == 0.0


@pytest.mark.parametrize(
    "broken",
    ["print((1)", "x = '\0'", "x = '\ud800'", "(" * 5_000, "-" * 40_000 + "1", "a" + ".a" * 20_000, "x = 1\n  y = 2"],
    ids=["bracket", "NUL", "surrogate", "brackets", "minuses", "attributes", "indent"],
)
def test_code_that_does_not_parse_is_compared_by_tokens(broken: str) -> None:
    value = similarity(broken, "print(1)", "tokens").value
    assert similarity(broken, "print(1)", "ast") == Similarity(value, "ast>tokens")
    assert similarity("print(1)", broken, "ast") == Similarity(value, "ast>tokens")


def test_a_warning_of_the_parser_is_neither_shown_nor_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert similarity(r"x = '\d'", r"y = '\d'", "ast") == Similarity(6 / 8, "ast")
        with pytest.raises(UserWarning):
            warnings.warn("still an error", stacklevel=1)


# What all have in common.


@pytest.mark.parametrize("measure", OURS)
def test_equal_and_empty_code(measure: str) -> None:
    assert similarity("", "", measure) == Similarity(1.0, measure)
    assert similarity("x", "", measure) == Similarity(0.0, measure)
    assert similarity("", "x", measure) == Similarity(0.0, measure)
    assert similarity("x" * 10**6, "x" * 10**6, measure) == Similarity(1.0, measure)


@pytest.mark.parametrize("measure", OURS)
@given(a=st.one_of(st.text(), few_letters("()'\" \n#x1=")), b=st.one_of(st.text(), few_letters("()'\" \n#x1=")))
def test_symmetric_and_from_0_to_1(measure: str, a: str, b: str) -> None:
    alike = similarity(a, b, measure)
    assert 0.0 <= alike.value <= 1.0
    assert alike == similarity(b, a, measure)
    assert alike.measure.split(">")[0] == measure
    assert similarity(a, a, measure) == Similarity(1.0, measure)


@pytest.mark.parametrize("measure", OURS)
def test_very_long_code_is_compared_by_lines(measure: str) -> None:
    short, long = "x = 1\n", "x = 1\n" * 3 + "y" * (MAX_LENGTH - 18)
    assert similarity(short, long, measure).measure in (measure, f"{measure}>indel")
    longer = long + "z"
    for a, b in ((short, longer), (longer, short)):
        assert similarity(a, b, measure) == Similarity(2 * 6 / (6 + MAX_LENGTH + 1), f"{measure}>lines")
    # A line counts as often as both have it.
    assert similarity(short * 2, longer, measure).value == 2 * 12 / (12 + MAX_LENGTH + 1)


@pytest.mark.parametrize("measure", OURS)
@pytest.mark.parametrize("item", ["\0", "\ud800", "(", "'''", "x\n", "𝄞"])
@pytest.mark.usefixtures("untraced")
def test_a_million_characters(measure: str, item: str) -> None:
    a = item * (10**6 // len(item))
    started = time.process_time()
    value = similarity(a, a + item, measure).value
    assert value == (2 * len(a) / (2 * len(a) + 2) if item == "x\n" else 0.0)
    assert time.process_time() - started < 5


def test_the_measure_is_difflib_unless_told() -> None:
    assert similarity(CODE, FIXED) == similarity(CODE, FIXED, "difflib")
    assert similarity(CODE, FIXED, "ast").value != similarity(CODE, FIXED, "difflib").value


def test_an_unknown_measure_is_told_the_known_ones() -> None:
    message = "'levenshtein'.*ast, difflib, indel, tokens"
    with pytest.raises(ValueError, match=message):
        similarity("a", "a", "levenshtein")
