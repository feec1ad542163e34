"""The pages in a real browser: every page, filter, view, link and key; both themes; a phone; hostile content; axe."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from cleaner_rl.trajectory import Edit, RepairMode, RolloutInfo, TokenSpan
from cleaner_rl.view import DEMO, page_from
from cleaner_rl.view import library as views
from cleaner_rl.view.library import Library
from cleaner_rl.view.page import page_of
from tests.view.serving import served
from tests.view.stores import MEGABYTE, broken, clean, grafted, hostile, replaced, write

CHROMIUM = os.environ.get("CLEANER_CHROMIUM") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install it, or set CLEANER_CHROMIUM")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]
PATIENCE = 20_000
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Library, str]]:
    with Library(DEMO, tmp_path_factory.mktemp("cache")) as library:
        library.update()
        with served(library) as url:
            yield library, url


@pytest.fixture(scope="module")
def log(log_library: Library) -> Iterator[tuple[Library, str]]:
    with served(log_library) as url:
        yield log_library, url


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Watch:
    """A page, and all that it shouldn't have done: ask another host, break its policy, raise."""

    def __init__(self, browser: Browser, scheme: str = "light", width: int = 1280, height: int = 900) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.asked: list[str] = []
        self.problems: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert not self.problems
            assert all(url.startswith(("http://127.0.0.1:", "file://", "about:blank")) for url in self.asked)


def edited(library: Library, edits: str, **others: str) -> str:
    rows = library.page({"edits": edits, **others})["rows"]
    return f"#/trajectory?id={quote(rows[0]['id'], safe='')}"


def saar(edit: Edit[TokenSpan] | None) -> Edit[TokenSpan]:
    assert edit is not None
    return replace(edit, mode=RepairMode.SAAR)


def visit(page: Page, address: str) -> None:
    """Load a page anew, whole."""
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("main:not([aria-busy]) > :first-child")).to_be_visible()


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html']} {each['nodes'][0]['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def test_the_overview_draws_two_runs_and_more_when_asked(browser: Browser, demo: tuple[Library, str]) -> None:
    with Watch(browser) as page:
        page.goto(demo[1])
        expect(page.locator("section figure canvas")).to_have_count(8)
        reward = page.locator("figure", has=page.get_by_role("heading", name="Reward", exact=True))
        expect(reward.locator(".legend li")).to_have_count(2)
        page.get_by_role("checkbox", name="Draw grpo").check()
        expect(reward.locator(".legend li")).to_have_count(3)
        expect(page.get_by_role("region", name="Evaluation on toy problems").locator("tbody tr")).to_have_count(3)
        page.get_by_text("Also logged").click()
        expect(page.get_by_role("heading", name="rollouts/turns")).to_be_visible()
        page.get_by_role("link", name="grpo", exact=True).click()
        expect(page.locator(".count")).to_contain_text(f"{demo[0].page({'run': 'grpo'})['total']} trajectories")


