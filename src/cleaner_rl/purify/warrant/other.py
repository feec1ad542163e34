"""Whether a call of any other tool may stand for one that failed: the tool found the arguments wrong, and the same
values are given in the right form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from cleaner_rl.purify.warrant.reasons import Unwarranted
from cleaner_rl.purify.warrant.texts import alike, misspelt, same_path

FORM = re.compile(
    r"""(?:
        -32602 | -32600 | -32700 | \binvalid\ (?:arguments?|params?|parameters?|request|input|type|format|date|json|enum|value|field|option)
      | \bvalidation\ (?:error|failed) | \brequired\b | \bmissing\ (?:required\ )?(?:argument|parameter|field|property|key)
      | \bunknown\ (?:argument|parameter|field|property|key|option|enum) | \bunexpected\ (?:argument|keyword|property|key|field)
      | \bmust\ be\b | \bexpected\b | \bnot\ a\ valid\b | \bis\ not\ of\ type\b | \badditional\ propert | \bunprocessable
      | \b422\b | \b400\b | \bbad\ request | \bmalformed | \bcould\ not\ parse | \bcannot\ parse | \bshould\ be\b | \bschema\b
      | \bnot\ one\ of\b | \bISO\ ?8601 | \bRFC\ ?3339
    )""",
    re.IGNORECASE | re.VERBOSE,
)
NO_SUCH_THING = re.compile(
    r"\b(?:not found|no such|does not exist|ENOENT|404|unknown (?:repo|path|file|channel|user))\b", re.IGNORECASE
)
READING = re.compile(r"(?:^|_)(?:get|list|read|search|find|fetch|show|describe|query|lookup|view|stat|count)(?:_|$)")
BYPASS = re.compile(r"force|skip|ignore|override|bypass|no_?verify|admin|sudo|dangerous|unsafe|disable", re.IGNORECASE)


def other_refusal(
    name: str, failed: Mapping[str, object], correction: Mapping[str, object], told: str
) -> Unwarranted | None:
    """Return why a call with these arguments may not stand for another that failed with the words `told`."""
    new = {key: value for key, value in correction.items() if failed.get(key) != value}
    if any(BYPASS.search(key) and value for key, value in new.items()):
        return Unwarranted.BYPASS
    tool = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    if not FORM.search(told):
        if not NO_SUCH_THING.search(told) or not READING.search(tool):
            return Unwarranted.CHANGED
    gone = {key: value for key, value in failed.items() if correction.get(key) != value}
    for key, value in gone.items():
        if not any(_same_value(value, other, key == key_of) for key_of, other in new.items()) and value not in (
            None,
            "",
            [],
            {},
        ):
            # An argument that the tool doesn't know may go.
            if key in correction or not re.search(rf"\b{re.escape(key)}\b", told):
                return Unwarranted.OTHER_PURPOSE
    return None


def _same_value(value: object, other: object, same_name: bool) -> bool:
    """Return whether a value is another one in another form: `3` and `"3"`, a date, a path, a word with a slip."""
    if value == other:
        return True
    first, second = _text(value), _text(other)
    if first == second or (first and second and (same_path(first, second) or misspelt(first, second))):
        return True
    if (
        isinstance(value, str)
        and isinstance(other, str)
        and re.sub(r"\W", "", value).lower() == re.sub(r"\W", "", other).lower()
    ):
        return True
    digits = re.findall(r"\d+", first)
    if digits and digits == re.findall(r"\d+", second)[: len(digits)]:
        return same_name
    return same_name and len(first) >= 12 and alike(first, second) >= 0.8


def _text(value: object) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
