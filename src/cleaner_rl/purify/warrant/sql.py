"""Whether a SQL statement may stand for one that failed.

Both are parsed. One statement only: of several, those before the one that failed may have changed rows. It has to be of
the same kind and about the same tables, and its failure has to be one of form.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from cleaner_rl.purify.warrant.reasons import Unwarranted
from cleaner_rl.purify.warrant.texts import alike, misspelt

if TYPE_CHECKING:
    from sqlglot import Expression

FORM = re.compile(
    r"""\b(?:
        syntax\ error | near\ ["']\S+["'] | no\ such\ (?:column|table|function) | parser?\ error | binder\ error
      | catalog\ error | unknown\ (?:column|table|database|function) | does\ not\ exist | doesn't\ exist
      | unrecogni[sz]ed\ (?:name|token|identifier) | ambiguous | invalid\ (?:identifier|column|object|reference)
      | must\ appear\ in\ the\ group\ by | not\ in\ (?:the\ )?group\ by | misuse\ of\ aggregate | 42[0-9A-Z]{3} | 1054
      | 1064 | 1146 | type\ mismatch | operator\ does\ not\ exist | wrong\ number\ of\ arguments | incomplete\ input
      | conversion\ error | invalid\ input\ syntax | unterminated | mismatched\ input | could\ not\ (?:find|resolve)
      | not\ found\ in\ from | referenced\ column | table\ with\ name | column\ .*\ not\ found | no\ viable\ alternative
    )""",
    re.IGNORECASE | re.VERBOSE,
)
FINDING = re.compile(
    r"\b(?:constraint|unique|duplicate|foreign key|check failed|deadlock|locked|division by zero|already exists"
    r"|out of range|violates|conflict)\b",
    re.IGNORECASE,
)
BYPASS = re.compile(
    r"\b(?:or\s+(?:ignore|replace)|on\s+conflict|if\s+(?:not\s+)?exists|cascade|foreign_keys|truncate|ignore\s+into"
    r"|disable\s+trigger|session_replication_role|nocheck|set\s+role|grant)\b",
    re.IGNORECASE,
)
ALIKE = 0.6


def sql_refusal(failed: str, correction: str, told: str) -> Unwarranted | None:
    """Return why one statement may not stand for another that failed with the words `told`; None if it may."""
    if {each.lower() for each in BYPASS.findall(correction)} - {each.lower() for each in BYPASS.findall(failed)}:
        return Unwarranted.BYPASS
    after = statements(correction)
    if after is None or len(after) != 1:
        return Unwarranted.UNREADABLE
    if FINDING.search(told) and not FORM.search(told):
        return Unwarranted.FINDING
    if not FORM.search(told):
        return Unwarranted.CHANGED
    before = statements(failed)
    if before is None:
        if ";" in failed.strip().rstrip(";"):
            return Unwarranted.UNREADABLE
        return None if alike(_plain(failed), _plain(correction)) >= ALIKE else Unwarranted.OTHER_PURPOSE
    if len(before) != 1:
        return Unwarranted.CHANGED
    old, new = before[0], after[0]
    if old.key != new.key or not _same_tables(old, new) or _loses_condition(old, new):
        return Unwarranted.OTHER_PURPOSE
    return None if alike(_plain(failed), _plain(correction)) >= ALIKE else Unwarranted.OTHER_PURPOSE


def _same_tables(old: Expression, new: Expression) -> bool:
    first, second = _tables(old), _tables(new)
    lost = first - second
    # A table that was left out of a join may come in; one that was asked for may not go, but for its spelling.
    return all(
        any(misspelt(each, other) or each.rstrip("s") == other.rstrip("s") for other in second - first) for each in lost
    )


def _tables(statement: Expression) -> set[str]:
    from sqlglot import expressions

    named = {each.alias_or_name.lower() for each in statement.find_all(expressions.CTE)}
    return {each.name.lower() for each in statement.find_all(expressions.Table)} - named


def _loses_condition(old: Expression, new: Expression) -> bool:
    from sqlglot import expressions

    return old.find(expressions.Where) is not None and new.find(expressions.Where) is None


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


@lru_cache(256)
def statements(text: str) -> tuple[Expression, ...] | None:
    """Return the statements of a text; None if they can't be parsed."""
    import sqlglot
    from sqlglot import expressions

    # What it can't parse it warns of, and takes for a command.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        parsed = [each for each in sqlglot.parse(text) if each is not None]
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None
    return None if any(isinstance(each, expressions.Command) for each in parsed) else tuple(parsed)
