"""Figures in words: one way to write a number for the terminal, the paper and the page."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cleaner_rl.evaluate.bootstrap import LEVEL, Estimate
from cleaner_rl.evaluate.paired import Difference
from cleaner_rl.evaluate.results import Evaluation, Repair, RunScore, SetResult

NOTHING = "–"
CLAIM = "repair off measures the model alone: report this figure"
DIFFERENCES = (
    "Differences are in percent points. Their brackets are for these problems: would the difference be there if they "
    "were sampled again? The interval for problems at large says what to expect of other problems of this kind."
)
LEFT_OUT = "Bounds are pass@1 with the samples that faults left out counted as all wrong, and as all right."
MINUS = "−"

LABELS = {
    "errors_first": "failed calls before repair",
    "errors_residual": "failed calls after repair",
    "error_share": "share of failed calls",
    "recovery": "failures recovered",
    "right_after_error": "right answers after a failed call",
    "calls": "calls",
    "turns": "turns",
    "sampled": "sampled",
    "lookahead": "lookahead",
    "tool_seconds": "tool time",
    "latency": "latency",
}
SHARES = ("error_share", "recovery", "right_after_error", "retried", "ran_next")
REPAIR = {Repair.OFF: "repair off", Repair.ON: "repair on"}


def is_share(figure: str) -> bool:
    """Whether a figure is written in percent."""
    return figure in SHARES or figure.startswith(("pass@", "maj@"))


def value(figure: str, number: float | None) -> str:
    """A figure's value: shares in percent, the rest to three digits."""
    if number is None:
        return NOTHING
    return f"{100 * number:.1f}" if is_share(figure) else plain(number)


def plain(number: float) -> str:
    """A number for people: at least three digits, no exponent."""
    if not number:
        return "0"
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def interval(figure: str, estimate: Estimate | None) -> str:
    """The ends of an interval, in the unit of the value."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"[{value(figure, estimate.low)}, {value(figure, estimate.high)}]"


def whole(figure: str, estimate: Estimate | None) -> str:
    """A value with its interval."""
    if estimate is None or estimate.value is None:
        return NOTHING
    return f"{value(figure, estimate.value)} {interval(figure, estimate)}".rstrip()


def signed(share: float) -> str:
    """A difference of shares in percent points."""
    points = f"{abs(100 * share):.1f}"
    return points if points == "0.0" else f"{MINUS if share < 0 else '+'}{points}"


def gain(found: Difference | None) -> str:
    """A difference with its interval for these problems."""
    if found is None or found.value is None:
        return NOTHING
    return f"{signed(found.value)} {_ends(found.here_low, found.here_high)}".rstrip()


def at_large(found: Difference | None) -> str:
    """A difference's interval for problems at large."""
    return NOTHING if found is None else _ends(found.low, found.high) or NOTHING


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{signed(low)}, {signed(high)}]"


def bounds(run: RunScore | None) -> str:
    """pass@1 with what was left out as all wrong and as all right."""
    if run is None or run.bounds is None:
        return NOTHING
    low, high = (value("pass@1", end) for end in run.bounds)
    return f"{low} to {high}"


def setting(value: object) -> str:
    """A setting's value as one would write it on a command line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return NOTHING if value is None else str(value)


def ending(stop_reason: str) -> str:
    """Why rollouts ended."""
    return stop_reason.replace("_", " ") or "unknown"


def chance(found: Difference | None) -> str:
    """A p-value."""
    if found is None or found.p is None:
        return NOTHING
    return "< 0.001" if found.p < 0.001 else f"{found.p:.3f}"


def problems(each: SetResult) -> str:
    """How many a set has, and of how many, where faults took some."""
    return str(each.run) if each.judged == each.run else f"{each.judged} of {each.run}"


def level() -> str:
    """The level of all intervals."""
    return f"{100 * LEVEL:.0f} %"


def passing_names(evaluation: Evaluation, kind: str = "pass") -> list[str]:
    """The pass@k, or the maj@k, of an evaluation, by k."""
    names = {name for each in evaluation.sets for run in each.runs.values() for name in run.figures}
    found = {int(name.removeprefix(f"{kind}@")): name for name in names if name.startswith(f"{kind}@")}
    return [found[k] for k in sorted(found)]
