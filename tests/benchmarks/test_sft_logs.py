"""Fine-tuning on logs: what each way of preparing them has in the loss, and how worlds are summed up."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.sft_logs import FIGURES, WAYS, Sizes, best_rates, encode, paired, prepared, summarized, table
from benchmarks.sft_logs_world import REGIMES, World, demonstrations, vocabulary
from benchmarks.toy import library
from benchmarks.toy.questions import TEST, TRAIN
from cleaner_rl.logs import Record
from cleaner_rl.rollout import ChatRenderer

KEPT = Path("benchmarks/results/sft_logs.json")
WORLD = World(replace(REGIMES["slips"], seed=7))


@pytest.fixture(scope="module")
def shown(site: Path) -> list[Record]:
    return asyncio.run(demonstrations(WORLD, 40, site / "sft"))


def failed(row: Record) -> int:
    return sum(message["role"] == "tool" and "Error: " in message["content"] for message in row["messages"])


def test_held_out_tasks_are_not_among_those_of_the_logs() -> None:
    train, test = ({each.id for each in WORLD.tasks(split)} for split in (TRAIN, TEST))
    assert train.isdisjoint(test)
    assert len(test) > 100


def test_demonstrations_fail_and_end_with_what_the_last_program_printed(shown: list[Record]) -> None:
    assert sum(map(failed, shown)) > 10
    for row in shown:
        *_, program, result, answer = row["messages"]
        assert "```python\nimport kit\n" in program["content"]
        assert answer["content"] == f"\\boxed{{{result['content']}}}"


def test_the_loss_is_on_the_assistants_own_words(shown: list[Record]) -> None:
    chat = ChatRenderer(vocabulary(shown), WORLD.prompt.tools, in_template=False)
    row = max(shown, key=failed)
    lesson = encode(row, chat)
    said = "".join(f"{each['content']}<|im_end|>" for each in row["messages"] if each["role"] == "assistant")
    assert chat.vocabulary.decode(lesson.ids[lesson.own].astype(np.int32)).text == said
    only_last = encode({**row, "loss_mask": [0] * (len(row["messages"]) - 1) + [1]}, chat)
    assert chat.vocabulary.decode(only_last.ids[only_last.own].astype(np.int32)).text.startswith("\\boxed{")


def chat_log(*programs: tuple[str, str]) -> Record:
    messages = [{"role": "user", "content": "Take [7, 3, 2]: sort them, then give the total."}]
    for program, result in programs:
        messages.append({"role": "assistant", "content": f"I sort.\n```python\nimport kit\n{program}\n```"})
        messages.append({"role": "tool", "content": result})
    return {"messages": [*messages, {"role": "assistant", "content": "\\boxed{12}"}], "success": True}


def test_each_way_takes_its_own_turns_into_the_loss(site: Path) -> None:
    names = dict.fromkeys(library.OPERATIONS, "of")
    folder = site / "prepared"
    library.write(folder / "kit", names, hint=True)
    right = "print(kit.total_of(kit.sort_of([7, 3, 2])))"
    cut = right.removesuffix(")")
    told = f"  File \"main.py\", line 2\n    {cut}\n         ^\nSyntaxError: '(' was never closed"
    logs = folder / "logs.jsonl"
    records = [chat_log((right, "12")), chat_log((cut, told), (right, "12"))]
    records[1]["messages"][0]["content"] += " Please."  # the same conversation would be written once
    logs.write_text("".join(json.dumps(each) + "\n" for each in records))
    rows, summary = prepared(logs, folder)
    masks = {way: [each["loss_mask"] for each in rows[way]] for way in WAYS}
    clean, repaired = [0, 1, 0, 1], [[0, 1, 0, 1], [0, 1, 0, 1]]
    assert masks == {
        "raw": [clean, [0, 1, 0, 1, 0, 1]],
        "masked": [clean, [0, 0, 0, 1, 0, 1]],
        "dropped": [clean],
        "purified": repaired,
        "every_correction": repaired,
    }
    assert (summary["edits"], summary["replayed"]) == ({"graft": 1}, {"same": 1})
    assert rows["purified"][1]["messages"][1:] == rows["raw"][0]["messages"][1:]


def test_a_difference_is_the_mean_over_worlds_with_its_t_interval() -> None:
    found = paired([-1.0, 0.0, 1.0])
    assert found["mean"] == 0.0
    assert found["high"] == pytest.approx(2.92 / 3**0.5, abs=1e-3)
    assert found["low"] == -found["high"]


def world(seed: int, **accuracy: dict[str, float]) -> dict[str, Any]:
    def figures(value: float) -> dict[str, float]:
        return {**dict.fromkeys(FIGURES, value), "rows": 1, "tokens_in_loss": 10}

    ways = {way: {rate: figures(value) for rate, value in accuracy[way].items()} for way in WAYS}
    return {"seed": seed, "start": figures(0.1), **ways}


def test_each_way_has_its_own_best_learning_rate() -> None:
    tried = world(0, **{way: {"0.001": 0.4, "0.003": 0.5 if way == "raw" else 0.3} for way in WAYS})
    rates = best_rates([tried], Sizes(rates=(0.001, 0.003)))
    assert rates == {way: 0.003 if way == "raw" else 0.001 for way in WAYS}
    found = summarized([tried, tried], rates)
    assert found["raw"]["accuracy"] == 0.5
    assert found["purified"]["against_raw"]["accuracy"] == {"mean": -0.1, "low": -0.1, "high": -0.1}


def test_the_docs_have_the_kept_figures() -> None:
    docs = Path("docs/logs.md").read_text()
    for figures in json.loads(KEPT.read_text())["figures"].values():
        assert len(figures["worlds"]) == 5
        assert table(figures["summary"]) in docs
