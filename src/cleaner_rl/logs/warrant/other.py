"""Whether a call of any other tool may stand for one that failed: the tool found the arguments wrong, and the same
values are given in the right form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from cleaner_rl.logs.warrant.python import WasGiven, nothing_given
from cleaner_rl.logs.warrant.reasons import Unwarranted
from cleaner_rl.logs.warrant.texts import comparisons, lost_and_new, misspelt, same_path, same_words, words

INVALID_ARGUMENTS = re.compile(
    r"""-32602 | -32600 | -32700 | \binput\ ?validation | \bvalidation\ (?:error|failed)
      | \binvalid\ (?:arguments?|params?)\b
      | \b(?:unknown|unexpected|additional|unrecogni[sz]ed)\ (?:argument|parameter|field|key|keyword|propert|input)
      | \bmissing\ (?:\d+\ )?(?:required\ )?(?:positional\ )?(?:argument|parameter|field|propert|key|input)
      | \b(?:is|are)\ (?:a\ )?required\b | \bfailed\ validation | \bis\ not\ of\ type\b | \bfield\ required""",
    re.IGNORECASE | re.VERBOSE,
)
"""The tool did not take the call at all."""
FORM = re.compile(
    r"""\binvalid\ (?:parameters?|request|input|type|format|date|json|enum|value|field|option|url|uri|timestamp)
      | \bmust\ be\b | \bexpect(?:ed|ing)\b | \bnot\ a\ valid\b | \bunprocessable | \b422\b | \b400\b | \bbad\ request
      | \bmalformed | \b(?:could\ not|cannot)\ parse | \bshould\ be\b | \bschema\b | \bnot\ one\ of\b | \bISO\ ?8601
      | \bRFC\ ?3339 | \bdid\ you\ mean\b
      | \b(?:syntax|parse|re\.)\ ?error | \bunterminated | \bunclosed | \bunbalanced
      | \bunknown\ enum | \bdoes\ not\ exist | \brequired\b""",
    re.IGNORECASE | re.VERBOSE,
)
NO_SUCH_THING = re.compile(
    r"\b(?:not found|no such|no matches for|does not exist|ENOENT|404|unknown (?:repo|path|file|channel|user))\b",
    re.IGNORECASE,
)
FINDING = re.compile(
    r"\balready (?:exists|in use|taken)|\bconflict|\boverlap|\bnot mergeable|\barchived|\bat (?:most|least)\b"
    r"|\bexceed|\bmaximum\b|\btoo (?:long|large|many)\b|\bconfirm|\bduplicate|\binternal error|-32603",
    re.IGNORECASE,
)
UNREAD = re.compile(r"\b(?:syntax|parse) error|\bunterminated|\bunclosed|\bunbalanced", re.IGNORECASE)
"""A pattern or a query among the arguments could not be read."""
READING = re.compile(r"(?:^|_)(?:get|list|read|search|find|fetch|show|describe|query|lookup|view|stat|count)(?:_|$)")
BYPASS = re.compile(
    r"force|skip|ignore|overr?ide|overwrite|bypass|no_?verify|admin|sudo|dangerous|unsafe|disable|confirm|approve"
    r"|acknowledge|consent|allow_|insecure|^yes$|escalat|cascade|recursive",
    re.IGNORECASE,
)
LEARNT = re.compile(
    r"sha\d*$|etag|token|cursor|revision|^version$|^ref$|nonce|transition|_?uuid$|timestamp|^ts$", re.IGNORECASE
)
"""Arguments whose values nobody knows before a tool has told them."""
_HANDLE = re.compile(r"(?=\w*[^\W\d_])(?=\w*\d)\w{3,}")
_WORD = re.compile(r"[\w@.+-]*\w")
EMPTY: tuple[object, ...] = (None, "", [], {})


def other_refusal(
    name: str,
    failed: Mapping[str, object],
    correction: Mapping[str, object],
    told: str,
    was_given: WasGiven = nothing_given,
) -> Unwarranted | None:
    """Return why a call with these arguments may not stand for another that failed with the words `told`."""
    gone = {key: value for key, value in failed.items() if correction.get(key) != value and value not in EMPTY}
    come = {key: value for key, value in correction.items() if failed.get(key) != value and value not in EMPTY}
    if any(BYPASS.search(key) and value for key, value in come.items()):
        return Unwarranted.BYPASS
    if FINDING.search(told) and not UNREAD.search(told):
        return Unwarranted.FINDING
    tool = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    absent = NO_SUCH_THING.search(told) is not None and READING.search(tool) is not None
    if not absent and not INVALID_ARGUMENTS.search(told) and not FORM.search(told):
        return Unwarranted.CHANGED
    taken: set[str] = set()
    for key, value in gone.items():
        match = next(
            (new for new, other in come.items() if new not in taken and _same_value(key, value, new, other)), None
        )
        if match is not None:
            taken.add(match)
        elif not (key not in correction and _is_unknown(key, told) and READING.search(tool)) and not _is_split(
            value, come
        ):
            return Unwarranted.OTHER_PURPOSE
    return (
        None
        if all(_is_asked_for(key, come[key], told, failed, was_given) for key in come.keys() - taken)
        else (Unwarranted.OTHER_PURPOSE)
    )


def _is_unknown(key: str, told: str) -> bool:
    """Return whether the tool says that it knows no such argument."""
    pattern = rf"(?:unknown|unexpected|additional|unrecogni[sz]ed|extra)[^.;]{{0,40}}\b{re.escape(key)}\b"
    return re.search(pattern, told, re.IGNORECASE) is not None


def _is_split(value: object, come: Mapping[str, object]) -> bool:
    """Return whether a text was given as several arguments: `acme/shop`."""
    parts = {word for other in come.values() for word in words(_text(other))}
    return isinstance(value, str) and len(words(value)) > 1 and {*words(value)} == parts


def _is_asked_for(key: str, value: object, told: str, failed: Mapping[str, object], was_given: WasGiven) -> bool:
    """Return whether the tool asked for an argument, and its value is not made up: the model had been given it."""
    if {*words(_text(value))} <= {word for other in failed.values() for word in words(_text(other))}:
        return True
    if re.search(rf"\b{re.escape(key)}\b", told) is None:
        return False
    if LEARNT.search(key) and not _HANDLE.fullmatch(_text(value)):
        return False  # a plain word or number is found in many texts that are not about it
    return all(map(was_given, _WORD.findall(_text(value))))


def _same_value(key: str, value: object, other_key: str, other: object) -> bool:
    """Return whether a value is another one in another form: `3` and `"3"`, a date, a list, a word with a slip."""
    if value == other:
        return True
    first, second = " ".join(_leaves(value)), " ".join(_leaves(other))
    if "/" in first and "/" in second and " " not in first + second and "://" not in first + second:
        return same_path(first, second)
    if comparisons(first) != comparisons(second):
        return False
    if same_words(first, second) or misspelt(first, second):
        return True
    if key != other_key:
        return False
    gone, come = lost_and_new(first, second)
    # A date has got its time and its zone, an address its scheme, a query the word that it lacked.
    return not gone and (
        all(each in FILLING or set(each) == {"0"} for each in come) or (len(come) == 1 and len(first) >= 12)
    )


FILLING = frozenset({"t", "z", "utc", "gmt", "https", "http", "00", "0"})


def _leaves(value: object) -> Iterator[str]:
    """Yield the values of a value, without the names that they have in it."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
