"""`cleaner view`, as a person runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from tests.view.stores import clean, small, write


def test_the_sample_is_served_until_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "view", "--demo", "--no-open"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as viewer:
        try:
            assert viewer.stdout is not None
            found = re.match(r"(http://127\.0\.0\.1:\d+/)", viewer.stdout.readline())
            assert found
            left = 1
            while left:  # until it is indexed; the test's own limit ends it
                with urlopen(f"{found[1]}api/list?edits=graft", timeout=30) as answer:
                    page = json.load(answer)
                left = page["progress"]["left"]
            assert page["total"] > 0
        finally:
            viewer.send_signal(signal.SIGINT)
            _, errors = viewer.communicate(timeout=30)
    assert errors == ""
    assert viewer.returncode == 0
    assert list(tmp_path.rglob("*.duckdb"))


def test_serving_loads_no_pandas_and_leaves_it_to_others() -> None:
    program = """
import sys, tempfile
from pathlib import Path
from cleaner_rl.view import DEMO
from cleaner_rl.view.library import Library
from cleaner_rl.view.server import without_pandas
with tempfile.TemporaryDirectory() as cache, Library(DEMO, Path(cache)) as library:
    without_pandas()
    library.update()
    assert library.page({})["rows"]
    assert "pandas" not in sys.modules
import importlib.util
assert importlib.util.find_spec("pandas") is None or __import__("pandas").__version__
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_export_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "out.html"
    ran = CliRunner().invoke(
        main, ["view", str(small(tmp_path / "run")), "--export", str(out), "--query", "edits=any&size=1"]
    )
    assert ran.exit_code == 0, ran.output
    assert f"{out}: " in ran.output
    data = out.read_text().split('id="data">')[1].split("</script>")[0]
    assert len(json.loads(data)["rows"]) == 1


def test_an_export_of_a_part_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = write(tmp_path / "run", [clean(rollout=number) for number in range(103)])
    arguments = ["view", str(run), "--export", str(tmp_path / "out.html")]
    ran = CliRunner().invoke(main, arguments)
    assert "100 of 103 trajectories" in ran.stdout
    assert "size= (up to 1000) and page= (from 0)" in ran.stderr
    ran = CliRunner().invoke(main, [*arguments, "--query", "size=200"])
    assert "103 of 103 trajectories" in ran.stdout
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a path, or --demo"),
        (["x", "--demo"], "give a path, or --demo"),
        (["nowhere"], "there is nothing at nowhere"),
        (["--demo", "--query", "edits=any"], "give --export FILE too"),
        (["--demo", "--query", "colour=red", "--export", "out.html"], "there is no filter 'colour'"),
    ],
)
def test_a_mistake_is_explained(arguments: list[str], message: str) -> None:
    ran = CliRunner().invoke(main, ["view", *arguments])
    assert ran.exit_code != 0
    assert message in ran.output
    assert "Traceback" not in ran.output


def test_finding_trajectories_that_are_too_large_for_one_page_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("cleaner_rl.view.page.MOST_CHARACTERS", 200_000)
    command = ["view", str(write(tmp_path / "store", [clean(rollout) for rollout in range(50)])), "--export"]
    ran = CliRunner().invoke(main, [*command, str(tmp_path / "page.html")])
    assert ran.exit_code == 1
    size = re.search(r"size=\d+", ran.output)
    assert size
    assert CliRunner().invoke(main, [*command, str(tmp_path / "page.html"), "--query", size[0]]).exit_code == 0
