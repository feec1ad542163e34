"""Writes what the results say into the documentation: figures stand between marks, and nobody else writes there.

    <!-- lab:NAME -->
    ...
    <!-- /lab:NAME -->

`blocks` gives the text of each mark from the results alone; a test holds the page against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.lab import summary
from benchmarks.lab.arms import ARMS, BASELINE, CONTROLS, RATES, REQUIRED, TUNING
from benchmarks.lab.order import order
from benchmarks.lab.plots import HEADLINE, PANELS, WITHIN, Panel, draw
from benchmarks.lab.results import Result
from benchmarks.lab.room import TURNS
from benchmarks.lab.summary import Spread, Summary, spread, summaries
from benchmarks.lab.tables import course, percent, points_apart, ranged, table, worst
from benchmarks.lab.worlds import DRIFT, PLACES, REAL, SLIPS, UNHINTED

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "lab.md"
METHODS = {
    "dapo": (BASELINE,),
    "saar": ("saar",),
    "hindsight": ("hindsight", "hindsight-successes"),
    "grpo-roc": ("roc", "saar-roc"),
}
"""Whose figures stand on which method's page, beside the baseline's."""
PAGES = (PAGE, *(DOCS / "methods" / f"{name}.md" for name in METHODS))
CURVE, ROOM = "lab-curve.svg", "lab-room.svg"
CHANGED = {
    "controls": (BASELINE, "hindsight-successes", "hindsight"),
    "saar-controls": (BASELINE, "hindsight-successes", "saar"),
}
"""What controls change one thing of, or are to be held against; SAAR has enough of them for tables of their own."""
NOTHING = "Nothing of this has run yet."
DRAWN = tuple(place for place in PLACES if place != REAL)
MARK = re.compile(r"(<!-- lab:([\w-]+) -->\n).*?(<!-- /lab:\2 -->)", re.DOTALL)


def write_pages(pages: Iterable[Path], results: Sequence[Result], images: Path) -> None:
    """Fill the marks of all pages, and draw the plots."""
    found = blocks(results)
    for page in pages:
        page.write_text(filled(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    for name, chosen, arms, panels in _plots(results):
        draw(chosen, arms, images / name, panels)


def filled(text: str, found: dict[str, str]) -> str:
    """The page's text with the blocks in their places."""
    return MARK.sub(lambda match: f"{match[1]}{found[match[2]]}{match[3]}", text)


def blocks(results: Sequence[Result]) -> dict[str, str]:
    """The text of every mark."""
    parts = {
        "headline": headline(results),
        "learning-rate": learning_rate(results),
        **{regime: _required(results, regime) for regime in DRAWN},
        REAL: second_opinion(results),
        "changed-names": changed_names(results, DRIFT),
        "unhinted-names": changed_names(results, UNHINTED),
        "room": room(results),
        "taught": taught(results),
        **{name: controls(results, name) for name in CHANGED},
        "agreement": agreement(results),
        "cost": cost(results, DRIFT),
        "smollm2-cost": cost(results, REAL),
        "not-run": not_run(results),
        **{f"method-{name}": method(results, arms) for name, arms in METHODS.items()},
    }
    return {name: f"{text}\n" for name, text in parts.items()}


def headline(results: Sequence[Result]) -> str:
    """The answer in a few lines."""
    drift = {each.arm: each for each in summaries(results, DRIFT)}
    ours = [each for name, each in drift.items() if ARMS[name].required and name != BASELINE and each.step_ratio.values]
    if BASELINE not in drift or not ours:
        return NOTHING
    best = min(ours, key=lambda each: (-len(each.step_ratio.values), each.step_ratio.mean or 0.0))
    name = ARMS[best.arm].label
    lines = [
        f"- Failed calls a held-out trajectory at the end, repair off: DAPO {ranged(drift[BASELINE].errors)}, "
        f"**{name} {ranged(best.errors)}**. Figures are means over seeds, with the least and the most.",
        f"- With the turns that it is trained with, {name} came to DAPO's accuracy at the end in "
        f"**{ranged(best.step_ratio)} of the steps** and **{ranged(best.token_ratio)} of the sampled tokens** in which "
        f"DAPO first came there; that is {ranged(best.step_share)} and {ranged(best.token_share)} of DAPO's whole run.",
        *_in_short_with_room(results, best.arm),
    ]
    if "saar" in drift and best.arm != "saar":
        saar = drift["saar"]
        lines.append(
            f"- SAAR, with the turns that it is trained with: {ranged(saar.step_ratio)} and {ranged(saar.token_ratio)} "
            f"of DAPO's way there, {ranged(saar.step_share)} and {ranged(saar.token_share)} of its whole run; failed "
            f"calls {ranged(saar.errors)}."
        )
    slips = {each.arm: each for each in summaries(results, SLIPS)}
    if best.arm in slips:
        others = [each for each in slips.values() if each.arm not in (BASELINE, best.arm)]
        lines.append(
            f"- In slips, the least difference of {name} to DAPO at equal tokens was {worst(slips[best.arm])} (mean "
            "over seeds, and in brackets the worst of single seeds)"
            + "".join(f"; of {ARMS[each.arm].label}, {worst(each)}" for each in others)
            + "."
        )
    unhinted = {each.arm: each for each in summaries(results, UNHINTED)}
    if BASELINE in unhinted:
        ends = (f"{ARMS[each.arm].label} {ranged(each.accuracy, percent)}" for each in unhinted.values())
        lines.append(
            f"- Where an error doesn't name the right function, accuracy at the end: {', '.join(ends)} "
            "([so far](#drift-without-a-hint) with fewer seeds)."
        )
    real = {each.run.arm: summary.curve(each, "accuracy") for each in _real(results)}
    if BASELINE in real and best.arm in real:
        theirs, own = real[BASELINE], real[best.arm]
        lines.append(
            f"- SmolLM2-135M, a real language model, one seed, {theirs[-1][0]:.0f} steps, 64 tasks: held-out accuracy "
            f"{course(theirs, percent)} with DAPO, {course(own, percent)} with {name}; each has a standard error of "
            "about 6 points."
        )
    return "\n".join(lines)


