r"""One way of writing for answers that mean the same: what is taken off before anything is compared.

- Unicode: digits, dashes, fractions (½), powers (x²), roots (√2), signs (≤, π, °) become ASCII and LaTeX.
- Looks: `$…$`, `**…**`, `` `…` ``, `\textbf{…}`, `\color{red}{…}`, `\left`, `\dfrac`, brackets around all of it.
- Words around it: "The answer is", a leading `\approx` or `=`, a full stop, comma or question mark at the end.

All of it is meant to keep the meaning, and nothing here reads mathematics. `!` at the end stays: it is a factorial.
"""

from __future__ import annotations

import re
import unicodedata

_SIGNS = {
    **dict.fromkeys("−–—‒―－﹣‐‑", "-"),
    **dict.fromkeys("×✕⨯", r"\times "),
    **dict.fromkeys("·⋅∙•", r"\cdot "),
    **dict.fromkeys("，﹐、", ","),
    **dict.fromkeys("’′ʹ", "'"),
    **dict.fromkeys("“”″", '"'),
    "÷": "/",
    "∕": "/",
    "⁄": "/",
    "。": ".",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "π": r"\pi ",
    "θ": r"\theta ",
    "α": r"\alpha ",
    "β": r"\beta ",
    "γ": r"\gamma ",
    "λ": r"\lambda ",
    "φ": r"\phi ",
    "ω": r"\omega ",
    "∞": r"\infty ",
    "≤": r"\le ",
    "⩽": r"\le ",
    "≥": r"\ge ",
    "⩾": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "≅": r"\approx ",
    "±": r"\pm ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∅": r"\emptyset ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "ℚ": r"\mathbb{Q}",
    "ℕ": r"\mathbb{N}",
    "ℂ": r"\mathbb{C}",
    "→": r"\to ",
    "⇒": r"\Rightarrow ",
    "°": r"^\circ ",
    "º": r"^\circ ",
    "∛": r"\sqrt[3]",
    "√": r"\sqrt",
}
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_ROOT = re.compile(r"(\\sqrt(?:\[3\])?)\s*(\d+(?:\.\d+)?|[a-zA-Z]|\\pi)")
_ROOT_OF_BRACKETS = re.compile(r"(\\sqrt(?:\[3\])?)\s*\(([^()]*)\)")

_LOOK = (
    r"\\(?:textbf|textit|emph|mathbf|mathit|mathsf|textsf|boldsymbol|bm|underline|ensuremath|displaystyle|"
    r"(?:text)?color\s*\{[^{}]*\}|bf)\s*"
)
_WRAPPED = re.compile(_LOOK + r"\{([^{}]*)\}")
_WRAPPED_WHOLE = re.compile(_LOOK + r"(?=\{)")
_SIZES = re.compile(r"\\(?:left|right|bigl|bigr|Bigl|Bigr|big|Big|displaystyle|textstyle|limits|bf)(?![a-zA-Z])\s*")
_SENTENCE = re.compile(
    r"\A(?:\\text\s*\{\s*)?(?:so |thus |hence |therefore )?,?\s*(?:the |my )?(?:final |correct )?answer"
    r"(?: is|:| =)\s*:?\s*\}?\s*",
    re.IGNORECASE,
)
_LEADING = re.compile(r"\A(?:\\(?:approx|sim|simeq|therefore|implies|Rightarrow)(?![a-zA-Z])|[=~:≈])\s*")
_TRAILING = re.compile(r"(?:[\s.,;:?~]|\\[,;:!.](?=$)|\\\\(?=$)|\\ (?=$)|\\q?quad(?=$))+$")
_PAIRS = (("**", "**"), ("__", "__"), ("*", "*"), ("`", "`"), ("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_BRACKETS = {"{": "}", "(": ")"}
ROUNDS = 12


def normalise(answer: str) -> str:
    r"""Return the answer in one way of writing, still as LaTeX.

    Examples:
        >>> from cleaner_rl.tasks.grading.normalise import normalise
        >>> normalise("**−½**"), normalise("The answer is $x²$."), normalise("\\textbf{√2}")
        ('-\\frac{1}{2}', 'x^{2}', '\\sqrt{2}')
    """
    text = _ascii(answer).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\cfrac", "\\frac")
    for _ in range(ROUNDS):
        before = text
        text = _SIZES.sub("", _WRAPPED.sub(r"\1", text)).strip()
        text = _TRAILING.sub("", _unwrapped(_LEADING.sub("", _SENTENCE.sub("", text))))
        if look := _WRAPPED_WHOLE.match(text):
            inner = text[look.end() :]
            text = inner if _closed_by(inner) == len(inner) - 1 else text
        text = _inside_brackets(text)
        if text == before:
            break
    return text


def _ascii(text: str) -> str:
    text = _RAISED.sub(lambda match: "^{" + _compatible(match[0]) + "}", text)
    text = _LOWERED.sub(lambda match: "_{" + _compatible(match[0]) + "}", text)
    if text.isascii():
        return text
    text = "".join(map(_character, text))
    return _ROOT.sub(r"\1{\2}", _ROOT_OF_BRACKETS.sub(r"\1{\2}", text))


def _character(char: str) -> str:
    if char.isascii():
        return char
    if char in _SIGNS:
        return _SIGNS[char]
    if char.isspace():
        return " "
    if unicodedata.category(char) == "Cf":  # joiners and marks of direction that nobody sees
        return ""
    if (digit := unicodedata.digit(char, None)) is not None:
        return str(digit)
    plain = unicodedata.normalize("NFKC", char)
    if unicodedata.category(char) == "No" and "⁄" in plain:
        above, _, below = plain.partition("⁄")
        return f"\\frac{{{above}}}{{{below}}}"
    return _SIGNS.get(plain, plain)


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("−", "-")


def _unwrapped(text: str) -> str:
    for begin, end in _PAIRS:
        inner = text[len(begin) : -len(end)]
        # `9**9**9` and `$1$, $2$` are not wrapped, though they may begin and end with marks.
        if text.startswith(begin) and text.endswith(end) and inner and begin not in inner and end not in inner:
            return inner.strip()
    return text


def _inside_brackets(text: str) -> str:
    """A text without brackets around all of it. With a comma inside, they say what it is: a pair, an interval."""
    while text[:1] in _BRACKETS and text.endswith(_BRACKETS[text[0]]) and _closed_by(text) == len(text) - 1:
        if text[0] == "(" and ("," in text or ";" in text or text[-2:-1] == "\\"):
            break
        text = text[1:-1].strip()
    return text


def _closed_by(text: str) -> int:
    """Where the bracket that the text begins with is closed."""
    depth = 0
    for place, char in enumerate(text):
        if place and text[place - 1] == "\\":
            continue
        depth += (char in "{([") - (char in "})]")
        if depth == 0:
            return place
    return -1
