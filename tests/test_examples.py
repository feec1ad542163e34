"""The examples are short, and those that need no engine run (`tests/engine` and `tests/trl` run the others)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MOST_LINES = {"train_loop.py": 130, "purify_one.py": 30, "sandbox_client.py": 32, "trl_gpu.py": 90, "trl_grpo.py": 120}


def test_the_examples_are_short() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == MOST_LINES.keys()
    for name, most in MOST_LINES.items():
        assert len((EXAMPLES / name).read_text().splitlines()) <= most, name


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("purify_one.py", ["3 turns", "2 turns, graft", "undone: True"]),
        ("sandbox_client.py", ["ok, '42\\n'", "[3, 1, 2]"]),
    ],
)
def test_an_example_runs(name: str, printed: list[str]) -> None:
    command = [sys.executable, str(EXAMPLES / name)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [each for each in printed if each not in ran.stdout] == []
