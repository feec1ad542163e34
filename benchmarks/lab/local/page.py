"""Writes what the worlds showed as Markdown and as one figure: the fresh worlds, and what was chosen before them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.lab.environments import REAL
from benchmarks.lab.local.margins import (
    COSTS,
    RATES,
    Interval,
    Line,
    Plan,
    area,
    by_world,
    fresh,
    margins,
    paired,
    token_ratio,
)
from benchmarks.lab.local.methods import (
    COMPARATORS,
    COMPARED,
    GRPO,
    HINDSIGHT,
    METHODS,
    OURS,
    TWO_VIEWS,
    VARIANTS,
    WITH_OTHERS,
)
from benchmarks.lab.local.preregistered import SecondPlan, judged, read_second_plan
from benchmarks.lab.local.queue import EQUAL as EQUAL_RESULTS
from benchmarks.lab.local.queue import LONGER, ON_VERL, SECOND, SEEDS, read
from benchmarks.lab.local.worlds import COLD_STARTS, DEVELOPMENT, ENVIRONMENTS, PREREGISTERED, TUNING
from benchmarks.lab.page import DOCS, filled
from benchmarks.lab.plots import STYLE, save_svg
from benchmarks.lab.tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TABLES = DOCS.parent / "benchmarks" / "results" / "lab" / "worlds" / "tables.md"
"""The tables that are too many or too wide for the documentation."""
PAGES = (
    TABLES,
    DOCS / "results" / "worlds.md",
    DOCS / "results" / "index.md",
    DOCS / "methods" / "two-views.md",
    DOCS.parent / "README.md",
)
FIGURE = "lab-worlds.svg"
LONGER_FIGURE = "lab-worlds-longer.svg"
COLOURS = dict(zip(COMPARED, ("#555555", "#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=True))
"""Colours that most kinds of colour blindness can tell apart; GRPO is grey."""
SUMMED_UP = {
    "drift": "functions were renamed, the error names the right one",
    "drift-guess": "functions were renamed, the error doesn't say how",
    "starved": "more renamed functions than turns",
    "slips": "random mistakes",
    "per-task": "names differ from task to task",
    "one-by-one": "many calls, few of which fail",
}
SIGNALS = {
    "zero_variance_share": "`zero_variance_share`",
    "first_call_signal": "`first_call_signal`",
    "logprob_gap": "`logprob_gap`",
    "rescue_tries": "rescues tried",
    "rescues": "succeeded",
}
ON_THE_WAY = ("0", "20", "40")
NOTHING = "None of these worlds has run yet."


@dataclass(frozen=True, slots=True)
class Lines:
    """All that has run."""

    here: Sequence[Line]
    on_verl: Sequence[Line] = ()
    longer: Sequence[Line] = ()
    """With more steps."""
    seeds: Sequence[Line] = ()
    """With other seeds."""
    equal: Sequence[Line] = ()
    """At equal compute, in development worlds."""
    second: Sequence[Line] = ()
    """Of the second plan."""

    @classmethod
    def kept(cls) -> Lines:
        """Read the lines that are kept."""
        return cls(read(), read(ON_VERL), read(LONGER), read(SEEDS), read(EQUAL_RESULTS), read(SECOND))


def write_pages(pages: Iterable[Path], lines: Lines, plan: Plan, images: Path) -> None:
    """Fill the marks of all pages and draw the figure."""
    found = blocks(lines, plan)
    for page in pages:
        page.write_text(filled(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    draw(_everywhere(fresh(lines.here, plan)), images / FIGURE)
    draw(lines.longer, images / LONGER_FIGURE)


def blocks(ran: Lines, plan: Plan) -> dict[str, str]:
    """Return the text of every mark."""
    lines = ran.here
    in_fresh = fresh(lines, plan)
    everywhere = _everywhere(in_fresh)
    judged = margins(everywhere, plan)["by_regime"]
    parts = {
        "worlds": _compared(judged),
        "worlds-short": _short(judged),
        "worlds-margins": _margins(judged),
        "worlds-others": _others(judged),
        "worlds-costs": _costs(judged),
        "worlds-partly": _partly(in_fresh),
        "worlds-starts": _starts(everywhere),
        "worlds-signals": _signals(everywhere),
        "worlds-sampling": _sampling(everywhere),
        "worlds-verl": _both(lines, ran.on_verl),
        "worlds-longer": _longer(ran.longer),
        "worlds-seeds": _seeds(lines, ran.seeds),
        "worlds-smollm2": _real(lines),
        "worlds-rates": _rates(lines),
        "worlds-rescue": _rescue(in_fresh),
        "worlds-equal": _equal(ran.equal),
        "worlds-second": _second(ran.second, read_second_plan()),
        "worlds-comparators": _chosen(lines, plan, COMPARATORS, DEVELOPMENT),
        "worlds-forms": _chosen(lines, plan, COMPARED | VARIANTS, (TUNING,)),
    }
    return {name: f"{text}\n" for name, text in parts.items()}


def _everywhere(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of methods that have run in all worlds of an environment, so that all means are of the same."""
    found = []
    for environment in ENVIRONMENTS:
        worlds = by_world(lines, environment, GRPO).keys()
        for method in METHODS:
            ran = by_world(lines, environment, method)
            found += list(ran.values()) if ran.keys() == worlds else []
    return found


