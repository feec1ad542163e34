"""The report for people: one HTML page that asks nobody for anything, light or dark as its reader likes, phone or desk.

Everything from outside (model, sets, problems, settings) is escaped. There is no script in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from cleaner_rl import view
from cleaner_rl.evaluate.report import plots, tables, words
from cleaner_rl.evaluate.results import Evaluation, Repair, RunScore, SetResult

CSS = Path(__file__).with_name("page.css")
HOW = f"""
<p><b>pass@1</b> is the mean over problems of the share of right answers; <b>pass@k</b> the unbiased estimate of the
chance that one of k samples is right. Intervals cover {words.level()}. They come from a bootstrap over problems, with
all of its samples, and with one unseen problem that is all right, or all wrong. <b>maj@k</b> is how often the most
frequent of k answers is right, ties drawn by lot. <b>Differences</b> are taken problem by problem. For these problems,
only samples vary; for problems at large, problems vary too (paired t). <i>p</i> is the p-value of a two-sided sign-flip
test over problems. A <b>fault</b> is a failure of the infrastructure: it does not count as a wrong answer, and is left
out of all figures. {words.LEFT_OUT}</p>
"""
TOOLS = "<p>Per trajectory. <i>Before repair</i> counts all failed calls, <i>after repair</i> those that are left.</p>"
TAG = '<p><span class="tag">pass@1, repair off</span></p>'
SQUARES = (
    "<p>Each square is one problem, with its pass@1 in percent; its name and its samples show when you point at it. "
    "Repair is off, unless the set was run with repair on only.</p>"
)


def page(evaluation: Evaluation) -> str:
    """The whole page."""
    return document(f"{evaluation.model}: evaluation", "\n".join(_parts(evaluation)))


def document(title: str, body: str) -> str:
    """A page around a body."""
    return view.html_page(title, f"<main>\n{body}\n</main>", CSS.read_text(encoding="utf-8"))


def table(of: tables.Table, *, prose: bool = False) -> str:
    """One table, which scrolls where it is too wide. An interval is set back behind its value."""
    head = "".join(f"<th>{escape(each)}</th>" for each in of.head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in of.rows)
    kind = ' class="words"' if prose else ""
    return f'<div class="scroll"><table{kind}><tr>{head}</tr>{body}</table></div>'


def figure(title: str, note: str, svg: str) -> str:
    """One plot; nothing if there is nothing to draw."""
    return svg and f"<figure><figcaption><b>{escape(title)}</b> {escape(note)}</figcaption>{svg}</figure>"


def plots_row(*figures: str) -> str:
    """Plots side by side, where there is room; nothing without plots."""
    return f'<div class="plots">{"".join(figures)}</div>' if any(figures) else ""


def _parts(evaluation: Evaluation) -> Iterator[str]:
    yield f"<h1>{escape(evaluation.model)}</h1>"
    yield f'<p class="muted">{escape(words.CLAIM.capitalize())}. Brackets hold {words.level()} intervals.</p>'
    yield f'<div class="cards">{"".join(map(_card, evaluation.sets))}</div>'
    yield "<h2>Scores</h2>"
    yield table(tables.scores(evaluation))
    yield f"<p>{words.LEFT_OUT}</p>" if evaluation.faults else ""
    yield plots_row(*_score_plots(evaluation))
    gains = tables.repair_differences(evaluation)
    if gains.rows:
        yield "<h2>Repair on minus repair off</h2>"
        yield f"<p>{words.DIFFERENCES}</p>"
        yield table(gains)
    if len(words.passing_names(evaluation)) > 1:
        yield "<h2>pass@k</h2>"
        yield table(tables.passing(evaluation))
    if words.passing_names(evaluation, "maj"):
        yield "<h2>maj@k</h2>"
        yield table(tables.majority(evaluation))
    yield "<h2>How rollouts ended</h2>"
    yield table(tables.endings(evaluation))
    yield f"<h2>Tools</h2>{TOOLS}"
    yield table(tables.tools(evaluation))
    yield plots_row(figure("Failed calls", "per trajectory", plots.errors(evaluation)))
    yield "<h2>Cost</h2><p>Per trajectory. Latency is wall time, with as many rollouts at once as the settings say.</p>"
    yield table(tables.cost(evaluation))
    if evaluation.recovery is not None:
        yield (
            "<h2>Recovery</h2><p>Each trajectory begins with a failed call that the model did not make, with the real "
            "feedback to it. From there on it is alone: repair is off. The failures are the same for every model.</p>"
        )
        yield plots_row(figure("Recovery", "by kind of failure", plots.recovery(evaluation.recovery)))
        yield table(tables.recovery(evaluation.recovery))
    yield f"<h2>Problems</h2>{SQUARES}"
    yield "".join(map(_squares, evaluation.sets))
    broken = tables.faults(evaluation)
    yield "<h2>Faults</h2>"
    yield table(broken, prose=True) if broken.rows else "<p>None: every sample is in the figures.</p>"
    yield "<h2>Settings</h2>"
    yield (
        "<dl>"
        + "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in tables.settings(evaluation).rows)
        + "</dl>"
    )
    yield f"<footer>{HOW}</footer>"


def _card(each: SetResult) -> str:
    off, on = each.runs.get(Repair.OFF), each.runs.get(Repair.ON)
    lines = [f"<h3>{escape(each.name)}</h3>"]
    if off is not None:
        lines.append(_headline(off))
    if on is not None:
        lines.append(f'<p><span class="on">repair on</span> {words.value("pass@1", _value(on))} %{_gain(each)}</p>')
    judged = sum(rate.judged for run in each.runs.values() for rate in run.problems.values())
    samples = "1 sample" if each.samples == 1 else f"{each.samples} samples"
    lines.append(
        f'<p class="muted">{words.problems(each)} problem{"s" * (each.run != 1)}, {samples} each, {judged:,} judged</p>'
    )
    return f'<div class="card">{"".join(lines)}</div>'


def _headline(run: RunScore) -> str:
    found = run.figures.get("pass@1")
    lines = [TAG, f'<div class="big">{words.value("pass@1", _value(run))} <small>%</small></div>']
    if found is not None and found.low is not None:
        lines.append(f'<p class="muted">{words.level()} interval {escape(words.interval("pass@1", found))}</p>')
    if run.bounds is not None:
        count = sum(run.faults.values())
        left_out = "1 sample" if count == 1 else f"{count:,} samples"
        lines.append(f'<p class="muted">{words.bounds(run)} % with the {left_out} left out as wrong, as right</p>')
    return "".join(lines)


def _gain(each: SetResult) -> str:
    if each.difference is None or each.difference.value is None:
        return ""
    sign = "" if each.difference.p is not None and each.difference.p < 0.001 else "= "
    gain = f"({words.signed(each.difference.value)}, p {sign}{words.chance(each.difference)})"
    return " " + escape(gain.replace(" ", "\N{NO-BREAK SPACE}"))


def _value(run: RunScore) -> float | None:
    found = run.figures.get("pass@1")
    return None if found is None else found.value


def _score_plots(evaluation: Evaluation) -> Iterator[str]:
    yield figure("pass@1", "by set", plots.scores(evaluation))
    if len(words.passing_names(evaluation)) > 1:
        for each in evaluation.sets:
            yield figure(each.name, "pass@k", plots.passing(each))


def _squares(each: SetResult) -> str:
    repair, run = next(iter(each.runs.items()))
    if Repair.OFF in each.runs:
        repair, run = Repair.OFF, each.runs[Repair.OFF]
    squares = "".join(
        f'<i style="--p:{(share := round(100 * rate.share))}" title="{escape(problem)}: {rate.right} of {rate.judged}">'
        f"{share}</i>"
        for problem, rate in run.problems.items()
    )
    return f'<p class="muted">{escape(each.name)}, {words.REPAIR[repair]}</p><div class="grid">{squares}</div>'


def _cell(text: str) -> str:
    if text in words.REPAIR.values():
        return f'<td class="way">{text}</td>'
    value, bracket, rest = text.partition(" [")
    return f"<td>{escape(value)} <i>[{escape(rest)}</i></td>" if bracket else f"<td>{escape(text)}</td>"
