"""Draws curves over seeds: the mean as a line, the range as a band. The same results give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.lab import summary
from benchmarks.lab.methods import BASELINE, METHODS, REQUIRED
from benchmarks.lab.results import Result
from benchmarks.lab.summary import Points, X

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = dict(
    zip(
        (method.name for method in REQUIRED),
        ("#555555", "#0072b2", "#d55e00", "#56b4e9", "#cc79a7", "#e69f00"),
        strict=True,
    )
)
"""Colours that most kinds of colour blindness can tell apart; the baseline is grey."""
OTHERS = tuple(product(("-", "--", ":", "-."), ("#009e73", "#8c6bb1", "#a6761d", "#e7298a", "#7fa61e")))
"""Lines and colours of the other methods."""
GRID = 30
LONGEST = 3
"""A curve is cut at this multiple of the baseline's length, so that the others stay visible."""
Panel: TypeAlias = tuple[str, str, Callable[[Result], Points]]
"""A title, the label of the x axis, and a run's curve."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cleaner",
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def draw(results: Sequence[Result], methods: Sequence[str], path: Path, panels: Sequence[Panel]) -> None:
    """Draw the curves of some methods as one SVG file, three panels per row. `results` are of one environment."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = len(panels) // 3
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 2.6 * rows + 0.6), layout="constrained")
        axes = figure.subplots(rows, 3, squeeze=False)
        runs = {method: [each for each in results if each.run.method == method] for method in methods}
        runs = {method: some for method, some in runs.items() if some}
        for place, (title, x, curve) in zip(axes.flat, panels, strict=True):
            _panel(place, runs, title, x, curve)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        save_svg(figure, path)


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure; the same figure gives the same bytes."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n", encoding="utf-8")


def band(curves: Sequence[Points], count: int = GRID) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the points that all curves reach, with the mean, the lowest and the highest value there."""
    curves = [points for points in curves if points]
    if not curves:
        return [], [], [], []
    begin, end = max(points[0][0] for points in curves), min(points[-1][0] for points in curves)
    places = [begin + (end - begin) * index / count for index in range(count + 1)] if end > begin else [begin]
    columns = [[value for points in curves if (value := _at(points, x)) is not None] for x in places]
    found = [(x, values) for x, values in zip(places, columns, strict=True) if values]
    return (
        [x for x, _ in found],
        [summary.mean(values) for _, values in found],
        [min(values) for _, values in found],
        [max(values) for _, values in found],
    )


def _at(points: Points, x: float) -> float | None:
    return points[0][1] if x == points[0][0] else summary.at(points, min(x, points[-1][0]))


def _accuracy(x: X) -> Callable[[Result], Points]:
    return lambda result: summary.curve(result, "accuracy", x)


def _evaluated(figure: str) -> Callable[[Result], Points]:
    return lambda result: summary.curve(result, figure)


def _trained(figure: str) -> Callable[[Result], Points]:
    return lambda result: summary.smoothed(summary.training_curve(result, figure))


def _recovery(result: Result) -> Points:
    return [(float(step), each["right"]) for step, each in sorted(result.recovery.items())]


def _larger_budget(result: Result) -> Points:
    return [(float(step), each["accuracy"]) for step, each in sorted(result.larger_budget.items())]


PANELS: tuple[Panel, ...] = (
    ("Held-out accuracy", "RL steps", _accuracy(summary.steps)),
    ("Held-out accuracy", "thousand tokens sampled", _accuracy(summary.tokens)),
    ("Held-out accuracy", "minutes of training", _accuracy(summary.minutes)),
    ("First call works (held-out)", "RL steps", _evaluated("first_call_works")),
    ("Failed calls per trajectory (held-out)", "RL steps", _evaluated("errors")),
    ("Failed first attempts (training, smoothed)", "RL steps", _trained("raw_errors")),
    ("Right after a failed first call", "RL steps", _recovery),
    ("Tokens sampled per trajectory (held-out)", "RL steps", _evaluated("length")),
    ("Log-prob gap of edits (training, smoothed)", "RL steps", _trained("logprob_gap")),
)
WITHIN = (PANELS[0], PANELS[1], PANELS[4])
HEADLINE = (PANELS[0], ("Held-out accuracy, larger turn budget", "RL steps", _larger_budget), PANELS[4])


def _panel(
    axes: Axes, runs: dict[str, list[Result]], title: str, x_label: str, curve: Callable[[Result], Points]
) -> None:
    others = iter(OTHERS)
    ends: dict[str, float] = {}
    for method, some in runs.items():
        line, colour = ("-", COLOURS[method]) if method in COLOURS else next(others)
        x, middle, low, high = band([curve(each) for each in some])
        ends[method] = max(x, default=0)
        axes.plot(x, middle, color=colour, ls=line, lw=1.6, label=f"{METHODS[method].label} ({len(some)})")
        if len(some) > 1:
            axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    axes.set_title(title)
    axes.set_xlabel(x_label)
    most = LONGEST * ends.get(BASELINE, 0)
    if 0 < most < max(ends.values()):
        axes.set_xlim(right=most)
        axes.set_xlabel(f"{x_label} (one curve continues to {max(ends.values()):,.0f})")
