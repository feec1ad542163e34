"""`cleaner demo`: the first thing that a newcomer sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.trajectory.store import ParquetWriter
from cleaner_rl.view.library import Library
from cleaner_rl.view.page import page_from, page_of
from tests.builders import failed, trajectory, worked
from tests.restricted import NO_LANDLOCK, cleaner

EXTRAS = ("aiohttp", "duckdb", "httptools", "jinja2", "math_verify", "msgspec", "prometheus_client", "sympy",
          "transformers", "uvicorn", "uvloop", "yaml")  # fmt: skip


def data_of(page: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.decode().split('id="data">')[1].split("</script>")[0])
    return found


def check(page: Path) -> None:
    """Both failures are repaired in the ways that they should be, and nothing of them is left."""
    shown = data_of(page.read_bytes())["trajectories"]
    assert [each["success"] for each in shown.values()] == [True, True]
    edits = [turn["edit"] for each in shown.values() for turn in each["turns"] if turn["edit"]]
    assert [edit["kind"] for edit in edits] == ["graft", "replace"]
    assert [[turn["failed"] for turn in edit["original"]] for edit in edits] == [[True, False], [True, True, False]]
    assert not any(turn["failed"] for each in shown.values() for turn in each["turns"])


def test_the_core_alone_repairs_a_failure_in_the_real_sandbox_and_writes_a_page(tmp_path: Path) -> None:
    ran = cleaner("demo", "--no-open", missing=EXTRAS, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "isolation T" in ran.stdout
    assert "TypeError: 'int' object is not iterable" in ran.stdout
    check(tmp_path / "cleaner-demo.html")


@pytest.mark.parametrize(
    "less", [{"rules": NO_LANDLOCK}, {"elsewhere": True, "missing": ("fcntl", "resource", "pyseccomp")}]
)
def test_without_a_sandbox_it_says_so_and_goes_on(tmp_path: Path, less: dict[str, Any]) -> None:
    ran = cleaner("demo", "--no-open", "--out", "page.html", folder=tmp_path, **less)
    assert ran.returncode == 0, ran.stderr
    assert "sandbox" in ran.stdout
    assert "plain processes" in ran.stdout
    check(tmp_path / "page.html")


def test_a_page_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    ran = cleaner("demo", "--no-open", "--out", "no/such/page.html", folder=tmp_path)
    assert ran.returncode == 1
    assert "No such file or directory" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_page_from_memory_shows_what_a_librarys_shows(tmp_path: Path) -> None:
    some = [trajectory(failed(), worked()), trajectory(worked())]
    with ParquetWriter(tmp_path / "store") as writer:
        for each in some:
            writer.write(each)
    with Library(tmp_path / "store", tmp_path / "cache") as library:
        library.update()
        stored = data_of(page_of(library, {}).page)
    mine = data_of(page_from(some, "store"))

    def plain(page: dict[str, Any]) -> list[dict[str, Any]]:
        """Without addresses, which are the places' own."""
        rows = [{name: value for name, value in row.items() if name not in ("id", "run_id")} for row in page["rows"]]
        return sorted(rows, key=lambda row: json.dumps(row))

    assert plain(mine) == plain(stored)
    assert [*mine["trajectories"][mine["rows"][0]["id"]]] == [*stored["trajectories"][stored["rows"][0]["id"]]]