def draw(lines: Sequence[Line], path: Path) -> None:
    """Draw the difference from GRPO's accuracy over steps: the mean over worlds, and its 90 % interval."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    shown = [method for method in COMPARED if any(line["method"] == method for line in lines)]
    environments = [each for each in ENVIRONMENTS if any(line["environment"] == each for line in lines)]
    across = min(3, len(environments))
    down = ceil(len(environments) / across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(6.0, 3.5 * across), 2.6 * down + 0.6), layout="constrained")
        axes = figure.subplots(down, across, sharey=True, squeeze=False)
        for place in axes.flat[len(environments) :]:
            place.set_visible(False)
        for place, environment in zip(axes.flat, environments, strict=False):
            place.set_title(environment)
            place.set_xlabel("RL steps")
            grpo = by_world(lines, environment, GRPO)
            for method in shown:
                _curve(place, method, by_world(lines, environment, method), grpo)
        for place in axes[:, 0]:
            place.set_ylabel("accuracy minus GRPO's, points")
        named = [Line2D([], [], color=COLOURS[method], label=METHODS[method].label) for method in shown]
        figure.legend(handles=named, loc="outside lower center", ncols=max(1, len(named)))
        save_svg(figure, path)


def _curve(axes: Axes, method: str, lines: Mapping[int, Line], grpo: Mapping[int, Line]) -> None:
    """Draw a method's difference from GRPO in the same worlds; its last point is of all test tasks."""
    if not lines:
        return
    steps = sorted(map(int, next(iter(lines.values()))["curve"]))
    found = [
        Interval.of([100 * (_accuracy(line, step) - _accuracy(grpo[world], step)) for world, line in lines.items()])
        for step in steps
    ]
    axes.plot(steps, [each.mean for each in found], color=COLOURS[method], lw=1.6)
    if len(lines) > 1:
        low, high = [each.low for each in found], [each.high for each in found]
        axes.fill_between(steps, low, high, color=COLOURS[method], alpha=0.15, lw=0)


def _accuracy(line: Line, step: int) -> float:
    found: Mapping[str, float] = line["test"] if step == line["steps"] else line["curve"][str(step)]
    return found["accuracy"]


def _compared(judged: Mapping[str, Any]) -> str:
    """One row for each environment: accuracy of each method, and how far ours is from GRPO's."""
    rows = []
    ran = [method for method in COMPARED if any(method in each["methods"] for each in judged.values())]
    for environment, each in judged.items():
        found = each["methods"]
        if not found:
            continue
        cells = [f"{100 * found[method]['accuracy']['mean']:.1f}" if method in found else "–" for method in ran]
        apart = _apart(found[OURS]["accuracy_over_grpo"]) if OURS in found else "–"
        verdict = f"{METHODS[each['comparator']].label}: {each['verdict']}"
        rows.append([f"*{environment}*", *cells, apart, str(each["worlds"]), verdict])
    head = ["environment", *(METHODS[method].label for method in ran), "minus GRPO's", "worlds"]
    return table([*head, f"{METHODS[OURS].label} is not worse than"], rows) if rows else NOTHING


