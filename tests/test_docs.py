"""Every command and program in the documentation runs here, or says above itself why it doesn't.

A block of shell or Python has one of these comments above it, which readers don't see:

    example: NAME      Python, run by itself
    run: NAME          shell or Python, run one after the other with all of that name, in a folder of their own
    start: NAME, … s   run in a clean environment by `.ci/starts.py`
    tested: FILE       run by that test
    not run: WHY
    output: NAME       what the program, or some commands of that name, print: all of it, or lines of it in their order

A line `#> …` in a block is what it prints there. A figure of a page is the kept one if it is written so:

    <!-- kept: FILE PATH -->508<!-- /kept -->     `PATH.to.a.value`, its length (`#` behind it), or formatted (`:.1f`)

The options of every `cleaner` in them are checked against the command itself, whether it is run or not.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean, median
from types import ModuleType
from typing import Any, NamedTuple

import click
import duckdb
import pytest

from benchmarks.lab.methods import BASELINE
from cleaner_rl.cli import main
from cleaner_rl.logs import log_format_names
from cleaner_rl.trajectory.store import ParquetWriter
from tests import docs_size, frozen
from tests.builders import failed, trajectory, worked

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^(?:<!-- ([^\n]*?) -->\n)?(```+|~~~+)(\w*)\n(.*?)^\2$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"(example|run|start|tested|not run|output): (.+)")
KNOWN_FAULT = re.compile(r"^\| ([SRGX]\d+) \| .* \| ([^|]*) \|$", re.MULTILINE)
SECONDS = 100
SITE_SECONDS = 300
PRINTED = re.compile(r"^#> (.*)$", re.MULTILINE)
KEPT = re.compile(r"<!-- kept: (\S+) ([\w.]+)(#?)(?::(\S+))? -->(.*?)<!-- /kept -->", re.DOTALL)
KEPT_RESULTS = ROOT / "benchmarks" / "results"
RESULTS = KEPT_RESULTS / "lab"
REGIMES = {"drift": "drift", "slips": "slips", "starved": "starved", "unhinted": "drift-unhinted"}
METHODS = (BASELINE, "saar", "hindsight-successes")
"""How the kept runs are named: the regimes and methods of the tables of results, in the order of rows and columns."""


class Block(NamedTuple):
    page: str
    language: str
    mark: str
    about: str
    text: str


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for comment, _, language, text in FENCE.findall(page.read_text()):
            found = MARK.fullmatch(comment)
            mark, about = found.groups() if found else ("", "")
            yield Block(str(page.relative_to(ROOT)), language, mark, about, text)


ALL = list(blocks())
EXAMPLES = {block.about: block.text for block in ALL if block.mark == "example"}
STORIES: dict[str, list[Block]] = defaultdict(list)
for each in ALL:
    if each.mark == "run":
        STORIES[each.about].append(each)


def test_each_block_is_run_or_says_why_not() -> None:
    asked = [block for block in ALL if block.language in ("sh", "python", "")]
    unmarked = [f"{block.page}: {block.text[:60]!r}" for block in asked if not block.mark]
    assert not unmarked
    for block in ALL:
        if block.mark == "tested":
            assert (ROOT / block.about).is_file(), block


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", EXAMPLES[name]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not missing(PRINTED.findall(EXAMPLES[name]), ran.stdout.splitlines())
    if shown := [block.text for block in ALL if block.mark == "output" and block.about == name]:
        assert ran.stdout == shown[0]


@pytest.mark.parametrize("name", STORIES)
def test_a_tutorials_lines_run_one_after_the_other(name: str, tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    program = "import sys; sys.argv[0] = 'cleaner'; from cleaner_rl.cli import main; main()"
    (commands / "cleaner").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{program}" "$@"\n')
    (commands / "cleaner").chmod(0o755)
    place = tmp_path / "here"
    place.mkdir()
    for folder in ("benchmarks", "docs", "examples", "recipes"):  # as in a checkout
        (place / folder).symlink_to(ROOT / folder)
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    printed: list[str] = []
    for block in STORIES[name]:
        start = [sys.executable, "-c"] if block.language == "python" else ["bash", "-euo", "pipefail", "-c"]
        process = subprocess.Popen(
            [*start, block.text], cwd=place, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            printed += normal(process.communicate(timeout=SECONDS)[0], place)
            assert process.returncode == 0, block.text
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    for block in STORIES[name]:
        absent = missing(PRINTED.findall(block.text), printed)
        assert not absent, f"{block.page} says {absent!r}, and the commands print\n" + "\n".join(printed)
    shown = [
        line for block in ALL if (block.mark, block.about) == ("output", name) for line in normal(block.text, place)
    ]
    absent = missing(shown, printed)
    assert not absent, f"the pages say {absent!r}, and the commands print\n" + "\n".join(printed)


def missing(shown: list[str], printed: list[str]) -> str | None:
    """The first line of what a page shows that isn't printed, in this order; `…` stands for anything."""
    rest = iter(printed)
    for line in shown:
        pattern = ".*".join(map(re.escape, line.split("…")))
        if not any(re.fullmatch(pattern, each) for each in rest):
            return line
    return None


