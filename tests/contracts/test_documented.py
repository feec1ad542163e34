"""The plug-ins of docs/extend.md, as a third party has them: a package of its own, installed, with its own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cleaner_rl.logs import LOG_ADAPTERS, detect, log_format
from cleaner_rl.rollout import TOOLS
from cleaner_rl.rollout.graders import Graders
from cleaner_rl.tools import call_format, call_format_names
from tests.plugins import install

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text()
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```\n", PAGE, re.DOTALL))
GROUPS = tomllib.loads("".join(re.findall(r"```toml\n(.*?)```\n", PAGE, re.DOTALL)))["project"]["entry-points"]
TEMPLATES = {name: text for name, text in FILES.items() if name.startswith("my_plugins/")}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as an installer leaves it."""
    return install(tmp_path / "site", "my-plugins", GROUPS, TEMPLATES, monkeypatch)


def test_there_is_a_template_of_30_lines_or_less_for_each_kind() -> None:
    assert len(GROUPS) == 4
    assert sum(map(len, GROUPS.values())) == 6, "and three log adapters"
    assert len(TEMPLATES) == 6 + 1, "an adapter to a trainer has no entry point"
    assert {name: len(text.splitlines()) for name, text in TEMPLATES.items() if len(text.splitlines()) > 30} == {}


def test_each_is_found_by_its_name(site: Path) -> None:
    assert "brackets" in call_format_names()
    assert type(call_format("brackets")).__name__ == "Brackets"
    assert type(Graders({})["keywords"]).__name__ == "Keywords"
    assert sorted(LOG_ADAPTERS.others()) == ["dialogue", "events", "steps"]
    assert log_format("steps").name == detect({"agent": "steps", "log": []}) == "steps"
    assert detect({"dialogue": [{"who": "bot", "says": "2"}]}) == "dialogue"
    assert TOOLS.load("notes", longest=3).stateful


def test_an_adapter_needs_no_more_than_the_face() -> None:
    adapters = [text for name, text in FILES.items() if "log_adapters" in text or "sFormat" in text]
    imported = {module for text in adapters for module in re.findall(r"from (cleaner_rl\S*) import", text)}
    assert imported == {"cleaner_rl.logs", "cleaner_rl.contracts.log_adapters"}


def test_their_own_tests_pass(site: Path, tmp_path: Path) -> None:
    for name, text in FILES.items():
        if name.startswith("tests/"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            str(tmp_path / "tests"),
        ],
        env={**os.environ, "PYTHONPATH": f"{site}:{ROOT / 'src'}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"\b50 passed", ran.stdout), "one class for each template, five to nine tests each"
