"""Writes tables, findings in figures and plots into the documentation, between marks that nothing else writes in.

    <!-- lab:NAME -->
    ...
    <!-- /lab:NAME -->

`blocks` builds the text of each mark from the results alone; a test compares the pages with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.lab import summary
from benchmarks.lab.environments import DRIFT, REAL, REGIME_NAMES, SLIPS, UNHINTED
from benchmarks.lab.larger_budget import TURNS
from benchmarks.lab.methods import ABLATIONS, BASELINE, METHODS, RATES, REQUIRED, TUNING
from benchmarks.lab.order import order
from benchmarks.lab.plots import HEADLINE, PANELS, WITHIN, Panel, draw
from benchmarks.lab.results import Result
from benchmarks.lab.summary import Spread, Summary, spread, summaries
from benchmarks.lab.tables import course, percent, points_apart, ranged, table, worst

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "results" / "archive.md"
TABLES = DOCS.parent / "benchmarks" / "results" / "lab" / "tables.md"
"""All tables with all columns, which are too many for the documentation."""
PAGES = (PAGE, TABLES)
IMAGES = "../../../docs/images"
"""The plots, as the page of tables sees them."""
CURVE, LARGER_BUDGET = "lab-curve.svg", "lab-larger-budget.svg"
CHANGED = {
    "ablations": (BASELINE, "hindsight-successes", "hindsight"),
    "saar-ablations": (BASELINE, "hindsight-successes", "saar"),
}
"""The methods that each table of ablations starts with; SAAR has a table of its own."""
NOTHING = "None of these runs has finished yet."
DRAWN = tuple(place for place in REGIME_NAMES if place != REAL)
MARK = re.compile(r"(<!-- lab:([\w-]+) -->\n).*?(<!-- /lab:\2 -->)", re.DOTALL)


def write_pages(pages: Iterable[Path], results: Sequence[Result], images: Path) -> None:
    """Fill the marks of all pages and draw the plots."""
    found = blocks(results)
    for page in pages:
        page.write_text(filled(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    for name, chosen, methods, panels in _plots(results):
        draw(chosen, methods, images / name, panels)


def filled(text: str, found: dict[str, str]) -> str:
    """Return the page's text with each block between its marks."""
    return MARK.sub(lambda match: f"{match[1]}{found[match[2]]}{match[3]}", text)


def blocks(results: Sequence[Result]) -> dict[str, str]:
    """Return the text of every mark."""
    parts = {
        "headline": headline(results),
        "learning-rate": learning_rate(results),
        **{regime: _required(results, regime) for regime in DRAWN},
        REAL: second_opinion(results),
        "changed-names": changed_names(results, DRIFT),
        "unhinted-names": changed_names(results, UNHINTED),
        "larger-budget": larger_budget(results),
        "learning-signal": learning_signal(results),
        **{name: ablations(results, name) for name in CHANGED},
        "agreement": agreement(results),
        "cost": cost(results, DRIFT),
        "smollm2-cost": cost(results, REAL),
        "not-run": not_run(results),
        "methods": all_methods(results),
        "one-change": one_change(results),
    }
    return {name: f"{text}\n" for name, text in parts.items()}


