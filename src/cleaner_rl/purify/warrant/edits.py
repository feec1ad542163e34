"""Whether a file edit may stand for one that failed: the same operation on the same file, with nearly the same words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cleaner_rl.purify.warrant.reasons import Unwarranted
from cleaner_rl.purify.warrant.texts import alike, same_path

FORM = re.compile(
    r"""\b(?:
        no\ replacement | not\ found | did\ not\ appear | (?:does|did)\ not\ match | no\ match | multiple\ (?:occurrences|matches)
      | (?:is\ )?not\ unique | found\ \d+\ (?:times|matches|occurrences) | \d+\ (?:occurrences|matches)
      | invalid\ (?:context|patch|line|parameter|path|`?\w+`?) | patch\ (?:failed|does\ not\ apply) | hunk | malformed
      | required | missing | must\ be\ (?:an\ )?absolute | not\ an\ absolute | no\ such\ file | does\ not\ exist
      | exactly\ the\ same | identical | no\ changes | unexpected | unknown\ (?:command|operation) | expected
      | out\ of\ range | should\ be\ within | syntax
    )""",
    re.IGNORECASE | re.VERBOSE,
)
FINDING = re.compile(r"\balready exists|has been modified|modified since|has not been read|stale\b", re.IGNORECASE)
PATHS = ("path", "file_path", "filepath", "filePath", "target_file", "filename", "file_name", "file")
OPERATIONS = ("command", "operation", "action", "mode")
WANTED = (
    "new_str",
    "new_string",
    "newString",
    "file_text",
    "content",
    "contents",
    "new_text",
    "replacement",
    "patch",
    "diff",
    "input",
)
ALIKE_NEW, ALIKE_PATCH = 0.75, 0.6


def edit_refusal(
    failed: Mapping[str, object], correction: Mapping[str, object], code: str, corrected: str, told: str
) -> Unwarranted | None:
    """Return why one file edit may not stand for another that failed with the words `told`; None if it may."""
    if FINDING.search(told):
        return Unwarranted.FINDING
    if not FORM.search(told):
        return Unwarranted.CHANGED
    if _value(failed, OPERATIONS) != _value(correction, OPERATIONS):
        return Unwarranted.OTHER_PURPOSE
    old, new = _value(failed, PATHS), _value(correction, PATHS)
    if old and new and not same_path(old, new):
        return Unwarranted.OTHER_PURPOSE
    wanted, got = _value(failed, WANTED), _value(correction, WANTED)
    if wanted is None or got is None:
        # Only shown, or of a form that isn't known.
        return None if wanted is got and alike(code, corrected) >= ALIKE_PATCH else Unwarranted.OTHER_PURPOSE
    patch = not any(name in failed for name in PATHS)
    return None if alike(wanted, got) >= (ALIKE_PATCH if patch else ALIKE_NEW) else Unwarranted.OTHER_PURPOSE


def _value(arguments: Mapping[str, object], names: tuple[str, ...]) -> str | None:
    found = (arguments[name] for name in names if isinstance(arguments.get(name), str))
    return next((str(value) for value in found), None)