def _short(judged: Mapping[str, Any]) -> str:
    """One row for each environment, of the methods that the margins compare: accuracy."""
    rows = []
    for environment, each in judged.items():
        shown = (each["methods"].get(method) for method in (GRPO, HINDSIGHT, OURS))
        cells = [f"{100 * found['accuracy']['mean']:.1f} %" if found else "–" for found in shown]
        rows.append([f"*{environment}*: {SUMMED_UP[environment]}", *cells])
    return table(["environment", *(METHODS[method].label for method in (GRPO, HINDSIGHT, OURS))], rows)


def _apart(found: Mapping[str, float | None]) -> str:
    """Format a difference of shares with its interval, in points."""
    mean, low, high = (found[name] for name in ("mean", "low", "high"))
    assert mean is not None
    ends = "" if low is None or high is None else f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"{100 * mean:+.1f}{ends}"


def _interval(found: Mapping[str, float | None]) -> str:
    """Format shares as a mean with its interval, in percent."""
    mean, low, high = (found[name] for name in ("mean", "low", "high"))
    assert mean is not None
    ends = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * mean:.1f}{ends}"


MARGINS = {
    "accuracy": "accuracy, points",
    "failed_calls": "failed calls",
    "recovery": "recovery, points",
    "tokens_over_grpo": "tokens relative to GRPO's",
    "tokens_over_saar": "tokens relative to SAAR's",
}


def _margins(judged: Mapping[str, Any]) -> str:
    """Return ours minus the comparator, figure by figure, with the verdicts."""
    told = [name for name in MARGINS if any(name in each["margins"] for each in judged.values())]
    rows = [
        [
            f"*{environment}*",
            METHODS[each["comparator"]].label,
            *(_margin(name, each["margins"].get(name)) for name in told),
            each["verdict"],
        ]
        for environment, each in judged.items()
        if each["margins"]
    ]
    head = ["environment", "comparator", *(MARGINS[name] for name in told), "verdict"]
    return table(head, rows) if rows else NOTHING