def _in_short_with_room(results: Sequence[Result], best: str) -> list[str]:
    roomy = {each.arm: each for each in summaries(summary.with_room(results), DRIFT)}
    if not {BASELINE, best} <= set(roomy):
        return []
    theirs, own = roomy[BASELINE], roomy[best]
    return [
        f"- With {TURNS} turns instead, of which hardly anybody runs out, the same models end at "
        f"{ranged(theirs.accuracy, percent)} (DAPO) and {ranged(own.accuracy, percent)} ({ARMS[best].label}), with "
        f"{ranged(theirs.errors)} and {ranged(own.errors)} failed calls; at equal tokens the second is at worst "
        f"{worst(own)} from the first."
    ]


def learning_rate(results: Sequence[Result]) -> str:
    """DAPO's tuning."""
    tried = {each.run.arm: each for each in results if each.run.arm in {arm.name for arm in TUNING} and each.finished}
    if not tried:
        return NOTHING
    rows = [
        [f"{rate:.0e}", percent(summary.final(tried[arm.name])), f"{summary.final(tried[arm.name], 'errors'):.2f}"]
        for rate, arm in zip(RATES, TUNING, strict=True)
        if arm.name in tried
    ]
    return table(["learning rate", "accuracy", "failed calls"], rows)


def changed_names(results: Sequence[Result], regime: str) -> str:
    """Right answers, and first calls that work, by how many of a question's names have changed."""
    rows = []
    for arm in REQUIRED:
        if runs := _runs(results, regime, arm.name):
            shares = [summary.mean([summary.final(each, figure) for each in runs]) for figure, _ in CHANGED_NAMES]
            rows.append([arm.label, str(len(runs)), *map(percent, shares)])
    return table(["arm", "seeds", *(name for _, name in CHANGED_NAMES)], rows) if rows else NOTHING


def room(results: Sequence[Result]) -> str:
    """The same models with more turns."""
    runs = summary.with_room(results)
    rows = [
        [
            ARMS[each.arm].label,
            str(each.seeds),
            *(ranged(_at(runs, each.arm, step), percent) for step in ON_THE_WAY),
            ranged(each.accuracy, percent),
            ranged(each.errors),
            ranged(_ends(runs, each.arm, "calls")),
            ranged(_ends(runs, each.arm, "cut"), percent),
            worst(each),
        ]
        for each in summaries(runs, DRIFT)
    ]
    head = [
        "arm",
        "seeds",
        *(f"accuracy at step {step}" for step in ON_THE_WAY),
        "at the end",
        "failed calls",
        "calls",
        "out of turns even so",
        "worst at equal tokens (worst seed)",
    ]
    return f"{table(head, rows)}\n\n![Curves with room](images/{ROOM})" if rows else NOTHING


def _ends(results: Sequence[Result], arm: str, figure: str) -> Spread:
    return spread([summary.final(each, figure) for each in _runs(results, DRIFT, arm)])


def _at(results: Sequence[Result], arm: str, step: int) -> Spread:
    """Accuracy at a step that all of an arm's models were measured at."""
    return spread([each.evaluation.get(step, {}).get("accuracy") for each in _runs(results, DRIFT, arm)])


def _runs(results: Sequence[Result], regime: str, arm: str) -> list[Result]:
    return [each for each in results if each.finished and (each.run.regime, each.run.arm) == (regime, arm)]


