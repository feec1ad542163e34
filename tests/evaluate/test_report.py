from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cleaner_rl.evaluate import Evaluation, Repair, read_results, summary_text
from cleaner_rl.evaluate.bootstrap import Estimate
from cleaner_rl.evaluate.report import markdown, page, plots, words, write_report
from cleaner_rl.evaluate.results import RecoveryResult
from cleaner_rl.evaluate.scores import score, score_set
from tests.evaluate.builders import evaluation, sample, simulated

VOID = {"meta", "link", "br", "path", "use", "rect", "img"}


class Checker(HTMLParser):
    """Whether tags are closed in order, ids are unique, and nothing is asked of the outside."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.asked: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href", "action") and not str(value).startswith("#"):
                self.asked.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    assert not checker.open
    assert len(set(checker.ids)) == len(checker.ids)
    assert not checker.asked
    assert not re.search(r"url\((?!#)|@import|<script", html)
    return checker


def whole() -> Evaluation:
    """An evaluation with everything in it."""
    run = score(simulated(20, 2))
    extra = {"retried": Estimate(0.9, 0.8, 1.0, 20), "ran_next": Estimate(0.5, 0.4, 0.6, 20)}
    run = replace(run, figures={**run.figures, **extra}, faults={"node gone": 3})
    return replace(evaluation(), recovery=RecoveryResult(run, {"syntax": run, "lost_state": run}))


def test_the_page_is_whole_and_asks_nobody_for_anything() -> None:
    text = checked(page.page(whole())).text
    assert "pass@1, repair off" in text
    assert "lost state" in text
    assert "node gone" in text


def test_the_page_forbids_the_browser_to_load_anything() -> None:
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page.page(evaluation(("aime24",)))


def test_names_from_outside_are_text_on_the_page() -> None:
    hostile = '<img src="x" onerror="alert(1)">$x^2$'
    found = replace(evaluation((hostile,)), model=hostile, settings={hostile: hostile})
    assert checked(page.page(found)).text.count("onerror") >= 4


def test_the_same_results_give_the_same_page() -> None:
    assert page.page(whole()) == page.page(whole())


def test_the_claim_is_repair_off_and_says_so() -> None:
    off = [sample(f"p{n}", 0, n < 2) for n in range(8)]
    on = [sample(f"p{n}", 0, True) for n in range(8)]
    found = Evaluation("m", {}, (score_set("set", {Repair.OFF: off, Repair.ON: on}, 1),))
    html, text = page.page(found), markdown.markdown(found)
    big = re.search(r'<div class="big">([^<]*)<', html)
    assert big is not None
    assert big[1].strip() == "25.0"
    assert "repair off" in text.lower()
    assert "| set | 8 | 1 | 25.0 [" in text


def test_bounds_and_endings_are_in_every_form_of_the_report() -> None:
    judged = [sample("a", 0, True, stop_reason="answered"), sample("b", 0, False, stop_reason="token_limit")]
    fault = sample("b", 1, None, fault="node gone")
    found = Evaluation("m", {}, (score_set("set", {Repair.OFF: [*judged, fault]}, 2),))
    text, html = markdown.markdown(found), page.page(found)
    assert "| 50.0 to 75.0 |" in text.replace("bounds", "")
    assert "| set | repair off | 1 (33.3 %) | 1 (33.3 %) | 1 (33.3 %) |" in text
    assert "| set |  | answered | token limit | left out (fault) |" in text
    assert "50.0 to 75.0" in html
    assert "token limit" in html
    assert "50.0 to 75.0" in summary_text(found)
    whole = Evaluation("m", {}, (score_set("set", {Repair.OFF: judged}, 1),))
    assert "bounds" not in markdown.markdown(whole).lower()


def test_there_is_no_empty_plot_and_no_legend_of_what_was_not_run() -> None:
    some = [sample(f"p{n}", 0, n > 1) for n in range(4)]
    html = page.page(Evaluation("m", {}, (score_set("set", {Repair.OFF: some}, 1),)))
    assert html.count("<svg") == 1, "pass@1 alone: no call failed, and there is one k"
    assert "repair on</text>" not in html
    nothing = Evaluation("m", {}, (score_set("set", {Repair.OFF: [sample("a", 0, None, fault="gone")]}, 1),))
    assert "<svg" not in page.page(nothing)


def test_squares_and_cards_are_labelled() -> None:
    some = [sample("p/1", n, n == 0) for n in range(4)]
    html = page.page(Evaluation("m", {}, (score_set("set", {Repair.OFF: some}, 4),)))
    assert 'title="p/1: 1 of 4">25</i>' in html
    card = html[html.index('<div class="card">') : html.index("<h2>Scores")]
    assert "pass@1, repair off" in card
    assert "1 problem, 4 samples each" in card


@pytest.mark.parametrize("repair", list(Repair))
def test_one_way_of_running_is_enough(repair: Repair) -> None:
    found = Evaluation("m", {}, (score_set("set", {repair: simulated(5, 1)}, 1),))
    checked(page.page(found))
    assert "difference" not in markdown.markdown(found)


def test_nothing_but_faults_is_still_a_report() -> None:
    broken = [sample("p", 0, None, fault="node gone")]
    found = Evaluation("m", {}, (score_set("set", {Repair.OFF: broken}, 1),))
    assert "node gone" in checked(page.page(found)).text
    assert "| node gone | 1 |" in markdown.markdown(found)


def test_problems_that_faults_took_are_in_the_count() -> None:
    part = [sample("p0", 0, True), sample("p1", 0, None, fault="node gone")]
    both = [sample("p0", 0, True), sample("p1", 0, True)]
    for scored in (score_set("set", {Repair.OFF: part}, 1), score_set("set", {Repair.OFF: part, Repair.ON: both}, 1)):
        found = Evaluation("m", {}, (scored,))
        assert "| set | 1 of 2 | 1 |" in markdown.markdown(found)
        assert "1 of 2 problems" in checked(page.page(found)).text
    assert "| set | 2 | 1 |" in markdown.markdown(Evaluation("m", {}, (score_set("set", {Repair.OFF: both}, 1),)))


def with_a_fault_in_all_but_one(problems: int, samples: int) -> Evaluation:
    """One problem has all its samples; the others lost one each, and are mostly right."""
    judged = [sample(f"p{n}", k, n > 0) for n in range(problems) for k in range(samples - (n > 0))]
    faults = [sample(f"p{n}", samples, None, fault="node gone") for n in range(1, problems)]
    return Evaluation("m", {}, (score_set("set", {Repair.OFF: [*judged, *faults]}, samples),))


def test_pass_at_k_of_fewer_problems_says_of_how_many() -> None:
    found = with_a_fault_in_all_but_one(30, 16)
    row = markdown.markdown(found).split("## pass@k")[1].split("\n| set ")[2].splitlines()[0]
    assert row.endswith("| 0.0 (1 of 30 problems) |")
    assert row.count("of 30 problems") == 1, "those with 8 samples or fewer rest on all problems"


def test_the_plot_of_pass_at_k_leaves_out_what_rests_on_fewer_problems() -> None:
    drawn = checked(plots.passing(with_a_fault_in_all_but_one(5, 4).sets[0])).text.split()
    assert "2" in drawn
    assert "4" not in drawn


def test_all_three_files_are_written(tmp_path: Path) -> None:
    found = whole()
    write_report(found, tmp_path / "new")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"results.json", "report.md", "report.html"}
    assert read_results(tmp_path / "new") == found
    assert json.loads((tmp_path / "new" / "results.json").read_text())["model"] == found.model


def test_every_table_of_the_paper_has_as_many_cells_in_each_row() -> None:
    widths: list[set[int]] = [set()]
    for line in markdown.markdown(whole()).splitlines():
        if line.startswith("|"):
            widths[-1].add(line.count(" | "))
        elif widths[-1]:
            widths.append(set())
    assert all(len(width) <= 1 for width in widths)


def test_numbers_in_words() -> None:
    assert words.whole("pass@1", Estimate(0.631, 0.55, 0.702)) == "63.1 [55.0, 70.2]"
    assert words.whole("sampled", Estimate(7012.4, 6900, 7100.2)) == "7,012 [6,900, 7,100]"
    assert words.whole("errors_first", Estimate(0.5)) == "0.50"
    assert words.whole("latency", Estimate(None)) == "–"
    assert words.signed(-0.021) == "−2.1"
    assert words.signed(0.0001) == "0.0"
