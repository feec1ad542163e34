"""The README's example does what the README says it does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def block(kind: str, fence: str) -> str:
    found = re.search(rf"<!-- {kind} -->\n{fence}\w*\n(.*?)\n{fence}\n", README, re.DOTALL)
    assert found, f"the README has no block marked '{kind}'"
    return found[1]


def test_the_example_prints_the_before_and_after_that_the_readme_shows() -> None:
    program = block("example: repair", "```")
    assert len(program.splitlines()) <= 40
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.rstrip("\n") == block("output: repair", "~~~")
