from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cleaner_rl.train.rows import RowConfig, View, Views, group_rows
from cleaner_rl.trajectory import Key, Scores, TextSpan, TokenSpan, Trajectory, Turn, token_span
from cleaner_rl.view.tokens import tokens_of
from tests.view.stores import broken, clean, replaced

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
    spans = tokens_of(Trajectory(token_span("", []), (Turn(span),)), tokenizer)["spans"]
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
            spans = tokens_of(trajectory, path)["spans"]
            assert spans is not None
            assert spans[0]["texts"] is None


def test_a_text_trajectory_has_no_tokens() -> None:
    assert tokens_of(Trajectory(TextSpan("x")), None) == {"spans": None, "recovery": None}


def test_a_log_prob_that_json_lacks_is_null() -> None:
    turn = Turn(token_span("ab", [1, 2], [float("-inf"), -1.0]))
    spans = tokens_of(Trajectory(token_span("", []), (turn,)), None)["spans"]
    assert spans is not None
    assert spans[1]["logprobs"] == [None, -1.0]


def test_each_view_has_the_tokens_and_the_loss_mask_of_its_training_row() -> None:
    right = rescored(replaced())
    wrong = replace(broken(), reward=-1.0)
    made = group_rows([right, wrong], RowConfig(views=Views.FULL))
    rows = {row.view: row for row in made.rows if row.key == right.key}

    told = tokens_of(right, None)

    for view, spans in ((View.CLEAN, told["spans"]), (View.RECOVERY, told["recovery"])):
        assert spans is not None
        shown = [(token, span["learnt"]) for span in spans[1:] for token in span["ids"]]
        row = rows[view]
        assert shown == list(zip(row.response_ids.tolist(), row.loss_mask.tolist(), strict=True))
    recovery = told["recovery"]
    assert recovery is not None
    assert [span["learnt"] for span in recovery if span["turn"] == 0] == [False] * 3
    assert not any(span["moved"] for span in recovery)


def test_a_wrong_or_unrepaired_rollout_has_no_recovery_view() -> None:
    assert tokens_of(clean(), None)["recovery"] is None
    assert tokens_of(replace(replaced(), success=False), None)["recovery"] is None


def rescored(found: Trajectory[TokenSpan]) -> Trajectory[TokenSpan]:
    """As a trainer gets it: with log-probs of the tokens that the edit moved."""

    def scored(span: TokenSpan) -> TokenSpan:
        return replace(span, rescored=Scores(np.zeros(len(span), np.float32)))

    return replace(found, turns=tuple(turn.with_spans(scored) for turn in found.turns))
