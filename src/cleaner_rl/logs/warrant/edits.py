"""Whether a file edit may stand for one that failed.

The tool has to have found the call wrong before it changed anything: the path, the text to replace, or the form of the
patch. What was not wrong has to be the same: the operation, the file, and the words that the file is to have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from cleaner_rl.logs.warrant.reasons import Unwarranted
from cleaner_rl.logs.warrant.texts import alike, comparisons, lost_and_new, same_path, unmatched, words
from cleaner_rl.logs.warrant.words import EVERYWHERE

WRONG_PATH = re.compile(
    r"""\b(?:
        must\ be\ (?:an\ )?absolute | not\ an?\ absolute | absolute\ path | no\ such\ file | file\ not\ found | enoent
      | (?:file|path)\S*\ (?:\S+\ )?does\ not\ exist | cannot\ find\ (?:file|path) | file\ to\ update\ not\ found
    )""",
    re.IGNORECASE | re.VERBOSE,
)
WRONG_TEXT = re.compile(
    r"""\b(?:
        no\ replacement | not\ found | did\ not\ appear | (?:does|did)\ not\ match | no\ match | failed\ to\ find
      | could\ not\ (?:find|locate) | multiple\ (?:occurrences|matches) | not\ unique | found\ \d+\ times
      | \d+\ (?:occurrences|matches) | patch\ (?:failed|does\ not\ apply) | exactly\ the\ same | identical | no\ changes
    )""",
    re.IGNORECASE | re.VERBOSE,
)
WRONG_FORM = re.compile(
    r"""\b(?:
        invalid\ (?:context|patch|diff|line|parameter|path|range|format|argument|`?\w+`?) | malformed | hunk | syntax
      | must\ be | should\ be | out\ of\ range | (?:unrecogni[sz]ed|unknown)\ (?:command|operation) | is\ required
      | missing | unexpected | expected | not\ allowed\ when
    )""",
    re.IGNORECASE | re.VERBOSE,
)
SEVERAL = re.compile(
    r"\b(?:multiple|several|[2-9]|\d\d+)\b[^.\n]{0,20}\b(?:occurrences|matches|times|places)|not unique", re.IGNORECASE
)
FINDING = re.compile(r"\b(?:already exists|has been modified|modified since|has not been read|stale)\b", re.IGNORECASE)
PARTLY = re.compile(r"^(?:updated|applied|success|patched|wrote|m |a )", re.IGNORECASE | re.MULTILINE)
UNTOUCHED = re.compile(
    r"\bno (?:files?|changes?) (?:was|were) (?:modified|changed|written|applied|made)"
    r"|\bnothing (?:was|has been) (?:modified|changed|written|applied)",
    re.IGNORECASE,
)
WRONG_OPERATION = re.compile(r"unrecogni[sz]ed (?:command|operation)|unknown (?:command|operation)", re.IGNORECASE)
PATHS = ("path", "file_path", "filepath", "filePath", "target_file", "filename", "file_name", "file", "notebook_path")
OPERATIONS = ("command", "operation", "action", "mode")
OLD = ("old_str", "old_string", "oldString", "old_text", "search", "old")
NEW = ("new_str", "new_string", "newString", "new_text", "replacement", "new", "file_text", "content", "contents")
PATCHES = ("patch", "diff", "input")
WIDER = ("replace_all", "replaceAll", "all", "overwrite", "force", "allow_multiple")
"""Arguments that let an edit change more than it would without them."""
KNOWN = frozenset({*PATHS, *OPERATIONS, *OLD, *NEW, *PATCHES})
SAME_PLACE, SAME_DELETED = 0.5, 0.8
_LISTED = re.compile(r"^\s*\d+(?:\t|→|: |\| )", re.MULTILINE)
_FILES = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:---|\+\+\+) (?:[ab]/)?)(\S+)", re.MULTILINE)
_MOVED = re.compile(r"^(?:\*\*\*|---|\+\+\+|@@|diff |index )")
_MARKER = re.compile(r"^(?:<{5,}|={5,}|>{5,}|-{5,})(?: ?\w+)?$", re.MULTILINE)


def edit_refusal(
    failed: Mapping[str, object], correction: Mapping[str, object], told: str, task: str = ""
) -> Unwarranted | None:
    """Return why one file edit may not stand for another that failed with the words `told`; None if it may."""
    if FINDING.search(told):
        return Unwarranted.FINDING
    if any(correction.get(name) and not failed.get(name) for name in WIDER):
        return Unwarranted.BYPASS
    if SEVERAL.search(told) and EVERYWHERE.search(task):
        return Unwarranted.OTHER_PURPOSE  # one place of those that were meant
    wrong_path = WRONG_PATH.search(told) is not None
    if not wrong_path and not WRONG_TEXT.search(told) and not WRONG_FORM.search(told):
        return Unwarranted.CHANGED
    if _value(failed, OPERATIONS) != _value(correction, OPERATIONS) and not WRONG_OPERATION.search(told):
        return Unwarranted.OTHER_PURPOSE
    old, new = _value(failed, PATHS), _value(correction, PATHS)
    if (old is None) != (new is None):
        return Unwarranted.OTHER_PURPOSE
    if old is not None and new is not None and old != new and not (wrong_path and same_path(old, new)):
        return Unwarranted.OTHER_PURPOSE
    patch, patched = _value(failed, PATCHES), _value(correction, PATCHES)
    if patch is not None or patched is not None:
        return _patch_refusal(patch or "", patched or "", told, wrong_path)
    return None if _same_text(failed, correction) else Unwarranted.OTHER_PURPOSE


def _patch_refusal(patch: str, patched: str, told: str, wrong_path: bool) -> Unwarranted | None:
    files, others = _FILES.findall(patch), _FILES.findall(patched)
    if PARTLY.search(told) or (len({*files}) > 1 and not UNTOUCHED.search(told)):
        # Some files of it may have been changed before one was refused.
        return Unwarranted.CHANGED
    different = [(one, two) for one, two in zip(files, others, strict=False) if one != two]
    if {*files} != {*others} and not (wrong_path and len(files) == len(others) and len(different) == 1):
        return Unwarranted.OTHER_PURPOSE
    if not all(same_path(*pair) for pair in different):
        return Unwarranted.OTHER_PURPOSE
    gone, come = lost_and_new(_after(patch), _after(patched))
    if Counter(comparisons(_after(patch))) - Counter(comparisons(_after(patched))):
        return Unwarranted.OTHER_PURPOSE
    if _deletes_others(_before(patch), _after(patch), _before(patched), _after(patched)):
        return Unwarranted.OTHER_PURPOSE
    context = {*words(patched)} - {*words(_after(patched))}
    return None if not gone and {*come} <= context | {*words(patch)} else Unwarranted.OTHER_PURPOSE


def _after(patch: str) -> str:
    """Return what a patch puts into a file."""
    sides = re.split(r"^={5,}\n", patch, maxsplit=1, flags=re.MULTILINE)
    if len(sides) == 2:
        return _MARKER.sub("", sides[1])
    return "\n".join(line[1:] for line in patch.splitlines() if line.startswith("+") and not _MOVED.match(line))


def _before(patch: str) -> str:
    """Return what a patch takes out of a file."""
    sides = re.split(r"^={5,}\n", patch, maxsplit=1, flags=re.MULTILINE)
    if len(sides) == 2:
        return _MARKER.sub("", sides[0])
    return "\n".join(line[1:] for line in patch.splitlines() if line.startswith("-") and not _MOVED.match(line))


def _deletes_others(old: str, new: str, other_old: str, other_new: str) -> bool:
    """Return whether an edit takes fewer words out of a file than the failed one was to, or more.

    What was to be taken out may have been quoted wrongly, but then there are other words in its place: taken out too,
    or one of them kept.
    """
    deleted, _ = lost_and_new(old, new)
    others, _ = lost_and_new(other_old, other_new)
    gone, come = unmatched(deleted, others)
    wrong, instead = lost_and_new(old, other_old)
    kept = 1 if wrong and instead else 0
    return abs(len(gone) - len(come)) > kept


def _same_text(failed: Mapping[str, object], correction: Mapping[str, object]) -> bool:
    """Return whether two edits put the same words at the same place of a file."""
    edits, others = failed.get("edits"), correction.get("edits")
    if isinstance(edits, list) and isinstance(others, list):
        pairs = list(zip(edits, others, strict=False))
        every = all(isinstance(each, dict) for pair in pairs for each in pair)
        return every and len(edits) == len(others) and all(_same_text(*pair) for pair in pairs)
    new, other_new = _value(failed, NEW), _value(correction, NEW)
    if (new is None) != (other_new is None):
        return False
    old, other_old = (_LISTED.sub("", _value(each, OLD) or "") for each in (failed, correction))
    if new is not None and other_new is not None:
        new, other_new = _LISTED.sub("", new), _LISTED.sub("", other_new)
        gone, come = lost_and_new(new, other_new)
        # The text to replace may have got more of its surroundings, which come again in the new one.
        if gone or not {*come} <= {*words(other_old)} | {*words(old)}:
            return False
        if Counter(comparisons(new)) - Counter(comparisons(other_new)):
            return False
    elif not old and not other_old:
        return _rest(failed) == _rest(correction) or new is None  # it only shows something
    if _deletes_others(old, new or "", other_old, other_new or ""):
        return False
    return alike(old, other_old) >= (SAME_PLACE if new else SAME_DELETED)


def _rest(arguments: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if name not in KNOWN}


def _value(arguments: Mapping[str, object], names: tuple[str, ...]) -> str | None:
    found = (arguments[name] for name in names if isinstance(arguments.get(name), str))
    return next((str(value) for value in found), None)
