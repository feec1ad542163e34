"""Whether a SQL statement may stand for one that failed.

One statement only: of several, those before the one that failed may have changed rows. The database has to have found
its form wrong, and the correction has to be of the same kind, with the same values and with the same names but for the
one that was wrong.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from itertools import pairwise

from rapidfuzz.distance import OSA

from cleaner_rl.logs.warrant.reasons import Unwarranted
from cleaner_rl.logs.warrant.texts import unmatched

SYNTAX = re.compile(
    r"""\b(?:
        syntax\ error | near\ ["']\S+["'] | parser?\ error | no\ such\ function | unknown\ function | incomplete\ input
      | function\ \S+\ does\ not\ exist | mismatched\ input | no\ viable\ alternative | unterminated
      | unrecogni[sz]ed\ token | 42601 | 42883 | 1064 | 1305 | wrong\ number\ of\ arguments | operator\ does\ not\ exist
      | unexpected\ (?:token|["']) | type\ mismatch | must\ appear\ in\ the\ group\ by | not\ in\ (?:the\ )?group\ by
      | misuse\ of\ (?:aggregate|window)
      | neither\ grouped\ nor\ aggregated | aggregate\ functions?\ (?:are|is)\ not\ allowed | not\ a\ group\ by
      | cannot\ contain\ aggregate | expected | expecting
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""The statement can't be read or makes no sense: its keywords and functions may change."""
GROUPING = re.compile(r"group by|grouped|aggregate", re.IGNORECASE)
NO_SUCH_NAME = re.compile(
    r"""\b(?:
        no\ such\ (?:column|table) | unknown\ (?:column|table|database) | does\ not\ exist | doesn't\ exist
      | unrecogni[sz]ed\ (?:name|identifier) | ambiguous | invalid\ (?:identifier|column|object|reference)
      | has\ no\ column | binder\ error | catalog\ error | 42[0-9A-Z]{3} | 1054 | 1146 | could\ not\ (?:find|resolve)
      | must\ be\ qualified
      | not\ found\ in(?:side)? | referenced\ column | table\ with\ name | column\ .*\ not\ found | not\ found:\ table
    )""",
    re.IGNORECASE | re.VERBOSE,
)
FINDING = re.compile(
    r"""\b(?:constraint|unique|duplicate|foreign\ key|check\ failed|deadlock|locked|division\ by\ zero|already\ exists
      |out\ of\ range|violates|conflict|aborted|overflow|invalid\ input\ syntax|conversion\ error|truncated|too\ long
      |timeout|cancel+ing)\b""",
    re.IGNORECASE | re.VERBOSE,
)
BYPASS = re.compile(
    r"""\b(?:or\s+(?:ignore|replace)|on\s+(?:conflict|duplicate)|if\s+(?:not\s+)?exists|cascade|foreign_keys|truncate
      |ignore\s+into|(?:insert|update)\s+ignore|disable\s+trigger|session_replication_role|nocheck|set\s+role|grant
      |(?:try|safe)_\w+|coalesce|nullif|ifnull|isnull|distinct|ignore_errors)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\d+(?:\.\d+)?|\w+|::|[^\s\w]")
_DOTTED = re.compile(r"[\"`][\w.-]+[\"`]")
_WORDS = re.compile(r"\w+|[^\w\s'();]")
_PART = re.compile(r"\w+")
_NAME = re.compile(r"[^\W\d]\w*")
COMPARISONS = "<>!"
_EXPLAIN = re.compile(r"\s*explain\s+(?:query\s+plan\s+|analyze\s+|verbose\s+|\([^)]*\)\s*)*", re.IGNORECASE)
FORM_WORDS = frozenset(
    {
        *("select", "from", "where", "group", "by", "having", "order", "limit", "join", "on", "using", "as", "then"),
        *("into", "values", "set", "table", "column", "primary", "key", "over", "partition", "end", "top", "fetch"),
        *("interval", "day", "days", "month", "months", "year", "years", "hour", "hours", "minute", "minutes", "week"),
        *("first", "next", "rows", "row", "only", "cast", "date", "timestamp", "time", "integer", "int", "bigint"),
        *("numeric", "decimal", "text", "varchar", "real", "float", "double", "precision", "boolean", "at", "zone"),
        *("extract", "lateral", "unnest", "with", "serial", "autoincrement", "auto_increment"),
    }
)
"""Words that may come and go where a statement can't be read. All others, such as `DESC` and `OR`, say what it asks."""
AGGREGATES = frozenset({"sum", "avg", "count", "min", "max", "median", "stddev", "lag", "lead"})


def sql_refusal(failed: str, correction: str, told: str) -> Unwarranted | None:
    """Return why one statement may not stand for another that failed with the words `told`; None if it may."""
    if _bypasses(correction) - _bypasses(failed):
        return Unwarranted.BYPASS
    syntax, name = SYNTAX.search(told), NO_SUCH_NAME.search(told)
    if not syntax and not name:
        return Unwarranted.FINDING if FINDING.search(told) else Unwarranted.CHANGED
    if _count(correction) != 1:
        return Unwarranted.UNREADABLE
    if _count(failed) != 1:
        return Unwarranted.CHANGED
    if FINDING.search(told) and not syntax:
        return Unwarranted.FINDING
    return None if _same(failed, correction, told, syntax is not None) else Unwarranted.OTHER_PURPOSE


def _same(failed: str, correction: str, told: str, syntax: bool) -> bool:
    """Return whether both are of one kind, with the same values, and with the same names but for slips."""
    if syntax and failed.count("'") % 2 and not correction.count("'") % 2:
        # A quote that is not closed takes in what follows it.
        return _WORDS.findall(failed.lower()) == _WORDS.findall(correction.lower())
    old, new = _tokens(failed), _tokens(correction)
    if not old or not new or unmatched(old[:1], new[:1])[0]:
        return False
    # A value in double quotes was read as a name.
    old = [f"'{each[1:-1]}'" if each[0] == '"' and f"'{each[1:-1]}'" in new else each for each in old]
    values, others = [each for each in old if _is_value(each)], [each for each in new if _is_value(each)]
    # One with its unit is written in two ways: `INTERVAL 7 DAY`, `INTERVAL '7 days'`.
    if sorted(values) != sorted(others) and not (syntax and sorted(_numbers(values)) == sorted(_numbers(others))):
        return False
    if [each for each in old if each in COMPARISONS] != [each for each in new if each in COMPARISONS]:
        return False
    gone, come = unmatched(_names(old), _names(new))
    free = FORM_WORDS | (_called(old) | _called(new)) - AGGREGATES if syntax else frozenset[str]()
    gone = [each for each in gone if each not in free]
    if GROUPING.search(told):
        # What was neither grouped nor counted may go.
        gone = [each for each in gone if not _is_named(each, told)]
    known = {*_names(old), *_qualifiers(new), *free}
    if any(each not in known for each in come):
        return False
    # A wrong alias or result column is corrected to one that the statement itself has, however short.
    return all(_is_named(each, told) and any(OSA.distance(each, other) == 1 for other in come) for each in gone)


def _is_named(name: str, told: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", told, re.IGNORECASE) is not None


def _tokens(statement: str) -> list[str]:
    return _TOKEN.findall(_EXPLAIN.sub("", statement.rstrip("; \n")).lower())


def _is_value(token: str) -> bool:
    return token[0] == "'" or token[0].isdigit()


def _numbers(values: list[str]) -> list[str]:
    return [number for each in values for number in (re.findall(r"\d+", each) or [each])]


def _names(tokens: list[str]) -> list[str]:
    """Return names and keywords; those in quotes by their parts."""
    parts = (part for each in tokens for part in (_PART.findall(each) if _DOTTED.fullmatch(each) else [each]))
    return [each for each in parts if _NAME.fullmatch(each)]


def _called(tokens: list[str]) -> frozenset[str]:
    return frozenset(name for name, after in pairwise(tokens) if after == "(")


def _qualifiers(tokens: list[str]) -> set[str]:
    """Return the names before a dot: a schema or a table that was left out."""
    return {name for name, after in pairwise(tokens) if after == "."}


def _bypasses(statement: str) -> set[str]:
    return {" ".join(each.lower().split()) for each in BYPASS.findall(statement)}


@lru_cache(256)
def _count(text: str) -> int:
    """Return the number of statements of a text."""
    import sqlglot

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what it can't parse
    try:
        return sum(each is not None for each in sqlglot.parse(text))
    except (sqlglot.errors.SqlglotError, RecursionError):
        return len([part for part in text.split(";") if part.strip()])
