"""The documentation's programs run; those that show only a part of one are marked by having no `example` comment."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from cleaner_rl.trajectory.store import ParquetWriter
from tests.builders import failed, trajectory, worked

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = re.compile(r"<!-- example: (\w+) -->\n```python\n(.*?)\n```\n", re.DOTALL)
EXAMPLES = {name: code for page in sorted(DOCS.rglob("*.md")) for name, code in EXAMPLE.findall(page.read_text())}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", EXAMPLES[name]], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_the_store_pages_query_counts_failed_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "store.md").read_text()
    found = re.search(r"```sql\n(.*?)\n```", page, re.DOTALL)
    assert found
    monkeypatch.chdir(tmp_path)
    with ParquetWriter("store") as writer:
        writer.write(trajectory(failed(), failed(), worked()))
    with duckdb.connect() as connection:
        assert connection.execute(found[1]).fetchall() == [(3, 2)]