def headline(results: Sequence[Result]) -> str:
    """Return the main findings."""
    drift = {each.method: each for each in summaries(results, DRIFT)}
    ours = [
        each for name, each in drift.items() if METHODS[name].required and name != BASELINE and each.step_ratio.values
    ]
    if BASELINE not in drift or not ours:
        return NOTHING
    best = min(ours, key=lambda each: (-len(each.step_ratio.values), each.step_ratio.mean or 0.0))
    name = METHODS[best.method].label
    capital = f"{name[0].upper()}{name[1:]}"
    lines = [
        f"- **Failed calls.** At the end, with repair off, {name} makes **{ranged(best.errors)}** failed calls per "
        f"held-out trajectory, GRPO {ranged(drift[BASELINE].errors)}.",
        f"- **Speed.** {capital} reaches GRPO's final accuracy in **{ranged(best.step_ratio)}** of GRPO's steps and "
        f"**{ranged(best.token_ratio)}** of its sampled tokens (of GRPO's whole run: {ranged(best.step_share)} and "
        f"{ranged(best.token_share)}).",
        *_with_larger_budget(results, best.method),
    ]
    if "saar" in drift and best.method != "saar":
        saar = drift["saar"]
        lines.append(
            f"- **SAAR** needs {ranged(saar.step_ratio)} of GRPO's steps and {ranged(saar.token_ratio)} of its tokens "
            f"(of GRPO's whole run: {ranged(saar.step_share)} and {ranged(saar.token_share)}), and makes "
            f"{ranged(saar.errors)} failed calls."
        )
    slips = {each.method: each for each in summaries(results, SLIPS)}
    if best.method in slips:
        others = [each for each in slips.values() if each.method not in (BASELINE, best.method)]
        lines.append(
            f"- **Slips.** Where mistakes are random, the worst difference of {name} to GRPO at equal tokens is "
            f"{worst(slips[best.method])}"
            + "".join(f"; of {METHODS[each.method].label}, {worst(each)}" for each in others)
            + "."
        )
    unhinted = {each.method: each for each in summaries(results, UNHINTED)}
    if BASELINE in unhinted:
        ends = (f"{METHODS[each.method].label} {ranged(each.accuracy, percent)}" for each in unhinted.values())
        lines.append(
            f"- **No hint.** Where an error doesn't name the right function, final accuracy is {', '.join(ends)} "
            "(fewer seeds)."
        )
    real = {each.run.method: summary.curve(each, "accuracy") for each in _real(results)}
    if BASELINE in real and best.method in real:
        theirs, own = real[BASELINE], real[best.method]
        lines.append(
            f"- **A real language model.** Held-out accuracy of SmolLM2-135M over {theirs[-1][0]:.0f} steps (one seed, "
            f"64 tasks, standard error about 6 points): {course(theirs, percent)} with GRPO, {course(own, percent)} "
            f"with {name}."
        )
    return "\n".join([*lines, "", "Figures are means over seeds, with the lowest and the highest seed in brackets."])


def _with_larger_budget(results: Sequence[Result], best: str) -> list[str]:
    found = {each.method: each for each in summaries(summary.with_larger_budget(results), DRIFT)}
    if not {BASELINE, best} <= set(found):
        return []
    theirs, own = found[BASELINE], found[best]
    return [
        f"- **Larger turn budget.** With {TURNS} turns instead of 3, the same models reach "
        f"{ranged(theirs.accuracy, percent)} (GRPO) and {ranged(own.accuracy, percent)} ({METHODS[best].label}), with "
        f"{ranged(theirs.errors)} and {ranged(own.errors)} failed calls. The worst difference at equal tokens is "
        f"{worst(own)}."
    ]


def learning_rate(results: Sequence[Result]) -> str:
    """Return GRPO's accuracy by learning rate."""
    tried = {
        each.run.method: each
        for each in results
        if each.run.method in {method.name for method in TUNING} and each.finished
    }
    if not tried:
        return NOTHING
    rows = [
        [
            f"{rate:.0e}",
            percent(summary.final(tried[method.name])),
            f"{summary.final(tried[method.name], 'errors'):.2f}",
        ]
        for rate, method in zip(RATES, TUNING, strict=True)
        if method.name in tried
    ]
    return table(["learning rate", "accuracy", "failed calls"], rows)


def changed_names(results: Sequence[Result], regime: str) -> str:
    """Return right answers and working first calls, by how many of a question's names have changed."""
    rows = []
    for method in REQUIRED:
        if runs := _runs(results, regime, method.name):
            shares = [summary.mean([summary.final(each, figure) for each in runs]) for figure, _ in CHANGED_NAMES]
            rows.append([method.label, str(len(runs)), *map(percent, shares)])
    return table(["method", "seeds", *(name for _, name in CHANGED_NAMES)], rows) if rows else NOTHING


