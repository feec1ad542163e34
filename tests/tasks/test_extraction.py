"""Where the answer stands in a text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tasks import boxed
from cleaner_rl.tasks.grading import choice_letter, program
from cleaner_rl.tasks.grading.extraction import boxed_answer

BALANCED = st.recursive(
    st.text("abc 123\\frac^_+-", max_size=5).filter(lambda text: "boxed" not in text and not text.endswith("\\")),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
    max_leaves=6,
)
PROSE = st.text(st.characters(exclude_characters="{}\\", exclude_categories=["Cs"]), max_size=300)


@given(PROSE, BALANCED, PROSE)
def test_g2_a_box_is_found_wherever_it_stands(before: str, answer: str, after: str) -> None:
    assert boxed(f"{before}\\boxed{{{answer}}}{after}") == answer.strip()


@given(BALANCED, BALANCED)
def test_g2_the_last_box_counts(first: str, last: str) -> None:
    assert boxed(f"\\boxed{{{first}}} then \\boxed{{{last}}}") == last.strip()
    assert boxed(f"\\boxed{{{first}}} then \\boxed{{{last}") in (first.strip(), None)


def test_g2_the_box_may_stand_far_from_the_end() -> None:
    assert boxed("\\boxed{\\frac{1}{2}}" + " and so on" * 1_000) == "\\frac{1}{2}"


SLOW = {
    "boxes never closed": "\\boxed{" * 50_000,
    "boxes in boxes": "\\boxed{" * 50_000 + "}" * 50_000,
    "braces before a box": "{" * 200_000 + "\\boxed{1",
    "braces in a box": "\\boxed{" + "{" * 200_000 + "}" * 200_001,
    "backslashes": "\\" * 200_001,
    "closing braces": "\\boxed{1}" + "}" * 200_000,
    "fences": "```\n" * 20_001,
    "fences of other lengths": "".join("`" * (3 + n % 50) + "\n" for n in range(3_000)),
    "fences never closed": "```python\n" * 4_000,
    "fences of falling lengths": "".join("`" * n + "\n" for n in range(200, 3, -1)) + "```\n" * 20_000,
    "a fence of tildes": "~" * 20_000 + "\n",
    "a fence with a backtick behind words": "```" + "a" * 20_000 + "`\n",
    "answers": "answer is " * 50_000,
    "lines behind an answer": "The answer is" + "\n" * 1_000 + "?",
    "colons behind an answer": "The answer is" + ":" * 200_000,
    "options behind an answer": "The answer is option" + " " * 200_000,
    "a letter and blanks": "\\boxed{A" + " " * 200_000 + "}" + "answer is A" + " " * 200_000,
    "lines of an indented fence": "   ```\n" + "\n" * 100_000 + "   ```",
    "stars behind an answer": "The answer" + "*" * 200_000,
    "boxes side by side": "\\boxed{1}, " * 20_000,
    "letters side by side": "The answer is C" + ", or" * 50_000,
    "letters behind a change of mind": "The answer is C. Wait, " + "C " * 100_000,
    "negations": "not " * 100_000 + "\\boxed{1}",
    "programs with boxes": "```python\nbox\n```\n" * 5_000,
}


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_g3_texts_made_to_be_slow_are_not(text: str) -> None:
    begun = time.process_time()
    boxed(text)
    boxed_answer(text)
    choice_letter(text)
    program(text)
    assert time.process_time() - begun < 5


SPACE = st.text(" \n\t", max_size=3)
STARS = st.text("*", max_size=3)
STATEMENTS = st.tuples(
    st.sampled_from(["answer", "Answer", "The correct answer"]),
    STARS,
    SPACE,
    st.sampled_from([" is ", ":"]),
    st.text(" \n\t*", max_size=6),
    st.text("\\$({[", max_size=3),
    SPACE,
    st.sampled_from(["", "text{"]),
    st.sampled_from(["", "("]),
).map("".join)


@given(PROSE, STATEMENTS, st.sampled_from("ABCD"), st.sampled_from(["", ".", ")", "**", "}$", "\nDone."]))
def test_an_answer_is_stated_with_any_stars_spaces_and_brackets(before: str, said: str, letter: str, end: str) -> None:
    assert choice_letter(f"{before} {said}{letter}{end}") == letter


@pytest.mark.parametrize("text", ["**Answer:** **B**", "**Answer**: **(B)**", "Answer:\n\n**B**", "*answer is* **B**."])
def test_an_answer_may_stand_in_bold_by_itself(text: str) -> None:
    assert choice_letter(text) == "B"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("```py\n1\n```\n```python\n2\n```\n```text\n3\n```", "2\n"),
        ("```\n1\n```", "1\n"),
        ("~~~python\n1\n~~~", "1\n"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("````python\n```python\n1\n```\n", "1\n"),
        ("```python\n```", ""),
        ("  ```python title=x\n1\n  ``` ", "1\n"),
        ("```python\n1\n~~~\n```", "1\n~~~\n"),
        ("1. So:\n   ```python\n   if x:\n       y\n\n   z\n   ```", "if x:\n    y\n\nz\n"),
        ("- So:\n\n\t```\n\tif x:\n\t\ty\n\t```", "if x:\n\ty\n"),
        ('   ```\n   x = """\n a\nb\n   """\n   ```', 'x = """\na\nb\n"""\n'),
        ("  ```\nif x:\n  y\n  ```", "if x:\n  y\n"),
        ("print(1)", None),
        ("```python\nprint(1)", None),
        ("```python\nprint(1)\n``` x", None),
        ("Use `print`.", None),
    ],
)
def test_a_program_is_the_last_block_of_python(text: str, wanted: str | None) -> None:
    assert program(text) == wanted


@given(st.lists(st.text("`~ x", max_size=6)), st.sampled_from("`~"), st.integers(3, 9))
def test_a_fence_longer_than_all_inside_keeps_its_program(lines: list[str], mark: str, more: int) -> None:
    code = "".join(f"{line}\n" for line in lines)
    fence = mark * (6 + more)
    assert program(f"```\nother\n```\n{fence}python\n{code}{fence}\n~~~\nlast\n~~~") == code


def test_a_box_beside_a_box_is_not_taken_for_one_around_it() -> None:
    assert boxed("\\boxed{\\boxed{5} + \\boxed{6}}") == "\\boxed{5} + \\boxed{6}"
    assert boxed("\\boxed{ \\boxed{ 5 } }") == "5"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\\boxed{1} and \\boxed{2}", "1 , 2"),
        ("$\\boxed{1}$, $\\boxed{2}$ or $\\boxed{3}$", "1 , 2 or 3"),
        ("\\boxed{1} so \\boxed{2}", "2"),
        ("First \\boxed{1}. Then, by the lemma and so on, \\boxed{2}", "2"),
        ("It is not \\boxed{5}", None),
        ("It is 7, not $\\boxed{5}$.", None),
        ("It is 7 and nothing else: \\boxed{7}", "7"),
        ("```python\nprint('\\\\boxed{5}')\n```", None),
        ("```\n\\boxed{5}\n```", "5"),
        ("\\boxed 5", "5"),
        ("\\boxed5", "5"),
        ("5", None),
    ],
)
def test_boxes_side_by_side_are_one_answer_and_some_are_none(text: str, wanted: str | None) -> None:
    assert boxed_answer(text) == wanted