def test_a_seeded_wrong_line_of_output_is_noticed() -> None:
    printed = ["turns        8 → 7", "repairs      1 graft", "SFT rows     3"]
    assert missing(["turns        8 → 7", "SFT rows     3"], printed) is None
    assert missing(["turns        8 → 6"], printed) == "turns        8 → 6"
    assert missing(["SFT rows     3", "repairs      1 graft"], printed) == "repairs      1 graft"
    assert missing(["turns  …→ 7"], printed) is None
    assert missing(["turns  …→ 9"], printed) == "turns  …→ 9"


def normal(text: str, place: Path) -> list[str]:
    """The lines of a text without what differs from run to run: where it ran, and how long it took."""
    return re.sub(r"\b\d+(?:\.\d+)? (?:s|seconds)\b", "N s", text.replace(f"{place}/", "")).splitlines()


def documented() -> Iterator[tuple[str, list[str]]]:
    for block in ALL:
        if block.language not in ("sh", ""):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "cleaner":
                end = next((place for place, word in enumerate(words) if word in ("&", "|", ">", "&&")), len(words))
                yield f"{block.page}: {line}", words[1:end]


@pytest.mark.parametrize(("line", "words"), list(documented()))
def test_a_documented_command_has_these_options(line: str, words: list[str]) -> None:
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line


def test_the_readme_is_short_and_installs_from_a_checkout() -> None:
    assert docs_size.measure()["pages"]["README.md"] <= docs_size.budget()["README.md"] <= 600
    for block in ALL:  # the name may belong to somebody else on an index
        assert not re.search(r"pip install '?cleaner-rl", block.text), block.page


def wrong_figures(text: str) -> list[str]:
    """The figures of a page that aren't those that are kept."""
    found = []
    for file, path, length, form, said in KEPT.findall(text):
        value = json.loads((KEPT_RESULTS / file).read_text())
        for part in path.split("."):
            value = value[int(part) if isinstance(value, list) else part]
        right = format(len(value) if length else value, form)
        found += [f"{file} {path}: {said}, not {right}"] if said.strip() != right else []
    return found


def wrong_counts(text: str) -> list[str]:
    """The counts of attacks, of log formats and of an example's lines that a page has and that are others."""
    attacks = len(json.loads((KEPT_RESULTS / "sandbox_check.json").read_text())["figures"]["details"])
    loop = len((ROOT / "examples" / "train_loop.py").read_text().splitlines())
    counted = {
        r"\b(\d+)(?: harmless)? attacks\b": attacks,
        r"\b(\d+) formats\b": len(log_format_names()),
        r"training loop in (\d+) lines": round(loop, -1),
    }
    prose = re.sub(r"<!--.*?-->", "", text)
    return [
        f"{said}, not {right}"
        for what, right in counted.items()
        for said in re.findall(what, prose)
        if int(said) != right
    ]


def test_figures_and_counts_of_the_pages_are_the_kept_ones() -> None:
    for page in (*PAGES, ROOT / "ARCHITECTURE.md", *ROOT.glob("packages/*/*.md"), *ROOT.glob("docs/*.txt")):
        text = page.read_text()
        assert text.count("<!-- kept:") == len(KEPT.findall(text)), page
        assert not wrong_figures(text), page
        assert not wrong_counts(text), page


def test_a_seeded_wrong_figure_and_count_are_noticed() -> None:
    figure = "<!-- kept: trl.json figures.failed_calls_first:.2f -->{}<!-- /kept -->"
    assert not wrong_figures(figure.format("1.41"))
    assert wrong_figures(figure.format("1.42")) == ["trl.json figures.failed_calls_first: 1.42, not 1.41"]
    length = "<!-- kept: sandbox_check.json figures.details# -->{}<!-- /kept -->"
    assert not wrong_figures(length.format("508"))
    assert wrong_figures(length.format("509"))
    assert not wrong_counts("It stopped all 508 attacks.")
    assert wrong_counts("It stopped all 430 attacks.") == ["430, not 508"]
    assert wrong_counts("It reads 3 formats.")
    assert wrong_counts("the whole training loop in 1000 lines")


def test_every_kept_file_that_the_page_on_verification_names_is_there() -> None:
    named = re.findall(r"`([\w/]+(?:\.json|/))`", (DOCS / "verification.md").read_text())
    assert len(named) > 30
    lab = KEPT_RESULTS / "lab" / "worlds"
    gone = [name for name in named if not any((folder / name).exists() for folder in (ROOT, KEPT_RESULTS, lab))]
    assert not gone


