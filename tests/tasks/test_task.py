"""Tasks as data: JSON and verl's rows, both ways."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tasks import Message, Task, from_verl, load_prompt, read_verl, write_verl
from cleaner_rl.tasks.datasets import DatasetError, to_verl
from tests.tasks.builders import task

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
TASKS = st.builds(
    Task,
    id=TEXT.filter(bool),
    prompt=st.lists(st.builds(Message, TEXT, TEXT.filter(str.strip)), min_size=1, max_size=3).map(tuple),
    grader=TEXT,
    truth=TEXT,
    source=TEXT,
    split=TEXT,
    extra=st.dictionaries(TEXT, VALUES, max_size=3),
)
PROMPT = load_prompt("stateless")


@given(TASKS)
def test_a_task_survives_json(made: Task) -> None:
    assert Task.from_json(json.loads(json.dumps(made.to_json()))) == made


@given(TASKS)
def test_a_task_survives_verls_row(made: Task) -> None:
    assert from_verl(to_verl(made, 0, PROMPT, "cleaner")) == made


def test_a_task_survives_verls_file_and_the_file_has_verls_columns(tmp_path: Path) -> None:
    made = [dataclasses.replace(task(name=f"made/{n}"), extra={"n": n}) for n in range(9)]
    assert write_verl(tmp_path / "train.parquet", made, PROMPT, "cleaner") == 9
    assert list(read_verl(tmp_path / "train.parquet")) == made
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert list(rows[3]) == ["data_source", "prompt", "ability", "reward_model", "extra_info", "agent_name"]
    assert rows[3]["reward_model"] == {"style": "rule", "ground_truth": "5"}
    assert (rows[3]["extra_info"]["index"], rows[3]["agent_name"]) == (3, "cleaner")
    assert [message["role"] for message in rows[3]["prompt"]] == ["system", "user"]


def test_the_reference_stands_nowhere_but_in_its_column() -> None:
    row = to_verl(task(truth="7351902846"), 0, PROMPT, "cleaner")
    del row["reward_model"]
    assert "7351902846" not in json.dumps(row)


def test_a_row_of_somebody_else_is_refused_with_the_column() -> None:
    with pytest.raises(DatasetError, match="'task'"):
        from_verl({"extra_info": {"index": 0}, "reward_model": {"ground_truth": "5"}})


def test_a_task_is_immutable_and_asks_something() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        task().truth = "6"  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"\bid\b"):
        task(name="")
    with pytest.raises(ValueError, match="nothing"):
        task(question=" ")


@pytest.mark.parametrize("prompt", [5, ["text"], None])
def test_a_prompt_that_is_none_is_refused(prompt: object) -> None:
    with pytest.raises(ValueError, match="list of messages"):
        Task.from_json({**task().to_json(), "prompt": prompt})


def test_a_question_is_what_the_user_says() -> None:
    made = Task("a", (Message("system", "s"), Message("user", "one"), Message("user", "two")), "math", "5")
    assert made.question == "one\n\ntwo"
