"""What an evaluation found, for machines (JSON), for a paper (Markdown) and for people (one HTML page with plots).

- `words`, `tables`: figures in words, the same in every form · `markdown`, `page`, `plots`: the forms.
- `compared`: two evaluations side by side · `regraded`: what grading again changed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from cleaner_rl.evaluate.comparison import Comparison
from cleaner_rl.evaluate.grade_changes import Regraded
from cleaner_rl.evaluate.report import compared, markdown, page, regraded, tables, words
from cleaner_rl.evaluate.results import Evaluation

__all__ = ["comparison_text", "regraded_text", "summary_text", "write_comparison", "write_report"]


def summary_text(evaluation: Evaluation) -> str:
    """Return the scores of an evaluation as a table, with what was left out of them."""
    scores = markdown.table(tables.scores(evaluation))
    gains = tables.repair_differences(evaluation)
    repair = f"Repair on minus repair off:\n\n{markdown.table(gains)}\n\n" if gains.rows else ""
    faults = evaluation.faults
    most = "".join(f"; most frequent fault: {reason}" for reason, _ in faults.most_common(1))
    left_out = f"Samples left out of all figures: {faults.total():,}{most}. {words.LEFT_OUT}\n\n" if most else ""
    return f"{scores}\n\n{repair}{left_out}{words.CLAIM.capitalize()}."


def comparison_text(comparison: Comparison) -> str:
    """Return a comparison as Markdown."""
    return compared.markdown(comparison)


def regraded_text(found: Regraded) -> str:
    """Return what `regrade` changed, task by task, for the terminal."""
    return regraded.text(found)


def write_report(evaluation: Evaluation, folder: Path) -> None:
    """Write `results.json`, `report.md` and `report.html`."""
    _write(folder / "results.json", json.dumps(evaluation.to_json(), indent=1, ensure_ascii=False) + "\n")
    _write(folder / "report.md", markdown.markdown(evaluation))
    _write(folder / "report.html", page.page(evaluation))


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Write `comparison.json`, `comparison.md` and `comparison.html`."""
    _write(folder / "comparison.json", json.dumps(comparison.to_json(), indent=1, ensure_ascii=False) + "\n")
    _write(folder / "comparison.md", compared.markdown(comparison))
    _write(folder / "comparison.html", compared.page(comparison))


def _write(path: Path, text: str) -> None:
    """A whole file or none: who reads while we write sees the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