def taught(results: Sequence[Result]) -> str:
    """What the groups had to teach."""
    rows = [
        [
            ARMS[each.arm].label,
            ranged(each.one_reward, percent),
            ranged(each.works_if_right, percent),
            ranged(each.works_if_wrong, percent),
            points_apart(each.works_if_right.mean, each.works_if_wrong.mean),
            ranged(each.first_call, percent),
        ]
        for each in summaries(results, DRIFT)
        if each.first_call.values  # without a tool there is no first call
    ]
    head = [
        "arm",
        "groups of one reward",
        "in the others: right ones that begin with a call that works",
        "wrong ones that do",
        "difference",
        "held-out first calls that work, at the end",
    ]
    return table(head, rows) if rows else NOTHING


def controls(results: Sequence[Result], name: str) -> str:
    """The arms that ask what does the work, behind those that they change, with the seed that all of them have."""
    found = {each.arm: each for each in summaries(_first_seed(results), DRIFT)}
    asking = [found[arm] for arm in _asking(name) if arm in found]
    if not asking:
        return NOTHING
    asked = "\n".join(f"- *{ARMS[each.arm].label}*: {ARMS[each.arm].asks}" for each in asking)
    rows = [*(found[arm] for arm in CHANGED[name] if arm in found), *asking]
    return f"{asked}\n\n{_tables(rows)}\n\n![Curves of these controls](images/lab-{name}.svg)"


def _asking(name: str) -> list[str]:
    """The controls of a table, whether they have run or not."""
    return [arm.name for arm in CONTROLS if (arm.method == ARMS["saar"].method) == (name == "saar-controls")]


def second_opinion(results: Sequence[Result]) -> str:
    """A real model's few evaluations, one after the other: too few for curves."""
    runs = _real(results)
    if not runs:
        return NOTHING
    came = [
        [
            ARMS[each.run.arm].label,
            course(summary.curve(each, "accuracy"), percent),
            course(summary.curve(each, "first_call_works"), percent),
            course(summary.curve(each, "errors"), lambda value: f"{value:.2f}"),
            course([(step, found["right"]) for step, found in sorted(each.recovery.items())], percent),
            f"{summary.tokens(each, each.steps):.0f}",
        ]
        for each in runs
    ]
    changed = [
        [ARMS[each.run.arm].label, *(course(summary.curve(each, figure), percent) for figure, _ in CHANGED_NAMES)]
        for each in runs
    ]
    steps = ", ".join(map(str, sorted(runs[0].evaluation)))
    head = [
        "arm",
        f"accuracy (step {steps})",
        "first call works",
        "failed calls",
        "right after a failed call",
        "k tokens sampled",
    ]
    return f"{table(head, came)}\n\n{table(['arm', *(name for _, name in CHANGED_NAMES)], changed)}"


def agreement(results: Sequence[Result]) -> str:
    """Two runs of one arm with one seed: DAPO, and the tuning run that had the same learning rate."""
    baseline = next(
        (each for each in results if each.run.arm == BASELINE and each.run.regime == DRIFT and not each.run.seed), None
    )
    tuning = {arm.name for arm in TUNING}
    twin = next((each for each in results if baseline and each.run.arm in tuning and each.rate == baseline.rate), None)
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
        f"the first step whose sampled tokens differ in number is {parted}"
        if parted
        else "no step differs in its number of sampled tokens"
    )
    return (
        f"DAPO with seed 0 ran twice, once while the learning rate was tuned ({len(common)} steps): {until}; held-out "
        f"accuracy differs by {summary.mean(apart):.3f} on average and {max(apart, default=0.0):.3f} at most over "
        f"{len(apart)} evaluations."
    )


def cost(results: Sequence[Result], regime: str) -> str:
    """Where the time went."""
    rows = []
    for arm in REQUIRED:
        runs = [each for each in results if each.finished and (each.run.regime, each.run.arm) == (regime, arm.name)]
        if runs:
            parts = [_mean_part(runs, part) for part in ("", "_generation", "_update", "_weights", "_testing")]
            hours = sum(each.hours for each in runs) / len(runs)
            tokens = summary.mean([y for each in runs for _, y in summary.training_curve(each, "sampled_tokens")])
            rows.append([arm.label, *parts, f"{tokens:,.0f}", f"{60 * hours:.1f}"])
    if not rows:
        return NOTHING
    head = [
        "arm",
        "s a step",
        "generation",
        "update",
        "weights",
        "s an evaluation",
        "tokens a step",
        "minutes a run, start-up included",
    ]
    return table(head, rows)


def method(results: Sequence[Result], arms: Sequence[str]) -> str:
    """What a method came to in the two regimes that all arms run in, with its curves in the first."""
    parts = []
    for regime in (DRIFT, SLIPS):
        rows = [each for each in summaries(results, regime) if each.arm in (BASELINE, *arms)]
        if any(each.arm in arms for each in rows):
            parts.append(f"In {regime}:\n\n{table(CAME_TO, map(_came_to, rows))}")
    if not parts:
        return NOTHING
    return "\n\n".join([*parts, f"![Curves of all methods in drift](../images/{CURVE})"])


