"""The method's page shows code that runs and says what it does."""

import re
from pathlib import Path

import pytest

from cleaner_rl.resample import PlainPolicy, RocPolicy

PAGE = (Path(__file__).parents[2] / "docs" / "methods" / "grpo-roc.md").read_text()


def test_the_example_runs_and_keeps_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    kept = capsys.readouterr().out
    assert kept.startswith("(1, 2, ")
    assert kept.endswith(" 0\n")


def test_the_table_has_the_defaults() -> None:
    policy = RocPolicy()
    assert f"| `RocPolicy.keep` | {policy.keep} |" in PAGE
    assert f"| `min_positive`, `min_negative` | {policy.min_positive}, {policy.min_negative} |" in PAGE
    assert f"| `positives` | `{policy.positives}` |" in PAGE
    assert f"| `softness` | {policy.softness} |" in PAGE
    assert f"| `quality_of` | `{policy.quality_of}` |" in PAGE
    assert f"| `PlainPolicy.minimum` | {PlainPolicy().minimum} |" in PAGE
