"""The report for a paper: tables in Markdown, each figure with its interval."""

from __future__ import annotations

from collections.abc import Iterator

from cleaner_rl.evaluate.report import tables, words
from cleaner_rl.evaluate.results import Evaluation


def markdown(evaluation: Evaluation) -> str:
    """The whole report."""
    return "\n\n".join(_parts(evaluation)) + "\n"


def table(of: tables.Table) -> str:
    """One table; figures stand to the right."""
    lines = [of.head, ["---", *["---:"] * (len(of.head) - 1)], *of.rows]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in lines)


def _parts(evaluation: Evaluation) -> Iterator[str]:
    yield f"# {evaluation.model}"
    yield (f"Shares in percent, with {words.level()} intervals over problems in brackets. {words.CLAIM.capitalize()}.")
    yield table(tables.scores(evaluation))
    if evaluation.faults:
        yield words.LEFT_OUT
    gains = tables.repair_differences(evaluation)
    if gains.rows:
        yield "## Repair on minus repair off"
        yield table(gains)
        yield f"{words.DIFFERENCES} *p* is the p-value of a paired sign-flip test over problems."
    if len(words.passing_names(evaluation)) > 1:
        yield "## pass@k"
        yield table(tables.passing(evaluation))
    if words.passing_names(evaluation, "maj"):
        yield "## maj@k"
        yield table(tables.majority(evaluation))
    yield "## How rollouts ended"
    yield table(tables.endings(evaluation))
    yield "## Tools (per trajectory)"
    yield table(tables.tools(evaluation))
    yield "## Cost (per trajectory)"
    yield table(tables.cost(evaluation))
    if evaluation.recovery is not None:
        yield "## Recovery from injected failures"
        yield "Each trajectory begins with an injected failed call. From there on the model works without repair."
        yield table(tables.recovery(evaluation.recovery))
    broken = tables.faults(evaluation)
    yield "## Faults"
    yield table(broken) if broken.rows else "None: every sample is in the figures."
    yield "## Settings"
    yield table(tables.settings(evaluation))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
