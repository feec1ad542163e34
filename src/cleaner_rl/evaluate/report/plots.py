"""Plots as inline SVG: drawn by matplotlib, coloured by the page, so that they follow its light and dark.

Colours are drawn as stand-ins that no plot uses otherwise, then replaced by the page's variables. Text stays text. The
same results give the same bytes. Where there is nothing to draw, there is no plot: the text is empty.

Limits: needs matplotlib, from the extra `eval`; loaded when the first plot is drawn.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleaner_rl.evaluate.bootstrap import Estimate
from cleaner_rl.evaluate.paired import Difference
from cleaner_rl.evaluate.report import words
from cleaner_rl.evaluate.results import Evaluation, RecoveryResult, Repair, SetResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID, OFF, ON, PAPER = "#010203", "#010204", "#010205", "#010206", "#010207", "#010208"
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "line", OFF: "off", ON: "on", PAPER: "card"}
COLOURS = {Repair.OFF: OFF, Repair.ON: ON}
WIDTH = 4.6
"""Inches, for all: about a phone's width, so that text keeps its size there; wider pages put plots side by side."""
STYLE: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
}


def scores(evaluation: Evaluation) -> str:
    """pass@1 of every set with its interval, repair off and on."""
    rows = [
        (each.name, {repair: run.figures.get("pass@1") for repair, run in each.runs.items()})
        for each in evaluation.sets
    ]
    return _dots("pass@1 by set", rows) if any(found for _, runs in rows for found in runs.values()) else ""


def passing(each: SetResult) -> str:
    """pass@k of one set against k, where all problems have k samples: else a line would go on with other problems."""
    lines = {
        repair: [
            (int(name[5:]), found)
            for name, found in run.figures.items()
            if name.startswith("pass@") and found.problems == len(run.problems)
        ]
        for repair, run in each.runs.items()
    }

    if not any(len(known) > 1 for known in lines.values()):
        return ""

    def draw(axes: Axes) -> None:
        for repair, known in lines.items():
            colour = COLOURS[repair]
            axes.plot(
                [k for k, _ in known],
                [_percent(found.value) for _, found in known],
                "o-",
                color=colour,
                ms=4,
                lw=1.6,
                label=words.REPAIR[repair],
            )
            ends = [(k, found) for k, found in known if found.low is not None]
            low, high = ([_percent(getattr(found, end)) for _, found in ends] for end in ("low", "high"))
            axes.fill_between([k for k, _ in ends], low, high, color=colour, alpha=0.14, lw=0)
        axes.set_xscale("log", base=2)
        ks = sorted({k for known in lines.values() for k, _ in known})
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.minorticks_off()
        axes.set(xlabel="k samples", ylabel="pass@k, %", ylim=(0, 100))
        axes.grid(axis="y")
        axes.legend(loc="lower right")

    return _svg(f"pass@k of {each.name}", draw, 2.7)


def errors(evaluation: Evaluation) -> str:
    """Failed calls per trajectory: as the model made them, and as they are in the final history."""
    bars = [
        (f"{each.name}\n{words.REPAIR[repair]}", repair, run)
        for each in evaluation.sets
        for repair, run in each.runs.items()
    ]

    if not any((found := run.figures.get("errors_first")) and found.value for _, _, run in bars):
        return ""

    def draw(axes: Axes) -> None:
        for place, (_, repair, run) in enumerate(bars):
            for shift, name, alpha in ((-0.18, "errors_first", 0.35), (0.18, "errors_residual", 1.0)):
                found = run.figures.get(name)
                if found is None or found.value is None:
                    continue
                axes.barh(place + shift, found.value, 0.32, color=COLOURS[repair], alpha=alpha, lw=0)
                if found.low is not None and found.high is not None:
                    axes.plot([found.low, found.high], [place + shift] * 2, color=INK, lw=1)
        axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
        axes.set(xlabel="failed calls per trajectory: pale before repair, full after it", xlim=(0, None))
        axes.invert_yaxis()
        axes.grid(axis="x")

    return _svg("Failed calls per trajectory", draw, 0.7 + 0.55 * len(bars))


