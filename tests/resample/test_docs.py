"""The method's page shows code that runs and says what it does."""

import re
from pathlib import Path

import pytest

from cleaner_rl.resample import PlainConfig, RocConfig

PAGE = (Path(__file__).parents[2] / "docs" / "methods" / "grpo-roc.md").read_text()


def test_the_example_runs_and_keeps_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    kept = capsys.readouterr().out
    assert kept.startswith("(1, 2, ")
    assert kept.endswith(" None\n")


def test_the_table_has_the_defaults() -> None:
    config = RocConfig()
    assert f"| `RocConfig.keep` | {config.keep} |" in PAGE
    assert f"| `min_positive`, `min_negative` | {config.min_positive}, {config.min_negative} |" in PAGE
    assert f"| `positives` | `{config.positives}` |" in PAGE
    assert f"| `softness` | {config.softness} |" in PAGE
    assert f"| `quality_of` | `{config.quality_of}` |" in PAGE
    assert f"| `PlainConfig.minimum` | {PlainConfig().minimum} |" in PAGE