def test_the_table_of_results_on_verl_is_that_of_the_kept_runs() -> None:
    text = (DOCS / "results" / "index.md").read_text()
    for regime, prefix in REGIMES.items():
        row = re.search(rf"^\| \*{regime}\*: .*$", text, re.MULTILINE)
        assert row, regime
        *cells, seeds = [cell.strip(" *") for cell in row[0].strip("|").split("|")][1:]
        runs = [[json.loads(file.read_text())["figures"] for file in kept(prefix, method)] for method in METHODS]
        assert seeds == ", ".join(str(len(each)) for each in runs)
        for cell, found in zip(cells, runs, strict=True):
            accuracy, errors = ([at_the_end(run, figure) for run in found] for figure in ("accuracy", "errors"))
            assert re.sub(r" \(.*?\)", "", cell) == f"{100 * mean(accuracy):.1f} % / {mean(errors):.2f}", regime
            if ranged := re.search(r"\((.*)–(.*)\)", cell):
                assert ranged.groups() == (f"{100 * min(accuracy):.1f}", f"{100 * max(accuracy):.1f}"), regime


def kept(prefix: str, method: str) -> list[Path]:
    return sorted(RESULTS.glob(f"{prefix}-{method}-[0-9].json"))


def at_the_end(run: Mapping[str, Any], figure: str) -> float:
    """The median of the evaluations in the last third of a run."""
    steps: dict[int, float] = {int(step): figures[figure] for step, figures in run["evaluation"].items()}
    return median(value for step, value in steps.items() if 3 * step >= 2 * max(steps))


def test_pages_that_files_refer_to_are_there() -> None:
    folders = ("src", "tests", "benchmarks", "deploy", "recipes", "release", "docs", "examples")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*")]
    for file in (*files, *ROOT.glob("*.md"), *ROOT.glob("*.toml")):
        if file.suffix in (".py", ".md", ".yaml", ".toml", ".sbatch") and file.name != "CHANGELOG.md":
            for page in re.findall(r"\bdocs/[\w/.-]+\.md\b", file.read_text()):
                assert (ROOT / page).is_file(), f"{file.relative_to(ROOT)} refers to {page}"


def test_the_reference_is_what_the_code_says() -> None:
    for page, write in ci_script("reference").PAGES.items():
        frozen.check(DOCS / "reference" / page, write())


def test_a_start_that_has_no_gpu_leaves_out_just_what_needs_one() -> None:
    starts = ci_script("starts")
    _, (_, *lines) = starts.starts()[starts.REUSED]
    assert [line for line in lines if starts.ELSEWHERE not in line] == [line for line in lines if "--dry-run" in line]


def ci_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_files_that_the_readme_links_to_are_there() -> None:
    for page in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (ROOT / link).exists(), f"{page.name} links to {link}"


def test_the_page_for_language_models_names_every_page() -> None:
    said = (DOCS / "llms.txt").read_text()
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "api"]
    assert [page for page in pages if page != "index.md" and f"]({page})" not in said] == []
    assert [link for link in re.findall(r"\]\((.*?)\)", said) if not (DOCS / link).is_file()] == []


def test_each_known_fault_has_a_row_and_each_row_a_test() -> None:
    held: dict[str, set[str]] = defaultdict(set)
    for file in [*(ROOT / "tests").rglob("test_*.py"), *ROOT.glob("packages/*/tests/**/test_*.py")]:
        name = str(file.relative_to(ROOT)).removeprefix("tests/")
        for labels in re.findall(r"def test_((?:[srgx]\d+_(?:and_)?)+)", file.read_text()):
            for label in re.findall(r"[srgx]\d+", labels):
                held[label.upper()].add(name)
    page = (DOCS / "internals" / "known-faults.md").read_text()
    rows = {label: re.findall(r"`([\w/-]+\.py)`", files) for label, files in KNOWN_FAULT.findall(page)}
    assert rows.keys() == held.keys()
    for label, files in rows.items():
        assert files, label
        assert set(files) <= held[label], f"{label}: the page names files that hold no test of it"


@pytest.mark.timeout(SITE_SECONDS)
def test_the_site_builds_and_no_link_of_it_is_broken(tmp_path: Path) -> None:
    # Not with --quiet: that hides warnings from --strict too.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SITE_SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    loaded = re.findall(
        r'<(?:script|link rel="stylesheet")[^>]*(?:src|href)="(.*?)"', (tmp_path / "site/index.html").read_text()
    )
    assert [each for each in loaded if ":" in each] == [], "loaded from elsewhere"
    assert any("iframe-worker" in each for each in loaded)
    assert (tmp_path / "site/search/search_index.js").is_file(), "search without a server"


def test_the_store_pages_query_counts_failed_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "internals" / "store.md").read_text()
    found = re.search(r"```sql\n(.*?)\n```", page, re.DOTALL)
    assert found
    monkeypatch.chdir(tmp_path)
    with ParquetWriter("store") as writer:
        writer.write(trajectory(failed(), failed(), worked()))
    with duckdb.connect() as connection:
        assert connection.execute(found[1]).fetchall() == [(3, 2)]
