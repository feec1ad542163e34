"""The report for people: one HTML page that asks nobody for anything, light or dark as its reader likes, phone or desk.

Everything from outside (model, sets, problems, settings) is escaped. There is no script in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from cleaner_rl.evaluate.report import plots, tables, words
from cleaner_rl.evaluate.results import Evaluation, Repair, RunScore, SetResult

CSS = Path(__file__).with_name("page.css")
CONTENT = "default-src 'none'; style-src 'unsafe-inline'"
"""The page's own promise to the browser: nothing is loaded, nothing is run."""
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


def page(evaluation: Evaluation) -> str:
    """The whole page."""
    return document(f"{evaluation.model}: evaluation", "\n".join(_parts(evaluation)))


def document(title: str, body: str) -> str:
    """A page around a body."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT}">\n'
        f"<style>\n{CSS.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def table(of: tables.Table, *, prose: bool = False) -> str:
    """One table, which scrolls where it is too wide. An interval is set back behind its value."""
    head = "".join(f"<th>{escape(each)}</th>" for each in of.head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in of.rows)
    kind = ' class="words"' if prose else ""
    return f'<div class="scroll"><table{kind}><tr>{head}</tr>{body}</table></div>'


def figure(title: str, note: str, svg: str) -> str:
    """One plot."""
    return f"<figure><figcaption><b>{escape(title)}</b> {escape(note)}</figcaption>{svg}</figure>"


def _parts(evaluation: Evaluation) -> Iterator[str]:
    yield f"<h1>{escape(evaluation.model)}</h1>"
    yield f'<p class="muted">{escape(words.CLAIM.capitalize())}. Brackets hold {words.level()} intervals.</p>'
    yield f'<div class="cards">{"".join(map(_card, evaluation.sets))}</div>'
    yield "<h2>Scores</h2>"
    yield table(tables.scores(evaluation))
    yield f"<p>{words.DIFFERENCES}</p>" if any(each.difference for each in evaluation.sets) else ""
    yield f'<div class="plots">{"".join(_score_plots(evaluation))}</div>'
    if len(words.passing_names(evaluation)) > 1:
        yield table(tables.passing(evaluation))
    yield "<h2>How rollouts ended</h2>"
    yield table(tables.endings(evaluation))
    yield f"<h2>Tools</h2>{TOOLS}"
    yield table(tables.tools(evaluation))
    failing = figure("Failed calls", "per trajectory", plots.errors(evaluation))
    yield f'<div class="plots">{failing}</div>'
    yield "<h2>Cost</h2><p>Per trajectory. Latency is wall time, with as many rollouts at once as the settings say.</p>"
    yield table(tables.cost(evaluation))
    if evaluation.recovery is not None:
        yield (
            "<h2>Recovery</h2><p>Each trajectory begins with a failed call that the model did not make, with the real "
            "feedback to it. From there on it is alone: repair is off. The failures are the same for every model.</p>"
        )
        plot = figure("Recovery", "by kind of failure", plots.recovery(evaluation.recovery))
        yield f'<div class="plots">{plot}</div>'
        yield table(tables.recovery(evaluation.recovery))
    yield "<h2>Problems</h2><p>Each square is one problem with repair off, the darker the more samples are right.</p>"
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
    lines.append(
        f'<p class="muted">{words.problems(each)} problems, {each.samples} samples each, {judged:,} judged</p>'
    )
    return f'<div class="card">{"".join(lines)}</div>'


def _headline(run: RunScore) -> str:
    found = run.figures.get("pass@1")
    value, ends = words.value("pass@1", _value(run)), words.interval("pass@1", found)
    left_out = f'<p class="muted">{words.bounds(run)} with what is left out as wrong, as right</p>'
    return (
        f'<div class="big">{value} <small>%</small></div><p class="muted">{escape(ends)}</p>'
        f"{left_out if run.bounds else ''}{TAG}"
    )


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
    run = each.runs.get(Repair.OFF) or next(iter(each.runs.values()))
    squares = "".join(
        f'<i style="--p:{100 * float(rate.share):.0f}" title="{escape(problem)}: {rate.right} of {rate.judged}"></i>'
        for problem, rate in run.problems.items()
    )
    return f'<p class="muted">{escape(each.name)}</p><div class="grid">{squares}</div>'


def _cell(text: str) -> str:
    if text in words.REPAIR.values():
        return f'<td class="way">{text}</td>'
    value, bracket, rest = text.partition(" [")
    return f"<td>{escape(value)} <i>[{escape(rest)}</i></td>" if bracket else f"<td>{escape(text)}</td>"
