"""Which trajectories a list shows, and in which order: from an address's parameters to SQL.

The same parameters are in the page's address, in `/api/list` and in `cleaner view --query`. Every value that a reader
gives is a bound parameter; column names come from the tables below alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

from cleaner_rl.tools import Status
from cleaner_rl.trajectory import Phase, StopReason
from cleaner_rl.view.summary import STATUS_BITS

PAGE = 50
LARGEST_PAGE = 1000
LAST_PAGE = 10**9
RANGES = ("step", "reward", "similarity", "turns", "length", "failed", "logprob_gap", "rollout")
"""Columns with `…_min` and `…_max`."""
SORTS = {
    **{name: name for name in ("step", "reward", "similarity", "turns", "length", "failed", "logprob_gap")},
    "task": "CASE title WHEN '' THEN task ELSE title END",
    "edits": "grafts + replacements",
    "stop_reason": "stop_reason",
    "run": "run_id",
}
IN_ORDER = (
    "run_id, step, CASE WHEN source IS NULL THEN task ELSE '' END, CASE WHEN source IS NULL THEN rollout ELSE 0 END, "
    "file, row"
)
"""Groups together; the records of a log as the log has them."""
EDITS = {
    "any": "grafts + replacements > 0",
    "graft": "grafts > 0",
    "replace": "replacements > 0",
    "uncorrected": "uncorrected > 0",
    "none": "grafts + replacements + uncorrected = 0",
}
SEARCHED = ("task", "title", "source", "run_id", "prompt", "answer")
INSIDE = "(file, row) IN (SELECT (file, row) FROM hits)"
HELD = {
    "step": "max(step) > 0",
    "reward": "count(reward) > 0",
    "outcome": "count(success) > 0",
    "stop_reason": "count(stop_reason) > 0",
    "edits": "max(grafts + replacements + uncorrected) > 0",
    "similarity": "count(similarity) > 0",
    "logprob_gap": "count(logprob_gap) > 0",
    "kept": "count(kept) > 0",
    "source": "count(source) > 0",
}
"""What some stores don't have, logs for example, and how the index tells whether this one does."""
OUTCOMES = {"solved": "success", "failed": "NOT success", "ungraded": "success IS NULL"}
KEPT = {"yes": "kept", "no": "NOT kept", "unknown": "kept IS NULL"}


class BadQueryError(ValueError):
    """A query parameter is invalid; the message says which one, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Query:
    """A list's filters, its order and its page."""

    where: tuple[str, ...] = ()
    values: tuple[object, ...] = ()
    order: str = IN_ORDER
    page: int = 0
    size: int = PAGE
    text: str = ""
    """To be looked for inside of turns too: `where` then asks a table `hits` of (file, row)."""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def condition(self) -> str:
        """For a WHERE."""
        return " AND ".join(f"({each})" for each in self.where) or "true"


def parse(parameters: Mapping[str, str]) -> Query:
    """A query from an address's parameters; empty ones ask for nothing."""
    given = {name: value for name, value in parameters.items() if value.strip()}
    where: list[str] = []
    values: list[object] = []

    def add(condition: str, *bound: object) -> None:
        where.append(condition)
        values.extend(bound)

    for name in given:
        if name not in KNOWN:
            raise BadQueryError(f"there is no filter '{name}'; there are {', '.join(sorted(KNOWN))}")
    if "run" in given:
        add("run_id = ?", given["run"])
    if "task" in given:
        add("contains(lower(task), lower(?))", given["task"])
    if "group" in given:
        add("task = ?", given["group"])
    for name, choices in (("edits", EDITS), ("outcome", OUTCOMES), ("kept", KEPT)):
        if name in given:
            add(choices[_one_of(name, given[name], choices)])
    if "phase" in given:
        add("phase = ?", _one_of("phase", given["phase"], [each.value for each in Phase]))
    if "stop_reason" in given:
        add("stop_reason = ?", _one_of("stop_reason", given["stop_reason"], [each.value for each in StopReason]))
    if "status" in given:
        status = Status(_one_of("status", given["status"], [each.value for each in Status]))
        add(f"statuses & {STATUS_BITS[status]} <> 0")
    for column in RANGES:
        for bound, sign in (("min", ">="), ("max", "<=")):
            if (name := f"{column}_{bound}") in given:
                add(f"{column} {sign} ?", _number(name, given[name]))
    inside = _one_of("inside", given.get("inside", "no"), ("yes", "no")) == "yes"
    if "q" in given:
        found = [f"contains(lower({column}), lower(?))" for column in SEARCHED]
        add(" OR ".join([*found, INSIDE] if inside else found), *[given["q"]] * len(SEARCHED))
    return Query(
        where=tuple(where),
        values=tuple(values),
        order=_order(given.get("sort", "")),
        page=_whole("page", given.get("page", "0"), 0, LAST_PAGE),
        size=_whole("size", given.get("size", str(PAGE)), 1, LARGEST_PAGE),
        text=given.get("q", "") if inside else "",
        parameters=given,
    )


KNOWN = {
    *("run", "phase", "task", "group", "edits", "outcome", "kept", "stop_reason", "status", "q", "inside", "sort"),
    *("page", "size"),
    *(f"{column}_{bound}" for column in RANGES for bound in ("min", "max")),
}


def _order(sort: str) -> str:
    """`reward`, or `-reward` for the largest first; what isn't known comes last."""
    if not sort:
        return IN_ORDER
    column = SORTS[_one_of("sort", sort.removeprefix("-"), SORTS)]
    # Ties by place alone: names would have to be compared for all of a million rows.
    return f"{column} {'DESC' if sort.startswith('-') else 'ASC'} NULLS LAST, file, row"


def _one_of(name: str, value: str, choices: Mapping[str, object] | Sequence[str]) -> str:
    if value not in choices:
        raise BadQueryError(f"{name}={value} isn't a choice; choose one of {', '.join(choices)}")
    return value


def _number(name: str, value: str, least: float | None = None, most: float | None = None) -> float:
    try:
        number = float(value)
    except ValueError:
        raise BadQueryError(f"{name}={value} isn't a number") from None
    if isnan(number) or (least is not None and number < least) or (most is not None and number > most):
        raise BadQueryError(f"{name}={value} is out of range")
    return number


def _whole(name: str, value: str, least: int, most: int) -> int:
    number = _number(name, value, least, most)
    if not number.is_integer():
        raise BadQueryError(f"{name}={value} isn't a whole number")
    return int(number)
