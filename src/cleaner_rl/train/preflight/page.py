"""Draws the page of a preflight: the verdict, and a row for each question, those that failed first."""

from __future__ import annotations

from collections import Counter
from html import escape

from cleaner_rl.train.preflight.findings import Finding, Preflight, Verdict
from cleaner_rl.view import html_page

WORDS = {
    Verdict.OK: "Ready: this run can be started here.",
    Verdict.WARNING: "Ready with warnings: read them before you start.",
    Verdict.FAILED: "Not ready: change what failed, and run the preflight again.",
}
ORDER = (Verdict.FAILED, Verdict.WARNING, Verdict.OK, Verdict.SKIPPED)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2128;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
.verdict { padding: .6rem 1rem; border-radius: .4rem; background: #f3f4f6; border-left: .3rem solid; }
.verdict b { font-size: 1.1rem; font-weight: 600; display: block; }
.verdict span { color: #57606a; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid #d8dee4; padding: .6rem .5rem; vertical-align: top; }
td.name, td.verdict-of { white-space: nowrap; }
td.name { font-weight: 600; }
td.said { width: 100%; }
tr.failed { background: #fff1f0; } tr.warning { background: #fff8e5; }
.ok { color: #1a7f37; } .warning { color: #9a6700; } .failed { color: #cf222e; } .skipped { color: #57606a; }
tr.ok, tr.warning, tr.failed, tr.skipped { color: inherit; }
.words { white-space: pre-wrap; }
.figures { color: #57606a; font: 13px/1.5 ui-monospace, monospace; }
.figures span { margin-right: 1.2em; display: inline-block; }
@media (max-width: 40rem) {
  tr { display: flex; flex-wrap: wrap; justify-content: space-between; border-top: 1px solid #d8dee4; }
  td { border: 0; padding: .5rem .5rem 0; } td.said { padding: .1rem .5rem .6rem; }
}
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } .verdict { background: #161b22; } td, tr { border-color: #30363d; }
  tr.failed { background: #2d1214; } tr.warning { background: #2b2111; }
  .ok { color: #3fb950; } .warning { color: #d29922; } .failed { color: #f85149; }
  .skipped, .figures, .verdict span { color: #9198a1; }
}
"""


def html(found: Preflight) -> str:
    """Return the page, which needs no other file."""
    title = f"Preflight of {found.recipe}"
    rows = "\n".join(map(_row, sorted(found.findings, key=lambda each: ORDER.index(each.verdict))))
    counted = Counter(each.verdict for each in found.findings)
    counts = ", ".join(f"{counted[verdict]} {verdict}" for verdict in ORDER if counted[verdict])
    body = (
        f"<h1>{escape(title)}</h1>\n"
        f'<p class="verdict {found.verdict}"><b>{WORDS[found.verdict]}</b><span>{counts}</span></p>\n'
        f"<table>\n{rows}\n</table>\n<p>Two real steps ran in <code>{escape(found.folder)}</code>. "
        f"<code>cleaner view {escape(found.folder)}</code> shows their rollouts.</p>"
    )
    return html_page(title, body, STYLE)


def _row(finding: Finding) -> str:
    figures = "".join(f"<span>{escape(name)} {value:.3g}</span> " for name, value in finding.figures.items())
    change = f"<div><b>What to do:</b> {escape(finding.change)}</div>" if finding.change else ""
    return (
        f'<tr class="{finding.verdict}"><td class="name">{escape(finding.name)}</td>'
        f'<td class="verdict-of {finding.verdict}">{finding.verdict}</td>'
        f'<td class="said"><div class="words">{escape(finding.words)}</div>{change}'
        f'<div class="figures">{figures}</div></td></tr>'
    )
