"""Pictures for the docs: of the viewer, by the sample that ships with it and by a small log of a coding agent, before
and after it is purified; and of `cleaner demo`'s first repair.

`python -m benchmarks.view_screenshots`, or with `--repaired` the last one alone, which the README shows.

Needs Chromium (`CLEANER_CHROMIUM`, or the one on the path).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import uvicorn
from click.testing import CliRunner
from playwright.sync_api import sync_playwright

from cleaner_rl.cli import main as cleaner
from cleaner_rl.logs import LogSettings, purify
from cleaner_rl.view import DEMO
from cleaner_rl.view.app import Application
from cleaner_rl.view.library import Library
from cleaner_rl.view.server import bind

LOG = Path(__file__).parent / "data" / "view_log.jsonl"
WIDE, PHONE = (1280, 860), (390, 844)
CHROMIUM = os.environ.get("CLEANER_CHROMIUM") or shutil.which("chromium")


def repaired(picture: Path) -> None:
    """What the first edit of the demo's page changed."""
    with tempfile.TemporaryDirectory() as made:
        page_file = Path(made, "demo.html")
        ran = CliRunner().invoke(cleaner, ["demo", "--no-open", "--out", str(page_file)])
        assert ran.exit_code == 0, ran.output
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1180, "height": 900}, device_scale_factor=1.5)
            page.goto(page_file.as_uri())
            page.locator("section.turn.edit .diff").first.screenshot(path=str(picture))
            browser.close()


@contextmanager
def served(store: Path) -> Iterator[tuple[Library, str]]:
    """A viewer of a store, and its address."""
    with tempfile.TemporaryDirectory() as cache, Library(store, Path(cache)) as library:
        library.update()
        listening = bind(0)
        server = uvicorn.Server(uvicorn.Config(Application(library), log_level="warning", lifespan="off"))
        serving = Thread(target=server.run, args=([listening],))
        serving.start()
        try:
            yield library, f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            serving.join()


def log(folder: Path) -> None:
    """The turns of the log's first record, which calls a shell, as they were and purified."""
    for name, settings in (("before", LogSettings(repair=None)), ("after", LogSettings())):
        with tempfile.TemporaryDirectory() as made:
            purify(os.path.relpath(LOG), made, settings)
            purified = Path(made, "store")
            with served(purified) as (library, address), sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page(viewport={"width": 1080, "height": 700})
                page.goto(f"{address}#/trajectory?id={quote(library.page({})['rows'][0]['id'], safe='')}")
                page.locator(".turns").screenshot(path=str(folder / f"view-shell-{name}.png"))
                browser.close()


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    parser.add_argument("--repaired", action="store_true")
    chosen = parser.parse_args()
    folder: Path = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    repaired(folder / "repair-diff.png")
    if chosen.repaired:
        return
    log(folder)
    with served(DEMO) as (library, address):
        rows = library.page(
            {"run": "saar + roc", "edits": "graft", "outcome": "solved", "sort": "-logprob_gap", "step_max": "0"}
        )["rows"]
        grafted = f"#/trajectory?id={quote(rows[0]['id'], safe='')}"
        rows = library.page({"edits": "replace", "outcome": "solved", "kept": "yes"})["rows"]
        replaced = f"#/trajectory?id={quote(rows[0]['id'], safe='')}"
        pictures = [
            ("view-overview", "#/?runs=grpo%0Asaar+%2B+roc", WIDE, "light", ""),
            ("view-list", "#/list?edits=any&sort=-reward", WIDE, "light", ""),
            ("view-edit", replaced, WIDE, "light", ""),
            ("view-tokens-dark", grafted, WIDE, "dark", "Log-probs"),
            ("view-phone", replaced, PHONE, "dark", ""),
        ]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            for name, place, (width, height), scheme, colouring in pictures:
                page = browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                )
                page.goto(address + place)
                page.wait_for_selector("main:not([aria-busy]) > *")
                if colouring:
                    page.get_by_text(colouring).click()
                    page.wait_for_selector(".token")
                if height > width:  # past what stands above the turns on a phone
                    page.locator("section.turn.edit").first.scroll_into_view_if_needed()
                    page.locator("section.turn.edit").first.evaluate("turn => turn.scrollIntoView()")
                page.wait_for_timeout(500)
                page.screenshot(path=str(folder / f"{name}.png"))
                page.close()
            browser.close()


if __name__ == "__main__":
    main()
