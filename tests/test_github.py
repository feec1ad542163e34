"""What GitHub reads is valid, runs scripts that are there, and runs no action that can change under its name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", "workflows/*.yml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
        ("dependabot", "dependabot.yml"),
        ("citation-file-format", "../CITATION.cff"),
    ],
)
def test_a_file_is_what_its_schema_says(schema: str, pattern: str) -> None:
    files = sorted(map(str, GITHUB.glob(pattern)))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout


def test_each_action_is_pinned_to_a_commit() -> None:
    lines = [line for file in GITHUB.glob("workflows/*.yml") for line in file.read_text().splitlines()]
    used = [line.strip().removeprefix("- ") for line in lines if "uses:" in line]
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []


def test_folders_and_scripts_that_are_named_are_there() -> None:
    dependabot = yaml.safe_load((GITHUB / "dependabot.yml").read_text())
    folders = [
        each for update in dependabot["updates"] for each in update.get("directories", [update.get("directory")])
    ]
    jobs = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())["jobs"]
    packages = [each["folder"] for each in jobs["run"]["strategy"]["matrix"]["include"]]
    assert [each for each in folders if not (ROOT / each.strip("/")).is_dir()] == []
    assert [each for each in packages if not (ROOT / each / ".ci" / "run").is_file()] == []