def _margin(name: str, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    if name in ("accuracy", "recovery"):
        return f"{_apart(found)}: {found['verdict']}"
    ends = "" if found["low"] is None else f" ({found['low']:.2f} to {found['high']:.2f})"
    return f"{found['mean']:.2f}{ends}: {found['verdict']}"


def _others(judged: Mapping[str, Any]) -> str:
    """Return every method's figures in every environment."""
    rows = [
        [
            f"*{environment}*",
            METHODS[method].label,
            _interval(found["accuracy"]),
            _apart(found["accuracy_over_grpo"]),
            f"{100 * found['area']:.1f}",
            f"{found['failed_calls']:.2f}",
            f"{100 * found['first_call_works']:.1f}",
            f"{100 * found['recovery']:.1f}",
        ]
        for environment in ENVIRONMENTS
        for method, found in judged.get(environment, {"methods": {}})["methods"].items()
    ]
    head = [
        "environment",
        "method",
        "accuracy, %",
        "against GRPO, points",
        "area under the curve, %",
        "failed calls",
        "first call works, %",
        "recovery, %",
    ]
    return table(head, rows) if rows else NOTHING


def _costs(judged: Mapping[str, Any]) -> str:
    """Return what a run of every method takes in every environment."""
    rows = [
        [
            f"*{environment}*",
            METHODS[method].label,
            *(f"{found['costs'][name] / 1000:,.0f}" for name in COSTS[:-1]),
            str(found["costs"]["cpu_seconds"]),
            f"{found['tokens_over_grpo']:.2f}",
        ]
        for environment in ENVIRONMENTS
        for method, found in judged.get(environment, {"methods": {}})["methods"].items()
    ]
    head = [
        "environment",
        "method",
        "tokens sampled, thousands",
        "log-probs recomputed",
        "trained on",
        "calls, thousands",
        "CPU s",
        "sampled relative to GRPO's",
    ]
    return table(head, rows) if rows else NOTHING


def _partly(lines: Sequence[Line]) -> str:
    """Return methods that have run in some worlds only, compared with GRPO and with ours in the same worlds."""
    rows = []
    for environment in ENVIRONMENTS:
        grpo, ours = (by_world(lines, environment, method) for method in (GRPO, OURS))
        for method, each in METHODS.items():
            found = by_world(lines, environment, method)
            if found and found.keys() != grpo.keys():
                rows.append(
                    [
                        f"*{environment}*",
                        each.label,
                        _percent(line["test"]["accuracy"] for line in found.values()),
                        *(_apart(paired(found, other, "test", "accuracy").to_json()) for other in (grpo, ours)),
                        f"{fmean(line['test']['errors'] for line in found.values()):.2f}",
                        f"{token_ratio(found, grpo).mean:.2f}",
                        str(len(found)),
                    ]
                )
    head = ["environment", "method", "accuracy, %", "minus GRPO's", f"minus {METHODS[OURS].label}'s", "failed calls"]
    return table([*head, "tokens relative to GRPO's", "worlds"], rows) if rows else NOTHING


def _rescue(lines: Sequence[Line]) -> str:
    """Return what a rescue adds to two views, over all worlds in which both have run."""
    rows, every = [], []
    for environment in ENVIRONMENTS:
        without = by_world(lines, environment, TWO_VIEWS)
        ours = {world: line for world, line in by_world(lines, environment, OURS).items() if world in without}
        apart = [line["test"]["accuracy"] - without[world]["test"]["accuracy"] for world, line in sorted(ours.items())]
        if apart:
            rows.append([f"*{environment}*", _apart(Interval.of(apart).to_json()), str(len(apart))])
            every += apart
    if not rows:
        return NOTHING
    rows.append(["all", _apart(Interval.of(every).to_json()), str(len(every))])
    return table(["environment", "points, with 90 % interval", "worlds"], rows)


def _equal(lines: Sequence[Line]) -> str:
    """Return the development runs at equal compute."""
    places = sorted(
        {(line["environment"], line["world"]) for line in lines}, key=lambda each: ENVIRONMENTS.index(each[0])
    )
    rows = []
    for method, each in METHODS.items():
        found = {(line["environment"], line["world"]): line for line in lines if line["method"] == method}
        if found:
            cells = [_at_compute(found[place]) if place in found else "" for place in places]
            rows.append([each.label, *cells])
    head = ["method", *(f"*{environment}* {world}" for environment, world in places)]
    return table(head, rows) if rows else NOTHING


def _at_compute(line: Line) -> str:
    accuracy, trained = line["test"]["accuracy"], line["trained_tokens"]
    return f"{100 * accuracy:.1f} / {100 * area(line):.1f}; {trained / 1000:.0f}"


def _second(lines: Sequence[Line], plan: SecondPlan) -> str:
    """Return the verdicts of the second plan, and how many of its runs are missing."""
    found = judged(lines, plan)
    planned = sum(len(PREREGISTERED) * len(plan.methods(environment)) for environment in plan.rivals)
    told = f"{planned - found['missing']} of its {planned} runs are kept."
    rows = [
        [f"*{environment}*", METHODS[method].label, _interval(each["accuracy"]), apart, str(part["models"])]
        for environment, part in found["by_environment"].items()
        for method, each in part["methods"].items()
        for margin in (each.get("default_minus_this"),)
        for apart in (f"{_apart(margin)}: {each['verdict']}" if margin else f"**{part['verdict']}**",)
    ]
    head = ["environment", "method", "accuracy, %", f"{METHODS[plan.default].label} minus this", "models"]
    return f"{told}\n\n{table(head, rows)}" if rows else told


def _starts(lines: Sequence[Line]) -> str:
    """Return differences from GRPO by cold start: the worlds of one begin with the same model."""
    rows = []
    for environment in ENVIRONMENTS:
        grpo = by_world(lines, environment, GRPO)
        for method in (HINDSIGHT, OURS):
            found = by_world(lines, environment, method)
            of_start = [
                {world: found[world] for world in found if world % COLD_STARTS == start} for start in range(COLD_STARTS)
            ]
            if all(of_start):
                cells = [_apart(paired(each, grpo, "test", "accuracy").to_json()) for each in of_start]
                rows.append([f"*{environment}*", METHODS[method].label, *cells])
    return table(["environment", "method", "even worlds", "odd worlds"], rows) if rows else NOTHING


def _signals(lines: Sequence[Line]) -> str:
    """Return what our method logged, as the mean over steps and worlds."""
    rows = []
    for environment in ENVIRONMENTS:
        ours = by_world(lines, environment, OURS)
        if ours:
            logged = {name: fmean(line["signal"][name] for line in ours.values()) for name in SIGNALS}
            gain = _apart(paired(ours, by_world(lines, environment, GRPO), "test", "accuracy").to_json())
            rows.append([f"*{environment}*", *(f"{each:.2f}" for each in logged.values()), gain])
    head = ["environment", *SIGNALS.values(), "accuracy minus GRPO's, points"]
    return table(head, rows) if rows else NOTHING


def _sampling(lines: Sequence[Line]) -> str:
    """Return accuracy at the CLEANER paper's sampling, with repair off and on, where it was measured."""
    rows = []
    measured = {
        method: {each["world"]: each for each in lines if each["method"] == method and "top_p" in each}
        for method in COMPARED
    }
    for method, found in measured.items():
        if found:
            cells = [_sampled(found, measured[GRPO], part) for part in ("test", "top_p", "top_p_repaired")]
            rows.append([METHODS[method].label, *cells, str(len(found))])
    head = ["method", "top-p 1", "top-p 0.6", "top-p 0.6, repair on", "worlds"]
    return table(head, rows) if rows else NOTHING


def _sampled(found: Mapping[int, Line], grpo: Mapping[int, Line], part: str) -> str:
    """Format a mean accuracy, and its difference from GRPO's if it is another method's."""
    mean = _percent(line[part]["accuracy"] for line in found.values())
    return mean if found == grpo else f"{mean}; {_apart(paired(found, grpo, part, 'accuracy').to_json())}"


def _both(lines: Sequence[Line], on_verl: Sequence[Line]) -> str:
    """Return what ran on verl beside the same run in one process."""
    here = {(each["environment"], each["world"], each["method"], each["rate"]): each for each in lines}
    rows = []
    for each in sorted(on_verl, key=lambda line: (line["environment"], line["world"], line["method"])):
        same = here[each["environment"], each["world"], each["method"], each["rate"]]
        figures = (f"{100 * line['test']['accuracy']:.1f} % / {line['test']['errors']:.2f}" for line in (same, each))
        rows.append([f"*{each['environment']}*", str(each["world"]), METHODS[each["method"]].label, *figures])
    return table(["environment", "world", "method", "in one process", "on verl"], rows) if rows else NOTHING


def _longer(lines: Sequence[Line]) -> str:
    """Return the runs with more steps: accuracy on the way, and all figures at the end."""
    rows = []
    for environment in ENVIRONMENTS:
        grpo = by_world(lines, environment, GRPO)
        for method, each in COMPARED.items():
            found = by_world(lines, environment, method)
            ran = found.values()
            if ran:
                tests = [line["test"] for line in ran]
                apart = "" if found == grpo else f"; {_apart(paired(found, grpo, 'test', 'accuracy').to_json())}"
                rows.append(
                    [
                        f"*{environment}*",
                        each.label,
                        *(_percent(line["curve"][step]["accuracy"] for line in ran) for step in ON_THE_WAY),
                        _percent(test["accuracy"] for test in tests) + apart,
                        f"{fmean(test['errors'] for test in tests):.2f}",
                        _percent(test["first_call_works"] for test in tests),
                        _percent(line["recovery"]["right"] for line in ran),
                        str(len(found)),
                    ]
                )
    head = ["environment", "method", *(f"step {step}" for step in ON_THE_WAY), "end", "failed calls"]
    return table([*head, "first call works, %", "recovery, %", "worlds"], rows) if rows else NOTHING


def _percent(shares: Iterable[float]) -> str:
    """Format the mean of shares."""
    return f"{100 * fmean(shares):.1f}"


def _seeds(lines: Sequence[Line], others: Sequence[Line]) -> str:
    """Return accuracy by seed, in the worlds in which more than one has run."""
    places = sorted({(each["environment"], each["world"]) for each in others})
    seeds = sorted({each["seed"] for each in others})
    rows = []
    for environment, world in places:
        for method, each in COMPARED.items():
            first = by_world(lines, environment, method).get(world)
            found = {
                line["seed"]: line
                for line in others
                if (line["environment"], line["world"], line["method"]) == (environment, world, method)
            }
            if first and found:
                cells = [_percent([found[seed]["test"]["accuracy"]]) if seed in found else "" for seed in seeds]
                own = _percent([first["test"]["accuracy"]])
                rows.append([f"*{environment}*", str(world), each.label, own, *cells])
    head = ["environment", "world", "method", "the run above", *(f"seed {seed}" for seed in seeds)]
    return table(head, rows) if rows else NOTHING


def _real(lines: Sequence[Line]) -> str:
    """Return the runs of a real language model."""
    rows = [
        [
            str(each["world"]),
            METHODS[each["method"]].label,
            f"{100 * each['curve']['0']['accuracy']:.1f}",
            f"{100 * each['test']['accuracy']:.1f}",
            f"{each['curve']['0']['errors']:.2f} → {each['test']['errors']:.2f}",
            f"{100 * each['curve']['0']['first_call_works']:.1f} → {100 * each['test']['first_call_works']:.1f}",
            f"{100 * each['recovery']['right']:.1f}",
            f"{each['sampled_tokens'] / 1000:,.0f}",
            str(round(each["cpu_seconds"] / each["steps"])),
        ]
        for each in sorted(lines, key=lambda line: (line["world"], line["method"]))
        if each["environment"] == REAL
    ]
    head = [
        "world",
        "method",
        "accuracy before training, %",
        "after, %",
        "failed calls",
        "first call works, %",
        "recovery, %",
        "tokens sampled, thousands",
        "CPU s per step",
    ]
    return table(head, rows) if rows else NOTHING


def _rates(lines: Sequence[Line]) -> str:
    """Return accuracy by learning rate in the world that it is chosen in, where more than one has run."""
    rows = []
    for environment in WITH_OTHERS:
        for method in METHODS:
            cells = [_mean(lines, environment, method, rate, (TUNING,)) for rate in RATES]
            if len(list(filter(None, cells))) > 1:
                rows.append([f"*{environment}*", METHODS[method].label, *cells])
    return table(["environment", "method", *(f"{rate:.1e}" for rate in RATES)], rows) if rows else NOTHING


def _chosen(lines: Sequence[Line], plan: Plan, methods: Iterable[str], worlds: Sequence[int]) -> str:
    """Return what was compared in development worlds at the rates of the plan."""
    rows = []
    for method in methods:
        cells = [_mean(lines, each, method, plan.rate(each, method), worlds) for each in ENVIRONMENTS]
        if any(cells):
            rows.append([METHODS[method].label, *cells])
    return table(["method", *(f"*{each}*" for each in ENVIRONMENTS)], rows) if rows else NOTHING


def _mean(lines: Sequence[Line], environment: str, method: str, rate: float, worlds: Sequence[int]) -> str:
    """Return the mean accuracy at the end and the area under the curve, with the number of runs if there are more."""
    some = [
        each
        for each in lines
        if each["world"] in worlds
        and (each["environment"], each["method"], each["rate"]) == (environment, method, rate)
    ]
    if not some:
        return ""
    end = fmean(each["test"]["accuracy"] for each in some)
    runs = f" ({len(some)})" if len(worlds) > 1 else ""
    return f"{100 * end:.1f} / {100 * fmean(map(area, some)):.1f}{runs}"
