"""A pupil of a few seconds: too little to learn anything, enough to show that all that is made can be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.toy.folder import made, shown
from benchmarks.toy.model import Lessons, train_model
from benchmarks.toy.regimes import REGIMES
from cleaner_rl.tasks import read_verl
from tests.toy_site import site

__all__ = ["site"]

LESSONS = Lessons(demonstrations=48, epochs=2, batch=16, width=64, layers=1, heads=2, vocabulary=512)


@pytest.fixture(scope="module")
def folder(site: Path) -> Path:
    return made(REGIMES["drift"], LESSONS, site)


def test_a_folder_holds_what_it_says(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    world = json.loads((folder / "toy.json").read_text())
    assert world["losses"][1] < world["losses"][0]
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    assert model.config.head_dim == 32
    assert model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    train, test = (list(read_verl(folder / f"{split}.parquet")) for split in ("train", "test"))
    assert {each.id for each in train}.isdisjoint(each.id for each in test)
    assert len((folder / "train.jsonl").read_text().splitlines()) == len(train)


def test_the_same_settings_are_made_once_and_others_apart(folder: Path, site: Path) -> None:
    before = (folder / "model" / "model.safetensors").stat().st_mtime_ns
    assert made(REGIMES["drift"], LESSONS, site) == folder
    assert (folder / "model" / "model.safetensors").stat().st_mtime_ns == before
    assert made(REGIMES["drift"], Lessons(demonstrations=8, epochs=1, width=32, heads=1), site) != folder


def test_a_pupil_is_the_same_for_a_seed(folder: Path, site: Path) -> None:
    import torch
    from safetensors.torch import load_file

    lesson = shown(REGIMES["drift"], LESSONS.demonstrations, LESSONS.seed, site)
    again, _, losses = train_model(lesson, REGIMES["drift"], LESSONS)
    assert losses == json.loads((folder / "toy.json").read_text())["losses"]
    kept = load_file(folder / "model" / "model.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in again.state_dict().items() if name in kept)
