"""Rows of `cleaner purify --sft-for verl` in verl's SFT data set, with its tokenizer and template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from tests.logs.cases import CASES
from tests.logs.rendering import RENDERED

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from benchmarks.models import TEMPLATE, train_tokenizer

    made = train_tokenizer(["print(1 + 1)", "The answer is 2.", "Traceback"] * 50, 512)
    made.chat_template = TEMPLATE.read_text()
    return made


def learnt(dataset: Any, index: int) -> str:
    row = dataset[index]
    return str(dataset.tokenizer.decode(row["input_ids"][row["loss_mask"] == 1]))


def rows_of(variant: str, tmp_path: Path, *options: str) -> list[str]:
    logs = tmp_path / "logs.jsonl"
    logs.write_text("".join(json.dumps(RENDERED[variant](case)) + "\n" for case in CASES))
    arguments = ["purify", str(logs), "--out", str(tmp_path / "out"), "--sft-for", "verl", *options]
    ran = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return sorted(map(str, (tmp_path / "out/sft").rglob("*.parquet")))


@pytest.mark.parametrize("variant", ["openai", "openai, hermes", "verl", "inspect", "atif"])
def test_verl_s_data_set_learns_what_the_agent_said(variant: str, tmp_path: Path, tokenizer: Any) -> None:
    from omegaconf import OmegaConf

    from cleaner_rl.train.launch.sft_data import MaskedSFTDataset

    files = rows_of(variant, tmp_path, "--clean-only")
    config = OmegaConf.create({"max_length": 4096, "truncation": "error", "ignore_input_ids_mismatch": True})
    dataset = MaskedSFTDataset(files, tokenizer, config)
    first = learnt(dataset, 0)
    assert "I add." in first, "the graft's reasoning"
    assert "print(1 + 1)" in first
    assert "print(1 + )" not in first
    assert "The answer is 2." in first
    assert "What is 1 + 1?" not in first
    assert "SyntaxError" not in tokenizer.decode(dataset[0]["input_ids"])


def test_a_call_that_failed_and_stayed_is_context_and_no_example(tmp_path: Path, tokenizer: Any) -> None:
    from omegaconf import OmegaConf

    from cleaner_rl.train.launch.sft_data import MaskedSFTDataset

    files = rows_of("openai", tmp_path)
    config = OmegaConf.create({"max_length": 4096, "truncation": "error", "ignore_input_ids_mismatch": True})
    number = next(index for index, case in enumerate(CASES) if case.name == "a failure that nobody mended")
    masked = MaskedSFTDataset(list(files), tokenizer, config)
    assert "print(1 + )" not in learnt(masked, number)
    assert "The answer is 2." in learnt(masked, number)
    assert "print(1 + )" in tokenizer.decode(masked[number]["input_ids"])
