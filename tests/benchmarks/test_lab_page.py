"""The page holds what the results say, and nothing else between its marks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from benchmarks.lab.page import MARK, NOTHING, PAGES, blocks, filled, write_pages
from benchmarks.lab.results import Result, read_all
from tests.benchmarks.lab_results import result, rising

RESULTS: list[Result] = [
    *(result("grpo", seed, accuracy=rising(0.8, 60)) for seed in (0, 1, 2)),
    *(result("hindsight", seed, accuracy=rising(0.95, 20)) for seed in (0, 1, 2)),
    *(result("saar", seed, accuracy=rising(0.95, 40)) for seed in (0, 1)),
    result("masked", accuracy=rising(0.5, 60)),
    result("grpo-lr-3e-04", accuracy=rising(0.6, 30), steps=30),
]


def test_the_pages_say_what_the_results_say() -> None:
    found = blocks(read_all())
    marks: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert filled(text, found) == text, "run `python -m benchmarks.lab page`"
        marks += [match[2] for match in MARK.finditer(text)]
        images = re.findall(r"\]\(([^)]*images/[^)]+)\)", text)
        assert all((page.parent / image).exists() for image in images)
    assert sorted(marks) == sorted(found)


def test_without_results_the_page_says_so() -> None:
    found = blocks([])
    assert found["headline"] == found["drift"] == f"{NOTHING}\n"
    assert "0 of" in found["not-run"]


def test_the_headline_names_the_best_and_gives_its_range() -> None:
    headline = blocks(RESULTS)["headline"]
    assert "hindsight on all makes **0.10 (0.10–0.10)** failed calls" in headline
    assert "- **SAAR** needs 0." in headline
    assert not any(words in headline for words in ("Slips", "6 turns", "SmolLM2"))


def test_the_headline_gives_the_best_method_with_a_larger_budget_and_every_method_in_slips() -> None:
    larger = [replace(each, larger_budget=each.evaluation) for each in RESULTS]
    slips = [
        result(method, regime="slips", accuracy=rising(to, 20))
        for method, to in {"grpo": 0.9, "hindsight": 0.85, "saar": 0.7}.items()
    ]
    *_, with_larger_budget, saar, in_slips = blocks([*larger, *slips])["headline"].splitlines()[:-2]
    assert "reach 73.3 % (73.3 %–73.3 %) (GRPO) and 95.0 % (95.0 %–95.0 %) (hindsight on all)" in with_larger_budget
    assert saar.startswith("- **SAAR**")
    assert "of hindsight on all to GRPO at equal tokens is -5.0 points" in in_slips
    assert "; of SAAR, -20.0 points" in in_slips


def test_the_headline_has_a_real_models_word_on_the_best() -> None:
    real = [result(method, accuracy=rising(0.7, 5), steps=5, regime="smollm2") for method in ("grpo", "hindsight")]
    line = blocks([*RESULTS, *real])["headline"].splitlines()[-3]
    assert "over 5 steps (one seed, 64 tasks, standard error about 6 points): 40.0 % → 70.0 % with GRPO" in line


def test_figures_are_told_by_how_many_names_have_changed() -> None:
    row = next(line for line in blocks(RESULTS)["changed-names"].splitlines() if line.startswith("| hindsight on all"))
    assert row == "| hindsight on all | 3 | 95.0 % | 90.0 % | 94.0 % | 80.0 % | 93.0 % | 70.0 % |"


def test_ablations_come_after_the_methods_that_they_change_with_the_same_seed() -> None:
    rows = [line for line in blocks(RESULTS)["ablations"].splitlines() if line.startswith("| ") and " %" in line]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| GRPO", "1"],
        ["| hindsight on all", "1"],
        ["| GRPO, failed turns masked", "1"],
    ]


def test_saars_ablations_have_a_table_of_their_own() -> None:
    saars = result("saar-k1", accuracy=rising(0.7, 60))
    found = blocks([*RESULTS, saars])
    assert "SAAR, K = 1" in found["saar-ablations"]
    assert "SAAR, K = 1" not in found["ablations"]


def test_a_method_without_tools_has_no_first_calls() -> None:
    without = result("no-tool", accuracy=rising(0.4, 60))
    for each in without.evaluation.values():
        del each["first_call_works"]
    found = blocks([*RESULTS, without])
    row = next(line for line in found["ablations"].splitlines() if line.startswith("| no tools"))
    assert row.startswith("| no tools | 1 | 40.0 % | never |")
    assert "no tools" not in found["learning-signal"]


def test_a_real_models_evaluations_are_told_one_by_one() -> None:
    real = result("grpo", accuracy=rising(0.7, 15), steps=15, regime="smollm2")
    row = blocks([real])["smollm2"].splitlines()[2]
    assert row.startswith("| GRPO | 40.0 % → 50.0 % → 60.0 % → 70.0 % |")


def test_what_is_missing_is_named() -> None:
    missing = blocks(RESULTS)["not-run"]
    assert "`saar` (seed 2)" in missing
    assert "`grpo`" not in missing.split("slips")[0]


def test_two_runs_of_one_method_with_one_seed_are_compared() -> None:
    apart = blocks(RESULTS)["agreement"]
    assert "the same at every step" in apart
    assert "over 6 evaluations" in apart


def test_a_page_is_written_with_its_plots(tmp_path: Path) -> None:
    page = tmp_path / "lab.md"
    page.write_text("Before.\n<!-- lab:drift -->\nold\n<!-- /lab:drift -->\nAfter.\n", encoding="utf-8")

    images = tmp_path / "images"
    write_pages([page], RESULTS, images)
    first = page.read_text(encoding="utf-8")
    plot = (images / "lab-drift.svg").read_bytes()
    write_pages([page], RESULTS, images)

    assert first.startswith("Before.\n<!-- lab:drift -->\n| method |")
    assert first.endswith("\n<!-- /lab:drift -->\nAfter.\n")
    assert page.read_text(encoding="utf-8") == first
    assert (images / "lab-drift.svg").read_bytes() == plot
    assert b"Held-out accuracy" in plot
    assert (images / "lab-ablations.svg").exists()
    assert (images / "lab-curve.svg").exists()