def larger_budget(results: Sequence[Result]) -> str:
    """Return the same models with more turns."""
    runs = summary.with_larger_budget(results)
    rows = [
        [
            METHODS[each.method].label,
            str(each.seeds),
            *(ranged(_at(runs, each.method, step), percent) for step in ON_THE_WAY),
            ranged(each.accuracy, percent),
            ranged(each.errors),
            ranged(_ends(runs, each.method, "calls")),
            ranged(_ends(runs, each.method, "cut"), percent),
            worst(each),
        ]
        for each in summaries(runs, DRIFT)
    ]
    head = [
        "method",
        "seeds",
        *(f"accuracy at step {step}" for step in ON_THE_WAY),
        "at the end",
        "failed calls",
        "calls",
        "out of turns",
        "worst difference at equal tokens (worst seed)",
    ]
    return f"{table(head, rows)}\n\n![Curves with a larger turn budget]({IMAGES}/{LARGER_BUDGET})" if rows else NOTHING


def _ends(results: Sequence[Result], method: str, figure: str) -> Spread:
    return spread([summary.final(each, figure) for each in _runs(results, DRIFT, method)])


def _at(results: Sequence[Result], method: str, step: int) -> Spread:
    """Return the accuracy at a step that all models of a method were evaluated at."""
    return spread([each.evaluation.get(step, {}).get("accuracy") for each in _runs(results, DRIFT, method)])


def _runs(results: Sequence[Result], regime: str, method: str) -> list[Result]:
    return [each for each in results if each.finished and (each.run.regime, each.run.method) == (regime, method)]


def learning_signal(results: Sequence[Result]) -> str:
    """Return which first calls the groups reinforced."""
    rows = [
        [
            METHODS[each.method].label,
            ranged(each.zero_variance, percent),
            ranged(each.works_if_right, percent),
            ranged(each.works_if_wrong, percent),
            points_apart(each.works_if_right.mean, each.works_if_wrong.mean),
            ranged(each.first_call, percent),
        ]
        for each in summaries(results, DRIFT)
        if each.first_call.values  # without tools there is no first call
    ]
    head = [
        "method",
        "zero-variance groups",
        "other groups: right rollouts whose first call works",
        "wrong rollouts whose first call works",
        "difference",
        "held-out first calls that work, at the end",
    ]
    return table(head, rows) if rows else NOTHING


def ablations(results: Sequence[Result], name: str) -> str:
    """Return the ablations after the methods that they change, with the one seed that all of them have."""
    found = {each.method: each for each in summaries(_first_seed(results), DRIFT)}
    asking = [found[method] for method in _asking(name) if method in found]
    if not asking:
        return NOTHING
    asked = "\n".join(f"- *{METHODS[each.method].label}*: {METHODS[each.method].asks}" for each in asking)
    rows = [*(found[method] for method in CHANGED[name] if method in found), *asking]
    return f"{asked}\n\n{_tables(rows)}\n\n![Curves of these ablations]({IMAGES}/lab-{name}.svg)"


def _asking(name: str) -> list[str]:
    """Return the ablations of a table, whether they have run or not."""
    return [
        method.name
        for method in ABLATIONS
        if (method.recipe_method == METHODS["saar"].recipe_method) == (name == "saar-ablations")
    ]


def second_opinion(results: Sequence[Result]) -> str:
    """Return the few evaluations of a real model in order; they are too few for curves."""
    runs = _real(results)
    if not runs:
        return NOTHING
    came = [
        [
            METHODS[each.run.method].label,
            course(summary.curve(each, "accuracy"), percent),
            course(summary.curve(each, "first_call_works"), percent),
            course(summary.curve(each, "errors"), lambda value: f"{value:.2f}"),
            course([(step, found["right"]) for step, found in sorted(each.recovery.items())], percent),
            f"{summary.tokens(each, each.steps):.0f}",
        ]
        for each in runs
    ]
    changed = [
        [METHODS[each.run.method].label, *(course(summary.curve(each, figure), percent) for figure, _ in CHANGED_NAMES)]
        for each in runs
    ]
    steps = ", ".join(map(str, sorted(runs[0].evaluation)))
    head = [
        "method",
        f"accuracy (step {steps})",
        "first call works",
        "failed calls",
        "right after a failed first call",
        "thousand tokens sampled",
    ]
    return f"{table(head, came)}\n\n{table(['method', *(name for _, name in CHANGED_NAMES)], changed)}"