def recovery(result: RecoveryResult) -> str:
    """How often the model gets over a failure that was put in, by kind."""
    kinds = [*result.kinds.items(), ("all kinds", result.overall)]
    if not result.overall.figures:
        return ""

    def draw(axes: Axes) -> None:
        for place, (_, run) in enumerate(kinds):
            for shift, name, hollow in ((-0.14, "recovery", False), (0.14, "pass@1", True)):
                _dot(axes, place + shift, run.figures.get(name), OFF, hollow=hollow)
        axes.plot([], [], "o", color=OFF, ms=6, label="a later call ran")
        axes.plot([], [], "o", color=OFF, mfc=PAPER, ms=6, label="the answer was right")
        axes.set_yticks(range(len(kinds)), [name.replace("_", " ") for name, _ in kinds])
        axes.set(xlabel="%", xlim=(-2, 102))
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    return _svg("Recovery by kind of failure", draw, 0.9 + 0.36 * len(kinds))


def gains(title: str, found: Mapping[str, Difference]) -> str:
    """Differences of two evaluations: thick the interval for these problems, thin the one for problems at large."""

    def draw(axes: Axes) -> None:
        for place, each in enumerate(found.values()):
            if each.low is not None and each.high is not None:
                axes.plot([_percent(each.low), _percent(each.high)], [place, place], color=OFF, lw=1, alpha=0.5)
            _dot(axes, place, Estimate(each.value, each.here_low, each.here_high), OFF)
        axes.axvline(0, color=MUTED, lw=1)
        axes.set_yticks(range(len(found)), list(found))
        axes.set(xlabel="percent points")
        axes.invert_yaxis()
        axes.margins(y=0.5 / max(1, len(found)) + 0.1)
        axes.grid(axis="x")

    return _svg(title, draw, 0.8 + 0.4 * len(found))


def _dots(title: str, rows: Sequence[tuple[str, Mapping[Repair, Estimate | None]]]) -> str:
    def draw(axes: Axes) -> None:
        for place, (_, runs) in enumerate(rows):
            for repair, found in runs.items():
                shift = 0.0 if len(runs) == 1 else -0.14 if repair is Repair.OFF else 0.14
                _dot(axes, place + shift, found, COLOURS[repair], hollow=repair is Repair.ON)
        shown = {repair for _, runs in rows for repair in runs}
        if Repair.OFF in shown:
            axes.plot([], [], "o", color=OFF, ms=6, label="repair off (to report)")
        if Repair.ON in shown:
            axes.plot([], [], "o", color=ON, mfc=PAPER, ms=6, label="repair on")
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.set(xlabel="pass@1, %", xlim=(-2, 102), ylim=(len(rows) - 0.5, -0.5))
        axes.grid(axis="x")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    return _svg(title, draw, 1.1 + 0.45 * len(rows))


def _dot(axes: Axes, place: float, found: Estimate | None, colour: str, *, hollow: bool = False) -> None:
    if found is None or found.value is None:
        return
    if found.low is not None and found.high is not None:
        axes.plot([_percent(found.low), _percent(found.high)], [place, place], color=colour, lw=2, alpha=0.5)
    axes.plot(_percent(found.value), place, "o", color=colour, mfc=PAPER if hollow else colour, ms=6)


def _percent(share: float | None) -> float:
    return float("nan") if share is None else 100 * share


def _svg(title: str, draw: Callable[[Axes], None], height: float) -> str:
    """Draw, and hand the picture over as an element for a page."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("the page's plots need matplotlib: pip install 'cleaner-rl[eval]'") from error
    with mpl.rc_context({**STYLE, "svg.hashsalt": title}):
        figure = Figure((WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        axes.tick_params(length=0)
        draw(axes)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _of_the_page(file.getvalue(), title)


def _of_the_page(svg: str, title: str) -> str:
    """The same picture without a width, an id or a style that would meet others in the page."""
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view is not None
    body = svg[svg.index(">", view.end()) + 1 :]
    label = html.escape(title, quote=True)
    return f'<svg {view[0]} role="img" aria-label="{label}" xmlns:xlink="http://www.w3.org/1999/xlink">{body.strip()}'
