from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cleaner_rl.trajectory import Key, TextSpan, Trajectory, Turn, token_span
from cleaner_rl.view.tokens import tokens_of

TEXT = "Größe: 東京 🙂🙂 x_1 = 2\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["Größe x_1 = 2"] * 3,
        trainers.BpeTrainer(vocab_size=270, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False),
    )
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path


def test_tokens_have_their_texts_and_a_split_character_stands_with_its_last(tokenizer: Path) -> None:
    ids = Tokenizer.from_file(str(tokenizer)).encode(TEXT + "<|end|>").ids
    span = token_span(TEXT + "<|end|>", ids, [-0.5] * len(ids), 3)
    spans = tokens_of(Trajectory(token_span("", []), (Turn(span),)), tokenizer)
    assert spans is not None
    told = spans[1]
    assert "".join(told["texts"]) == TEXT + "<|end|>"
    assert len(told["texts"]) == len(ids)
    assert told["texts"][-1] == "<|end|>"
    assert "🙂" in told["texts"]
    assert told["logprobs"] == [-0.5] * len(ids)
    assert told["version"] == 3


def test_another_models_ids_are_shown_as_numbers(tokenizer: Path, tmp_path: Path) -> None:
    found = Trajectory(token_span("x", [999_999]), key=Key())
    wrong = Trajectory(token_span("something else", [65, 66]), key=Key())
    (tmp_path / "tokenizer.json").write_text(json.dumps({"decoder": {"type": "Metaspace"}, "model": {"vocab": {}}}))
    (tmp_path / "broken.json").write_text("{")
    for trajectory in (found, wrong):
        for path in (tokenizer, tmp_path / "tokenizer.json", tmp_path / "broken.json", None):
            spans = tokens_of(trajectory, path)
            assert spans is not None
            assert spans[0]["texts"] is None


def test_a_text_trajectory_has_no_tokens() -> None:
    assert tokens_of(Trajectory(TextSpan("x")), None) is None


def test_a_log_prob_that_json_lacks_is_null() -> None:
    spans = tokens_of(Trajectory(token_span("", []), (Turn(token_span("ab", [1, 2], [float("-inf"), -1.0])),)), None)
    assert spans is not None
    assert spans[1]["logprobs"] == [None, -1.0]