def agreement(results: Sequence[Result]) -> str:
    """Compare two runs of one method with one seed: GRPO, and the tuning run with the same learning rate."""
    baseline = next(
        (each for each in results if each.run.method == BASELINE and each.run.regime == DRIFT and not each.run.seed),
        None,
    )
    tuning = {method.name for method in TUNING}
    twin = next(
        (each for each in results if baseline and each.run.method in tuning and each.rate == baseline.rate), None
    )
    if baseline is None or twin is None:
        return NOTHING
    common = [step for step in twin.training if step in baseline.training]
    same = [
        step for step in common if twin.training[step]["sampled_tokens"] == baseline.training[step]["sampled_tokens"]
    ]
    parted = next((step for step in common if step not in same), None)
    evaluated = [step for step in twin.evaluation if step and step in baseline.evaluation]
    apart = [abs(twin.evaluation[step]["accuracy"] - baseline.evaluation[step]["accuracy"]) for step in evaluated]
    until = (
        f"the number of sampled tokens is the same before step {parted}"
        if parted
        else "the number of sampled tokens is the same at every step"
    )
    return (
        f"GRPO with seed 0 ran twice, once to tune the learning rate ({len(common)} steps). In both runs {until}; "
        f"held-out accuracy differs by {summary.mean(apart):.3f} on average and by at most "
        f"{max(apart, default=0.0):.3f} over {len(apart)} evaluations."
    )


def cost(results: Sequence[Result], regime: str) -> str:
    """Return where the time of a step goes."""
    rows = []
    for method in REQUIRED:
        runs = [
            each for each in results if each.finished and (each.run.regime, each.run.method) == (regime, method.name)
        ]
        if runs:
            parts = [_mean_part(runs, part) for part in ("", "_generation", "_update", "_weights", "_testing")]
            hours = sum(each.hours for each in runs) / len(runs)
            tokens = summary.mean([y for each in runs for _, y in summary.training_curve(each, "sampled_tokens")])
            rows.append([method.label, *parts, f"{tokens:,.0f}", f"{60 * hours:.1f}"])
    if not rows:
        return NOTHING
    head = [
        "method",
        "seconds per step",
        "generation",
        "update",
        "weights",
        "seconds per evaluation",
        "tokens per step",
        "minutes per run, start-up included",
    ]
    return table(head, rows)


def all_methods(results: Sequence[Result]) -> str:
    """Return accuracy and failed calls of every method, in the two environments that all of them run in."""
    by_regime = [{each.method: each for each in summaries(results, regime)} for regime in (DRIFT, SLIPS)]
    rows = [
        [method.label, *(cell for found in by_regime for cell in _accuracy_and_errors(found.get(method.name)))]
        for method in REQUIRED
        if any(method.name in found for found in by_regime)
    ]
    head = ["method", *(f"*{regime}*: {what}" for regime in (DRIFT, SLIPS) for what in ("accuracy", "failed calls"))]
    return table(head, rows) if rows else NOTHING


def _accuracy_and_errors(found: Summary | None) -> list[str]:
    return [ranged(found.accuracy, percent), ranged(found.errors)] if found else ["", ""]


def one_change(results: Sequence[Result]) -> str:
    """Return accuracy and failed calls of the methods and of every ablation, with the seed that all of them have."""
    rows = [
        [METHODS[each.method].label, *_accuracy_and_errors(each)] for each in summaries(_first_seed(results), DRIFT)
    ]
    return table(["variant", "accuracy", "failed calls"], rows) if rows else NOTHING


def not_run(results: Sequence[Result]) -> str:
    """Return which runs are missing."""
    finished = {each.run for each in results if each.finished}
    missing = [run for run in order() if run not in finished]
    done, hours = len(order()) - len(missing), sum(each.hours for each in results)
    lines = [f"- {done} of {len(order())} runs are finished; they took {hours:.1f} hours in total."]
    for regime in REGIME_NAMES:
        names: dict[str, list[str]] = {}
        for run in missing:
            if run.regime == regime:
                names.setdefault(run.method, []).append(str(run.seed))
        if names:
            words = ", ".join(f"`{method}` (seed {', '.join(seeds)})" for method, seeds in names.items())
            lines.append(f"- {regime}: {words}")
    return "\n".join(lines)


