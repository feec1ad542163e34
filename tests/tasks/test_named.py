"""Tasks as a command line names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cleaner_rl.tasks import DatasetError, Message, Task, load_named, load_prompt, load_tasks, write_verl

TASKS = [Task(f"mine/{n}", (Message("user", f"What is {n} + 1?"),), "math", str(n + 1)) for n in range(3)]


def test_a_file_with_a_data_sets_columns(tmp_path: Path) -> None:
    file = tmp_path / "copy.jsonl"
    file.write_text(json.dumps({"ID": "I-1", "Problem": "What is 1 + 1?", "Answer": 2}))
    assert load_named(f"aime24={file}") == ("aime24", load_tasks("aime24", file))


def test_a_short_name_is_the_long_one(tmp_path: Path) -> None:
    file = tmp_path / "gpqa.jsonl"
    file.write_text(json.dumps({"problem": "Which? A) one B) two", "solution": "B"}))
    name, loaded = load_named(f"gpqa={file}")
    assert name == "gpqa-diamond"
    assert loaded.tasks[0].truth == "B"


def test_own_tasks(tmp_path: Path) -> None:
    lines = tmp_path / "mine.jsonl"
    lines.write_text("".join(json.dumps(task.to_json()) + "\n" for task in TASKS))
    rows = tmp_path / "mine.parquet"
    write_verl(rows, TASKS, load_prompt("stateless"), "agent")
    for file in (lines, rows):
        name, loaded = load_named(str(file))
        assert name == "mine"
        assert list(loaded.tasks) == TASKS


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "a"}')
    with pytest.raises(DatasetError, match="'prompt'"):
        load_named(str(file))
    with pytest.raises(DatasetError, match="no file"):
        load_named(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(DatasetError, match="aime24"):
        load_named("aime99")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("prompt", 5, "prompt"),
        ("prompt", [{"role": "user"}], "prompt"),
        ("prompt", " ", "asks nothing"),
    ],
)
def test_a_row_that_is_no_task_is_named_with_its_file(column: str, value: object, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [TASKS[0].to_json(), {**TASKS[1].to_json(), column: value}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DatasetError, match=f"mine.jsonl, row 2: .*{said}"):
        load_named(str(file))
