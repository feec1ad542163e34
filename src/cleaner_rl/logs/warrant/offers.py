"""Names that a tool offers in the place of a wrong one: "Did you mean: 'sort_new'?", "no kit.sort_of; use sort_new".

A call that has the offered name, and is the failed one otherwise, does the same thing: the tool itself says so. So the
failed call is compared as if it had been made with that name. Where several names are offered, the new one has to have
a word of the old one, because nobody knows which of them was meant. A name with another number is another thing: that
`orders_2026` isn't there is a finding, although the tool offers `orders_2025`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cleaner_rl.logs.warrant.texts import misspelt, words
from cleaner_rl.tools import CallKind

_FILLING = r"(?:\ (?:to\ (?:use|reference|call|write|run|type|import)|one\ of(?:\ these)?|instead|the\ (?:\w+\ )?))*"
OFFER = re.compile(
    r"""\b(?:
        did\ you\ mean | do\ you\ mean | (?:perhaps|maybe)\ you\ mean[t]? | you\ (?:may|might|probably)\ have\ meant
      | (?:re|was\ )named\ to | replaced\ (?:by|with) | (?:most\ )?similar\ (?:\w+\ ){0,2}(?:is|are)\b | similar\b(?=:)
      | (?:please\ |should\ |must\ )?use\b | is\ now\ (?:called\ )?
    )"""
    + _FILLING
    + r"[?:,\s]*",
    re.IGNORECASE | re.VERBOSE,
)
"""Words after which a tool names what it would have taken."""
CHOICE = re.compile(
    r"""\b(?:
        (?:must|should)\ be(?:\ one\ of)? | (?:valid|allowed|available|possible)\ \w+\ are | choose\ from | expected
    )[:,({\[\s]*""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words after which it lists all that it takes, which is not about this call."""
NAME = re.compile(r"""["'`“‘]?(-{0,2}[^\W\d][\w./@:-]*\w|[^\W\d])(?:\(\))?["'`”’]?""")
JOINT = re.compile(r"""\s*(?:,|\||\bor\b|\band\b|\n)(?:\ ?\bor\b)?\s*""")
SHORTEST = 3
"""Letters of a beginning that two names may have in common."""
MOST = 20
"""Names of one offer that are looked at."""
_WORD = {CallKind.PYTHON: re.compile(r"\w+"), CallKind.SQL: re.compile(r"\w+")}
_NUMBER = re.compile(r"\d+")
_SHELL_WORD = re.compile(r"-{0,2}\w[\w./@-]*\w|\w")


def renamed(failed: str, correction: str, told: Iterable[str], kind: CallKind) -> dict[str, str]:
    """Return the names of a failed call for which a tool offered others that the correction has.

    Args:
        failed: The call that failed.
        correction: The one that is to take its place.
        told: What the tool said of this failure, and of those between it and the correction.
        kind: What the calls do.
    """
    pattern = _WORD.get(kind, _SHELL_WORD)
    found: dict[str, str] = {}
    for message in told:
        offers, choices = _names(OFFER, message), _names(CHOICE, message)
        if not offers and not choices:
            continue
        old, new = dict.fromkeys(pattern.findall(failed)), dict.fromkeys(pattern.findall(correction))
        every = [*offers, *choices]
        gone = [each for each in old if each not in new and each not in every and _is_named(each, message)]
        come = [each for each in dict.fromkeys(every) if each in new and each not in old]
        if len(gone) != 1 or len(come) != 1 or not _same_numbers(gone[0], come[0]):
            continue
        if offers == come or _shares_word(gone[0], come[0]):
            found[gone[0]] = come[0]
    return found


def substituted(text: str, names: Mapping[str, str]) -> str:
    """Return a text with these names in the place of others."""
    for old, new in names.items():
        text = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", new.replace("\\", r"\\"), text)
    return text


def with_names(value: object, names: Mapping[str, str]) -> object:
    """Return an argument with these names in the place of others, in its texts and keys."""
    if isinstance(value, str):
        return substituted(value, names)
    if isinstance(value, Mapping):
        return {substituted(str(key), names): with_names(each, names) for key, each in value.items()}
    return [with_names(each, names) for each in value] if isinstance(value, list) else value


def _names(cues: re.Pattern[str], message: str) -> list[str]:
    """Return the names after such words of a message, in their order; a dotted one also by its last part."""
    names: dict[str, None] = {}
    for cue in cues.finditer(message):
        position = cue.end()
        for _ in range(MOST):
            name = NAME.match(message, position)
            if name is None:
                break
            names[name[1]] = None
            joint = JOINT.match(message, name.end())
            if joint is None:
                break
            position = joint.end()
    return [*names, *(last for each in names if "." in each and (last := each.rpartition(".")[2]) not in names)]


def _is_named(name: str, message: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", message) is not None


def _same_numbers(old: str, new: str) -> bool:
    """Return whether a name keeps the numbers that it has: `orders_2025` is no slip for `orders_2026`."""
    numbers = _NUMBER.findall(old)
    return not numbers or numbers == _NUMBER.findall(new)


def _shares_word(old: str, new: str) -> bool:
    """Return whether two names have a word in common, or the beginning of one (`opened`, `open`)."""
    longer = max(old, new, key=len).lower()
    begins = min(len(old), len(new)) >= SHORTEST and longer.startswith(min(old, new, key=len).lower())
    return begins or misspelt(old, new) or bool({*words(old)} & {*words(new)})