def not_run(results: Sequence[Result]) -> str:
    """What is missing."""
    finished = {each.run for each in results if each.finished}
    missing = [run for run in order() if run not in finished]
    done, hours = len(order()) - len(missing), sum(each.hours for each in results)
    lines = [f"- {done} of {len(order())} runs are finished; all together took {hours:.1f} hours."]
    for regime in PLACES:
        names: dict[str, list[str]] = {}
        for run in missing:
            if run.regime == regime:
                names.setdefault(run.arm, []).append(str(run.seed))
        if names:
            words = ", ".join(f"`{arm}` (seed {', '.join(seeds)})" for arm, seeds in names.items())
            lines.append(f"- {regime}: {words}")
    return "\n".join(lines)


CHANGED_NAMES = [
    (f"{figure}_{count}_changed", f"{name} changed: {what}")
    for count, name in enumerate(("none", "one", "two"))
    for figure, what in (("accuracy", "right"), ("first_call_works", "first call works"))
]
"""Figures by how many of a question's names have changed."""
ON_THE_WAY = (0, 20, 40)
"""Steps that every arm's models are measured at with room."""
CAME_TO = [
    "arm",
    "seeds",
    "accuracy",
    "first call works",
    "failed calls",
    "raw errors in training",
    "right after a failed call",
]
HOW_SOON = [
    "arm",
    "steps to DAPO's",
    "of its way there",
    "of its whole run",
    "k tokens to DAPO's",
    "of its way there, tokens",
    "of its whole run, tokens",
    "worst at equal tokens (worst seed)",
]


def _required(results: Sequence[Result], regime: str) -> str:
    rows = [each for each in summaries(results, regime) if ARMS[each.arm].required or regime != DRIFT]
    return f"{_tables(rows)}\n\n![Curves of {regime}](images/lab-{regime}.svg)" if rows else NOTHING


def _real(results: Sequence[Result]) -> list[Result]:
    """Finished runs of a real model, in the order of the table of arms."""
    places = list(ARMS)
    runs = [each for each in results if each.run.regime == REAL and each.finished]
    return sorted(runs, key=lambda each: places.index(each.run.arm))


def _first_seed(results: Sequence[Result]) -> list[Result]:
    return [each for each in results if not each.run.seed]


def _tables(rows: Sequence[Summary]) -> str:
    """What the arms came to, and how soon they were where DAPO ended."""
    return "\n\n".join(
        [
            table(CAME_TO, map(_came_to, rows)),
            table(HOW_SOON, map(_how_soon, rows)),
        ]
    )


def _came_to(each: Summary) -> list[str]:
    return [
        ARMS[each.arm].label,
        str(each.seeds),
        ranged(each.accuracy, percent),
        ranged(each.first_call, percent),
        ranged(each.errors),
        ranged(each.raw_errors),
        ranged(each.recovery, percent),
    ]


def _how_soon(each: Summary) -> list[str]:
    return [
        ARMS[each.arm].label,
        ranged(each.steps, lambda value: f"{value:.0f}"),
        ranged(each.step_ratio),
        ranged(each.step_share),
        ranged(each.tokens, lambda value: f"{value:.0f}"),
        ranged(each.token_ratio),
        ranged(each.token_share),
        worst(each),
    ]


def _plots(results: Sequence[Result]) -> Iterable[tuple[str, list[Result], list[str], Sequence[Panel]]]:
    """Each plot's file, with the runs, the arms and the panels that it shows."""
    results = [each for each in results if each.finished]
    for regime in DRAWN:
        runs = [each for each in results if each.run.regime == regime]
        found = [each.arm for each in summaries(results, regime) if ARMS[each.arm].required or regime != DRIFT]
        if found:
            yield f"lab-{regime}.svg", runs, found, PANELS
        if found and regime == DRIFT:
            yield CURVE, runs, found, HEADLINE
            roomy = summary.with_room(runs)
            yield ROOM, roomy, [each.arm for each in summaries(roomy, DRIFT)], WITHIN
    first = [each for each in _first_seed(results) if each.run.regime == DRIFT]
    ran = {each.arm for each in summaries(first, DRIFT)}
    for name, changed in CHANGED.items():
        if asking := [arm for arm in _asking(name) if arm in ran]:
            yield f"lab-{name}.svg", first, [*changed, *asking], PANELS


def _mean_part(runs: Sequence[Result], part: str) -> str:
    values = [y for each in runs for _, y in summary.training_curve(each, f"seconds{part}")]
    return f"{summary.mean(values):.1f}" if values else ""
