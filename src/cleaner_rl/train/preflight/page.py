"""Draws the page of a preflight: the verdict, and a row for each question."""

from __future__ import annotations

from html import escape

from cleaner_rl.train.preflight.findings import Finding, Preflight, Verdict

WORDS = {
    Verdict.OK: "Ready: nothing speaks against starting this run here.",
    Verdict.WARNING: "Ready with warnings: read them before you start.",
    Verdict.FAILED: "Not ready: change what is marked, and run the preflight again.",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2128; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
.verdict { font-size: 1.1rem; padding: .6rem 1rem; border-radius: .4rem; background: #f3f4f6; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid #d8dee4; padding: .6rem .5rem; vertical-align: top; }
td.name { white-space: nowrap; font-weight: 600; }
.ok { color: #1a7f37; } .warning { color: #9a6700; } .failed { color: #cf222e; } .skipped { color: #6e7781; }
.change { color: #cf222e; } .figures { color: #57606a; font: 13px/1.4 ui-monospace, monospace; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } .verdict { background: #161b22; } td { border-color: #30363d; }
  .ok { color: #3fb950; } .warning { color: #d29922; } .failed, .change { color: #f85149; } .figures { color: #8b949e; }
}
"""


def html(found: Preflight) -> str:
    """Return the page, which needs no other file."""
    rows, title = "\n".join(map(_row, found.findings)), f"Preflight of {escape(found.recipe)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        f'<p class="verdict {found.verdict}">{WORDS[found.verdict]}</p>\n'
        f"<table>\n{rows}\n</table>\n<p>Two real steps ran in <code>{escape(found.folder)}</code>; "
        f"<code>cleaner view</code> shows their rollouts.</p></body></html>\n"
    )


def _row(finding: Finding) -> str:
    figures = " · ".join(f"{escape(name)} {value:.4g}" for name, value in finding.figures.items())
    change = f'<div class="change">{escape(finding.change)}</div>' if finding.change else ""
    return (
        f'<tr><td class="name">{escape(finding.name)}</td><td class="{finding.verdict}">{finding.verdict}</td>'
        f'<td>{escape(finding.words)}{change}<div class="figures">{figures}</div></td></tr>'
    )