CHANGED_NAMES = [
    (f"{figure}_{count}_changed", f"{name} changed: {what}")
    for count, name in enumerate(("none", "one", "two"))
    for figure, what in (("accuracy", "right"), ("first_call_works", "first call works"))
]
"""Figures by how many of a question's names have changed."""
ON_THE_WAY = (0, 20, 40)
"""Steps at which the models of every method are evaluated with a larger turn budget."""
RESULTS = [
    "method",
    "seeds",
    "accuracy",
    "first call works",
    "failed calls",
    "failed first attempts in training",
    "right after a failed first call",
]
SPEED = [
    "method",
    "steps to GRPO's final accuracy",
    "relative to GRPO",
    "relative to GRPO's whole run",
    "thousand tokens to it",
    "tokens relative to GRPO",
    "tokens relative to GRPO's whole run",
    "worst difference at equal tokens (worst seed)",
]


def _required(results: Sequence[Result], regime: str) -> str:
    rows = [each for each in summaries(results, regime) if METHODS[each.method].required or regime != DRIFT]
    return f"{_tables(rows)}\n\n![Curves of {regime}]({IMAGES}/lab-{regime}.svg)" if rows else NOTHING


def _real(results: Sequence[Result]) -> list[Result]:
    """Return the finished runs of a real model, in the order of the methods."""
    places = list(METHODS)
    runs = [each for each in results if each.run.regime == REAL and each.finished]
    return sorted(runs, key=lambda each: places.index(each.run.method))


def _first_seed(results: Sequence[Result]) -> list[Result]:
    return [each for each in results if not each.run.seed]


def _tables(rows: Sequence[Summary]) -> str:
    """Return two tables: the results, and how fast each method reaches GRPO's final accuracy."""
    return "\n\n".join(
        [
            table(RESULTS, map(_results, rows)),
            table(SPEED, map(_speed, rows)),
        ]
    )


def _results(each: Summary) -> list[str]:
    return [
        METHODS[each.method].label,
        str(each.seeds),
        ranged(each.accuracy, percent),
        ranged(each.first_call, percent),
        ranged(each.errors),
        ranged(each.raw_errors),
        ranged(each.recovery, percent),
    ]


def _speed(each: Summary) -> list[str]:
    return [
        METHODS[each.method].label,
        ranged(each.steps, lambda value: f"{value:.0f}"),
        ranged(each.step_ratio),
        ranged(each.step_share),
        ranged(each.tokens, lambda value: f"{value:.0f}"),
        ranged(each.token_ratio),
        ranged(each.token_share),
        worst(each),
    ]


def _plots(results: Sequence[Result]) -> Iterable[tuple[str, list[Result], list[str], Sequence[Panel]]]:
    """Yield each plot's file, with the runs, the methods and the panels that it shows."""
    results = [each for each in results if each.finished]
    for regime in DRAWN:
        runs = [each for each in results if each.run.regime == regime]
        found = [each.method for each in summaries(results, regime) if METHODS[each.method].required or regime != DRIFT]
        if found:
            yield f"lab-{regime}.svg", runs, found, PANELS
        if found and regime == DRIFT:
            yield CURVE, runs, found, HEADLINE
            larger = summary.with_larger_budget(runs)
            yield LARGER_BUDGET, larger, [each.method for each in summaries(larger, DRIFT)], WITHIN
    first = [each for each in _first_seed(results) if each.run.regime == DRIFT]
    ran = {each.method for each in summaries(first, DRIFT)}
    for name, changed in CHANGED.items():
        if asking := [method for method in _asking(name) if method in ran]:
            yield f"lab-{name}.svg", first, [*changed, *asking], PANELS


def _mean_part(runs: Sequence[Result], part: str) -> str:
    values = [y for each in runs for _, y in summary.training_curve(each, f"seconds{part}")]
    return f"{summary.mean(values):.1f}" if values else ""