def test_the_overview_draws_the_learning_signal_and_rescues(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path / "trajectories", [clean(step=step) for step in (1, 2)])
    figures = {"zero_variance_share": 0.5, "first_call_signal": -0.01, "rescues": 1.0}
    figures |= {"rescue_tries": 3.0, "rescue_tokens": 240.0}
    lines = [{"run": "saar", "step": step, "metrics": figures} for step in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Library(tmp_path, tmp_path / "cache") as library:
        library.update()
        with served(library) as url, Watch(browser) as page:
            page.goto(url)
            for name, *values in (
                ("Zero-variance groups", "0.500"),
                ("First-call signal", "−0.010"),
                ("Rescues", "1", "3"),
                ("Rescue tokens", "240"),
            ):
                drawn = page.locator("section figure", has=page.get_by_role("heading", name=name, exact=True))
                expect(drawn.locator("canvas")).to_have_count(1)
                expect(drawn.locator(".value")).to_have_text(values)
            expect(page.get_by_text("Also logged")).to_have_count(0)


def test_both_views_of_a_rollout_and_a_rescue(browser: Browser, tmp_path: Path, theme: str) -> None:
    told = {"kept": True, "why": "kept", "penalty": None, "advantage": 0.9, "views": ["clean", "recovery"]}
    right = replace(replaced(1), info=RolloutInfo(verdict=told))
    rescue = replace(clean(4), info=RolloutInfo(rescued={"of": 3, "turn": 0}))
    write(tmp_path / "trajectories", [right, clean(2), broken(3), rescue])
    with Library(tmp_path, tmp_path / "cache") as library:
        library.update()
        with served(library) as url, Watch(browser, theme) as page:
            page.goto(f"{url}#/list")
            expect(page.get_by_text("rescue of #3")).to_have_count(1)

            visit(page, url + edited(library, "replace"))
            cards = page.locator("section.turn")
            expect(cards).to_have_count(2)
            lost = page.get_by_text("not in the loss", exact=True)
            expect(lost).to_have_count(0)
            page.get_by_role("radio", name="Loss mask").check(force=True)
            page.get_by_role("radio", name="Recovery view").check(force=True)
            expect(cards).to_have_count(3)
            expect(page.locator(".outline li")).to_have_count(3)
            expect(cards.nth(0)).to_contain_text("not in the loss")
            expect(lost).to_have_count(1)
            expect(page.get_by_text("Trained on: clean and recovery view.")).to_be_visible()
            expect(cards.nth(0).locator(".token.learnt")).to_have_count(0)
            assert cards.nth(1).locator(".token.learnt").count() > 0
            assert serious(page) == []

            # The address holds the view, and a turn of it.
            cards.nth(2).get_by_role("link", name="Turn 2").click()
            expect(page).to_have_url(re.compile("view=recovery"))
            page.reload()
            expect(cards).to_have_count(3)
            page.get_by_role("radio", name="Clean view").check(force=True)
            expect(cards).to_have_count(2)
            assert "view=" not in page.url
            page.get_by_role("radio", name="Text", exact=True).check(force=True)

            page.locator(".siblings a", has_text="#4").click()
            expect(page.locator("#views")).to_have_count(0)
            page.get_by_role("link", name="rescue of #3, turn 0").click()
            expect(page.locator("h1")).to_contain_text("#3")
            page.get_by_role("link", name="rescued by #4").click()
            expect(page.locator("h1")).to_contain_text("#4")
            assert serious(page) == []


def test_many_runs_differ_in_their_lines_and_none_can_be_drawn(browser: Browser, tmp_path: Path) -> None:
    runs = [f"run-{number:02}" for number in range(14)]
    store = write(tmp_path / "store", [clean(step=step, run=run) for run in runs for step in range(2)])
    with Library(store, tmp_path / "cache") as library:
        library.update()
        with served(library) as url, Watch(browser) as page:
            page.goto(url)
            swatches = page.get_by_role("region", name="Table of runs").locator(".swatch")
            expect(swatches).to_have_count(len(runs))
            looks = swatches.evaluate_all("found => found.map((each) => getComputedStyle(each).backgroundImage)")
            assert len(set(looks)) == len(runs)
            assert all("gradient" in look for look in looks)
            for run in runs[-2:]:
                page.get_by_role("checkbox", name=f"Draw {run}").uncheck()
                expect(page.get_by_role("checkbox", name=f"Draw {run}")).not_to_be_checked()
            expect(page.locator("figure")).to_have_count(0)
            page.reload()
            expect(swatches).to_have_count(len(runs))
            expect(page.get_by_role("checkbox", checked=True)).to_have_count(0)


def test_a_log_has_figures_and_no_curves(browser: Browser, tmp_path: Path) -> None:
    with Library(write(tmp_path / "store", [clean(), broken()]), tmp_path / "cache") as library:
        library.update()
        with served(library) as url, Watch(browser) as page:
            page.goto(url)
            errors = page.locator("figure", has=page.get_by_role("heading", name="Failed calls per trajectory"))
            expect(errors.locator(".value")).to_have_text("1")
            expect(page.get_by_role("heading", name="Figures", exact=True)).to_be_visible()
            expect(page.locator("figure canvas")).to_have_count(0)


@pytest.mark.parametrize(
    ("label", "choice", "query"),
    [
        ("Run", "saar + roc", {"run": "saar + roc"}),
        ("Outcome", "not solved", {"outcome": "failed"}),
        ("Edits", "a replacement", {"edits": "replace"}),
        ("A call's status", "timeout", {"status": "timeout"}),
        ("Stop reason", "turn limit", {"stop_reason": "turn_limit"}),
        ("Kept by RoC", "kept", {"kept": "yes"}),
    ],
)
def test_a_filter_shows_what_fits(
    browser: Browser, demo: tuple[Library, str], label: str, choice: str, query: dict[str, str]
) -> None:
    library, url = demo
    with Watch(browser) as page:
        page.goto(f"{url}#/list")
        page.get_by_label(label, exact=True).select_option(label=choice)
        total = library.page(query)["total"]
        assert 0 < total < library.page({})["total"] or label == "Stop reason"
        expect(page.locator(".count")).to_contain_text(f"{total} trajectories" if total != 1 else "1 trajectory")
        page.reload()
        expect(page.get_by_label(label, exact=True).locator("option:checked")).to_have_text(choice)


def test_numbers_text_sorting_and_pages(browser: Browser, demo: tuple[Library, str]) -> None:
    library, url = demo
    everything = f"{library.page({})['total']} trajectories"
    with Watch(browser) as page:
        page.goto(f"{url}#/list")
        page.get_by_text("By task and numbers").click()
        page.get_by_label("Similarity, from").fill("0.95")
        page.get_by_label("Turns, to").fill("3")
        wanted = {"similarity_min": "0.95", "turns_max": "3"}
        expect(page.locator(".count")).to_contain_text(f"{library.page(wanted)['total']} trajectories")
        page.get_by_role("link", name="Clear filters").click()
        expect(page.locator(".count")).to_contain_text(everything)
        page.get_by_role("searchbox").fill("lattice")
        expect(page.locator(".count")).to_contain_text(f"{library.page({'q': 'lattice'})['total']} trajectories")
        page.get_by_role("searchbox").fill("Traceback")
        expect(page.locator(".empty")).to_be_visible()
        page.get_by_label("inside turns too").check()
        expect(page.locator("table.rows tbody tr").first).to_be_visible()
        page.goto(f"{url}#/list")
        expect(page.locator(".count")).to_contain_text(everything)
        page.get_by_role("button", name="Length").click()
        expect(page.get_by_role("columnheader", name="Length")).to_have_attribute("aria-sort", "descending")
        longest = library.page({"sort": "-length"})["rows"][0]["length"]
        expect(page.locator("table.rows tbody tr").first).to_contain_text(f"{longest:,}")
        page.get_by_role("button", name="Next →").click()
        expect(page.locator(".pages")).to_contain_text("51 – 100")


def test_an_edit_is_shown_before_and_after(browser: Browser, demo: tuple[Library, str]) -> None:
    library, url = demo
    with Watch(browser) as page:
        page.goto(url + edited(library, "graft", outcome="solved", sort="-similarity"))
        turn = page.locator("section.turn.edit").first
        expect(turn.locator(".decision")).to_contain_text("the reasoning stayed")
        expect(turn.locator(".decision")).to_contain_text("Similarity")
        expect(turn.locator(".decision")).to_contain_text("nats per token")
        expect(turn.locator("tr.gone").first).to_be_visible()
        expect(turn.locator("tr.new").first).to_be_visible()
        expect(turn.locator(".fates")).to_contain_text("error")
        turn.get_by_text("Before", exact=True).first.click()
        expect(turn.locator(".view .result .badge")).to_have_text("error")
        turn.get_by_text("After", exact=True).first.click()
        expect(turn.locator(".view .result .badge")).to_have_text("ok")
        expect(turn.locator(".hljs-keyword, .hljs-built_in").first).to_be_visible()
        ledger = turn.locator("details.ledger")
        expect(ledger).not_to_have_attribute("open", "")
        ledger.locator("summary").first.click()
        expect(ledger.locator("> ol > li").first).to_contain_text("In the rollout")


def test_a_replacement_shows_the_words_that_changed(browser: Browser, demo: tuple[Library, str]) -> None:
    library, url = demo
    with Watch(browser) as page:
        page.goto(url + edited(library, "replace"))
        turn = page.locator("section.turn.edit", has=page.get_by_text("repaired: replacement", exact=True)).first
        expect(turn.locator(".reasoning del").first).to_be_visible()
        expect(turn.locator(".reasoning ins").first).to_be_visible()


def test_siblings_tell_their_rewards_and_what_roc_did(browser: Browser, demo: tuple[Library, str]) -> None:
    library, url = demo
    with Watch(browser) as page:
        page.goto(url + edited(library, "graft", kept="yes"))
        group = page.get_by_role("region", name="Group")
        expect(group.locator("li")).to_have_count(16)
        expect(group.locator("li.here .kept")).to_have_text("kept")
        expect(group.locator("li.here .why")).to_contain_text("a ")
        expect(group.locator(".kept")).to_have_count(8)
        before = page.url
        group.locator("li:not(.here) a").first.click()
        page.wait_for_url(lambda now: now != before)
        expect(group.locator("li.here")).to_have_count(1)


def test_a_large_group_says_how_much_of_it_is_shown(
    browser: Browser, demo: tuple[Library, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "SIBLINGS", 4)
    library, url = demo
    with Watch(browser) as page:
        page.goto(url + edited(library, "graft"))
        group = page.get_by_role("region", name="Group")
        expect(group.locator("li")).to_have_count(4)
        expect(group).to_contain_text("The first 4 of 16 rollouts of this task at this step")


def test_tokens_are_coloured_when_asked(browser: Browser, demo: tuple[Library, str]) -> None:
    library, url = demo
    with Watch(browser) as page:
        page.goto(url + edited(library, "graft"))
        expect(page.locator(".token")).to_have_count(0)
        page.get_by_text("Loss mask").click()
        expect(page.locator(".tokens.action .token.learnt").first).to_be_visible()
        expect(page.locator(".tokens.observation .token.learnt")).to_have_count(0)
        page.get_by_text("Log-probs").click()
        expect(page.locator(".tokens.logprobs .token[title*='log-prob']").first).to_be_visible()
        page.get_by_text("Gap", exact=True).click()
        expect(page.locator(".token.moved.lost, .token.moved.won").first).to_be_visible()
        text = page.locator(".tokens.action").first.inner_text()
        assert "```python" in text


def test_a_purified_log_opens_on_an_edit_and_goes_on_to_the_next(browser: Browser, log: tuple[Library, str]) -> None:
    library, url = log
    rows = library.page({"edits": "any"})["rows"]
    with Watch(browser, height=600) as page:
        page.goto(url)
        turn = page.locator("section.turn.edit")
        expect(turn).to_be_focused()
        expect(turn.get_by_role("button", name="Next edit")).to_be_in_viewport()
        assert page.url.endswith("turn=1")
        expect(page.locator("header.frame")).to_contain_text(rows[0]["title"])
        for row in rows[1:]:
            turn.get_by_role("button", name="Next edit").click()
            expect(page.get_by_role("heading", level=1)).to_have_text(row["title"])
            expect(turn).to_be_focused()
        page.keyboard.press("e")
        expect(turn.get_by_role("button", name="Last edit of the list")).to_be_disabled()
        page.get_by_role("link", name="Overview").click()
        expect(page.locator(".overview")).to_be_visible()


def test_a_log_shows_its_place_and_its_tasks_words_and_nothing_that_it_lacks(
    browser: Browser, log: tuple[Library, str], demo: tuple[Library, str]
) -> None:
    library, url = log
    with Watch(browser) as page:
        page.goto(f"{url}#/list")
        heads = page.locator("table.rows thead th")
        expect(heads).to_have_text(["Task", "Turns", "Length", "Failed calls", "Edits", "Similarity"])
        expect(page.locator("table.rows tbody tr").first.locator("td")).to_have_count(5)
        expect(page.locator("table.rows tbody tr").first).to_contain_text("view_log.jsonl:1")
        for label, shown in (("Edits", True), ("A call's status", True), ("Outcome", False), ("Kept by RoC", False)):
            expect(page.get_by_label(label, exact=True)).to_be_visible(visible=shown)
        page.get_by_text("By task and numbers").click()
        expect(page.get_by_label("Turns, from")).to_be_visible()
        expect(page.get_by_label("Reward, from")).to_be_hidden()
        title = library.page({})["rows"][0]["title"]
        page.get_by_role("link", name=title).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page).to_have_title(re.compile(f"^{title}"))
        expect(page.locator(".lineage")).to_have_text(re.compile(r"view_log\.jsonl:1 · record shell-1$"))
        for absent in ("reward", "graded", "step", "Log-prob gap"):
            expect(page.locator("article header, article .decision").filter(has_text=absent)).to_have_count(0)
        page.goto(f"{url}#/list?outcome=solved")  # a filter that is set can be taken off
        expect(page.get_by_label("Outcome", exact=True)).to_be_visible()
        page.goto(f"{url}#/")
        expect(page.get_by_role("region", name="Table of runs").locator("thead th")).to_have_text(
            ["Draw", "Run", "Trajectories", "Tasks", "Failed calls"]
        )
        page.goto(f"{demo[1]}#/list")
        expect(heads).to_have_count(11)
        expect(page.get_by_role("link", name="How many integers from 1 to 1000").first).to_be_visible()


def test_calls_are_shown_as_what_they_run(browser: Browser, log: tuple[Library, str]) -> None:
    library, url = log
    ids = [quote(row["id"], safe="") for row in library.page({})["rows"]]
    with Watch(browser) as page:
        turn = page.locator("section.turn.edit")
        shown = turn.locator(".view")  # what the log has is folded under it
        visit(page, f"{url}#/trajectory?id={ids[0]}")
        expect(shown.locator("tr.new .line")).to_have_text("  | sort --numeric-sort --reverse")
        turn.get_by_text("After", exact=True).first.click()
        command = shown.locator(".call.shell .code")
        assert command.inner_text().splitlines()[1:3] == ["  | cut -d ' ' -f 9 \\", "  | sort \\"]
        expect(command.locator(".hljs-string").first).to_be_visible()
        expect(shown.locator(".options")).to_have_text("timeout30")
        visit(page, f"{url}#/trajectory?id={ids[1]}")
        before, after = shown.locator(".call.edit").first, shown.locator(".call.edit").last
        for call, gone in ((before, "(len(xs)-width):"), (after, "(len(xs) - width):")):
            expect(call.locator(".path")).to_have_text("str_replace /workspace/stats/moving.py")
            expect(call.locator("tr.gone .line")).to_have_text(f"    for i in range{gone}")
            expect(call.locator("tr.new .line")).to_have_text("    for i in range(len(xs) - width + 1):")
            expect(call.locator("tr.same")).to_have_count(2)
        visit(page, f"{url}#/trajectory?id={ids[2]}")
        expect(shown.locator("tr.gone .line")).to_have_text("GROUP BY c.nmae")
        turn.get_by_text("Before", exact=True).first.click()
        expect(shown.locator(".call.sql .hljs-keyword").first).to_have_text("SELECT")
        visit(page, f"{url}#/trajectory?id={ids[3]}")
        expect(shown.locator("tr.new .line")).to_have_text('  "title": "Missing index",')
        expect(shown.locator("tr.same .line").filter(has_text="1. Open the orders page.")).to_have_text(
            "1. Open the orders page."
        )
        visit(page, f"{url}#/trajectory?id={ids[4]}")
        unsure = page.locator("section.turn", has=page.get_by_text("unsure", exact=True))
        expect(unsure.locator(".output")).to_contain_text("> +    if line[:1]")
        assert serious(page) == []


def test_a_failure_that_was_left_alone_says_why(browser: Browser, log: tuple[Library, str]) -> None:
    library, url = log
    ids = [quote(row["id"], safe="") for row in library.page({})["rows"]]
    with Watch(browser) as page:
        visit(page, f"{url}#/trajectory?id={ids[4]}")
        expect(page.locator(".left-alone")).to_have_text(
            "Not repaired: no working call of the same tool follows before the agent goes on or somebody speaks."
        )
        expect(page.locator("section.turn.bad", has=page.locator(".left-alone"))).to_have_count(1)
        assert serious(page) == []
        visit(page, f"{url}#/trajectory?id={ids[0]}")
        expect(page.locator(".left-alone")).to_have_count(0)


def test_only_what_was_verified_is_called_so(browser: Browser, log: tuple[Library, str], tmp_path: Path) -> None:
    found = grafted()
    replayed = replace(found, info=RolloutInfo(replay="same"))
    looked = replace(found, turns=(replace(found.turns[0], edit=saar(found.turns[0].edit)), *found.turns[1:]))
    pages = {"Verified: a replay": [replayed], "Verified: the correction ran": [looked], "Not verified": [found]}
    with Watch(browser) as page:
        page.goto(log[1])
        expect(page.locator(".decision")).to_contain_text("Not verified: the correction worked later on")
        expect(page.get_by_text("verified", exact=True)).to_have_count(0)
        for words, trajectories in pages.items():
            (tmp_path / "out.html").write_bytes(page_from(trajectories, "one"))
            page.goto("about:blank")
            page.goto(f"file://{tmp_path / 'out.html'}")
            expect(page.locator(".decision")).to_contain_text(words)
            expect(page.get_by_text("verified", exact=True)).to_have_count(0 if words == "Not verified" else 1)


def test_a_link_leads_to_its_turn(browser: Browser, demo: tuple[Library, str]) -> None:
    library, url = demo
    with Watch(browser, height=400) as page:
        page.goto(url + edited(library, "any", turns_min="3") + "&turn=2")
        expect(page.locator("#turn-2")).to_be_in_viewport()
        expect(page.locator("#turn-2")).to_be_focused()
        page.get_by_role("navigation", name="Turns").get_by_role("link").first.click()
        expect(page.locator("#turn-0")).to_be_focused()
        assert page.url.endswith("turn=0")


def test_the_keyboard_alone_is_enough(browser: Browser, demo: tuple[Library, str]) -> None:
    library, url = demo
    with Watch(browser) as page:
        page.goto(url)
        expect(page.locator("figure").first).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("l")
        expect(page.locator("table.rows")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("order")
        expect(page.locator(".count")).to_contain_text(f"{library.page({'q': 'order'})['total']} trajectories")
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        expect(page.locator(".pages")).to_contain_text("51 –")
        page.keyboard.press("p")
        expect(page.locator(".pages span")).to_have_text(re.compile("^1 –"))
        page.keyboard.press("j")
        page.keyboard.press("j")
        expect(page.locator("table.rows tbody tr").nth(1).locator("a")).to_be_focused()
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        expect(page.locator("article.trajectory")).to_be_visible()
        page.keyboard.press("j")
        expect(page.locator("#turn-0")).to_be_focused()
        page.keyboard.press("t")
        expect(page.locator(".token").first).to_be_visible()
        before = page.url
        page.keyboard.press("n")
        page.wait_for_url(lambda now: now != before)
        page.keyboard.press("d")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.keyboard.press("u")
        expect(page.locator("table.rows")).to_be_visible()
        assert "q=order" in page.url
        page.keyboard.press("o")
        expect(page.locator("figure").first).to_be_visible()


def test_no_serious_violation_in_either_theme(browser: Browser, demo: tuple[Library, str], theme: str) -> None:
    library, url = demo
    with Watch(browser, theme) as page:
        for address in (
            "#/",
            "#/list",
            "#/list?edits=any&reward_min=0",
            edited(library, "graft"),
            edited(library, "replace"),
        ):
            visit(page, url + address)
            expect(page.locator("html")).to_have_attribute("data-theme", theme)
            assert serious(page) == []
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert serious(page) == []
        for colouring in ("Loss mask", "Log-probs", "Gap"):
            page.get_by_text(colouring, exact=True).first.click()
            expect(page.locator(".token").first).to_be_visible()
            assert serious(page) == []
        page.keyboard.press("?")
        assert serious(page) == []


def test_a_phone_shows_everything_without_scrolling_sideways(browser: Browser, demo: tuple[Library, str]) -> None:
    library, url = demo
    with Watch(browser, width=390, height=844) as page:
        for address in ("#/", "#/list?edits=any", edited(library, "graft"), edited(library, "replace")):
            visit(page, url + address)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert serious(page) == []


def test_hostile_content_harms_nothing(browser: Browser, tmp_path: Path) -> None:
    with Library(write(tmp_path / "store", [hostile(), clean()]), tmp_path / "cache") as library:
        library.update()
        with served(library) as url, Watch(browser) as page:
            for address in ("", "#/list", edited(library, "replace")):
                visit(page, url + address)
                assert "owned" not in page.title()
                assert page.locator("main script, main img").count() == 0
            shown = page.locator("article.trajectory")
            expect(shown).to_contain_text("<script>")
            expect(shown).to_contain_text("␛[31mred")
            expect(shown).to_contain_text("⟨U+202E⟩")
            # A megabyte on one line: folded, and there when asked for.
            assert len(shown.inner_text()) < len(MEGABYTE) / 10
            more = page.get_by_role("button", name="Show 100,000 more of").first
            more.click()
            assert 100_000 < len(shown.inner_text()) < len(MEGABYTE)
            for view in ("Before", "After"):
                page.get_by_text(view, exact=True).first.click()
            page.get_by_text("Loss mask").click()
            expect(page.locator(".token").first).to_be_visible()
            assert "owned" not in page.title()


def test_an_export_opens_from_a_file_without_any_server(
    browser: Browser, demo: tuple[Library, str], tmp_path: Path
) -> None:
    library, url = demo
    with Watch(browser) as page:
        page.goto(f"{url}#/list?edits=graft&sort=-similarity")
        with page.expect_download() as waiting:
            page.get_by_role("link", name="Export").click()
        waiting.value.save_as(tmp_path / "out.html")
    watch = Watch(browser)
    with watch as page:
        page.goto(f"file://{tmp_path / 'out.html'}#/list")
        total = min(100, library.page({"edits": "graft"})["total"])
        expect(page.locator(".count")).to_contain_text(f"{total} trajectories")
        page.get_by_label("Outcome", exact=True).select_option(label="solved")
        rows = library.page({"edits": "graft", "sort": "-similarity", "size": "100"})["rows"]
        solved = sum(bool(row["success"]) for row in rows)
        expect(page.locator(".count")).to_contain_text(f"{solved} trajector")
        page.locator("table.rows tbody a").first.click()
        expect(page.locator("section.turn.edit tr.new").first).to_be_visible()
        page.get_by_text("Log-probs").click()
        expect(page.locator(".token").first).to_be_visible()
        page.keyboard.press("o")
        expect(page.locator("figure.figure").first).to_be_visible()
        assert serious(page) == []
    assert all(asked.startswith("file://") for asked in watch.asked)


def test_an_export_opens_on_the_first_repair(browser: Browser, tmp_path: Path) -> None:
    with Library(
        write(tmp_path / "store", [clean(0), grafted(1), grafted(2), clean(3)]), tmp_path / "cache"
    ) as library:
        library.update()
        (tmp_path / "out.html").write_bytes(page_of(library, {}).page)
        (tmp_path / "raw.html").write_bytes(page_of(library, {"edits": "none"}).page)
        with Watch(browser) as page:
            page.goto(f"file://{tmp_path / 'out.html'}")
            turn = page.locator("section.turn.edit")
            expect(turn).to_be_focused()
            expect(turn.get_by_role("heading", name="Before")).to_be_visible()
            expect(turn.get_by_role("heading", name="After")).to_be_visible()
            turn.get_by_role("button", name="Next edit").click()
            expect(page.get_by_role("heading", level=1)).to_contain_text("#2")
            expect(turn).to_be_focused()
            page.keyboard.press("e")
            expect(turn.get_by_role("button", name="Last edit")).to_be_disabled()
            page.get_by_role("link", name="Overview").click()
            expect(page.locator(".overview")).to_be_visible()
            page.goto(f"file://{tmp_path / 'raw.html'}")
            expect(page.locator(".overview")).to_be_visible()


def test_an_export_of_a_part_says_how_many_it_left_out(browser: Browser, tmp_path: Path) -> None:
    with Library(write(tmp_path / "store", [clean(0), clean(1), clean(2)]), tmp_path / "cache") as library:
        library.update()
        for size, left in (("2", "1 more of the list"), ("3", "")):
            (tmp_path / "out.html").write_bytes(page_of(library, {"size": size}).page)
            with Watch(browser) as page:
                page.goto(f"file://{tmp_path / 'out.html'}#/list")
                expect(page.locator(".count")).to_contain_text(f"{size} trajectories")
                assert left in page.locator(".count").inner_text()
                assert ("more of the list" in page.locator(".count").inner_text()) is bool(left)


def test_an_export_looks_inside_of_turns_as_the_server_does(browser: Browser, tmp_path: Path) -> None:
    with Library(write(tmp_path / "store", [grafted(0), clean(1)]), tmp_path / "cache") as library:
        library.update()
        (tmp_path / "out.html").write_bytes(page_of(library, {}).page)
        with Watch(browser) as page:
            for text in ('{"code": "print(', "PRINT(Y)", "NameError", "granularity", "nobody"):
                found = library.page({"q": text, "inside": "yes"}, whole=True)["total"]
                page.goto("about:blank")
                page.goto(f"file://{tmp_path / 'out.html'}#/list?inside=yes&q={quote(text)}")
                expect(page.locator(".count")).to_contain_text(re.compile(rf"^{found} trajector"))


def test_hostile_content_harms_no_export(browser: Browser, tmp_path: Path) -> None:
    with Library(write(tmp_path / "store", [hostile()]), tmp_path / "cache") as library:
        library.update()
        (tmp_path / "out.html").write_bytes(page_of(library, {}).page)
        with Watch(browser) as page:
            page.goto(f"file://{tmp_path / 'out.html'}{edited(library, 'any')}")
            expect(page.locator("article.trajectory")).to_contain_text("<script>")
            assert "owned" not in page.title()
