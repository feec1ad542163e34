"""Two evaluations side by side, for a paper and for people."""

from __future__ import annotations

from html import escape

from cleaner_rl.evaluate.comparison import Comparison
from cleaner_rl.evaluate.report import markdown as set_in_markdown
from cleaner_rl.evaluate.report import page as set_in_html
from cleaner_rl.evaluate.report import plots, tables, words

HEADINGS = {
    "sets": "pass@1, repair off (to report)",
    "repaired": "pass@1, repair on",
    "recovery": "injected failures, recovered from",
}
THICK = "thick: these problems, thin: problems at large; to the right is better"
READING = (
    f"{words.level()} intervals, over the problems that both have. {words.DIFFERENCES} The first is what a comparison "
    "of two models asks; quote the second for a claim about the models in general. *p* is the p-value of a two-sided "
    "paired sign-flip test, not corrected for the number of rows."
)


def markdown(comparison: Comparison) -> str:
    """The comparison for a paper, and for the terminal."""
    parts = [f"# {comparison.after} against {comparison.before}", READING]
    for name, heading in HEADINGS.items():
        if found := getattr(comparison, name):
            parts += [
                f"## {heading.capitalize() if name == 'recovery' else heading}",
                set_in_markdown.table(tables.differences(found)),
            ]
    if comparison.notes:
        parts += ["## What differs between the two", "\n".join(f"- {note}" for note in comparison.notes)]
    return "\n\n".join(parts) + "\n"


def page(comparison: Comparison) -> str:
    """The comparison as one page."""
    title = f"{comparison.after} against {comparison.before}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="muted">{escape(READING.replace("*p*", "p"))}</p>']
    for name, heading in HEADINGS.items():
        if found := getattr(comparison, name):
            plot = set_in_html.figure("Difference", THICK, plots.gains(heading, found))
            parts += [
                f"<h2>{escape(heading)}</h2>",
                set_in_html.table(tables.differences(found)),
                set_in_html.plots_row(plot),
            ]
    if comparison.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
        parts += ["<h2>What differs between the two</h2>", f"<ul>{notes}</ul>"]
    return set_in_html.document(title, "\n".join(parts))
