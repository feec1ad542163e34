"""Tasks as the rows that verl trains on: data_source, prompt, ability, reward_model, extra_info, agent_name.

The whole task, but for its reference, travels as JSON text in `extra_info.task`, so that the reward function gets back
exactly what was written, whatever prompt was put around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from cleaner_rl.tasks.datasets.rows import Row, read_file
from cleaner_rl.tasks.prompts import Prompt
from cleaner_rl.tasks.task import Task


def to_verl(task: Task, index: int, prompt: Prompt, agent_name: str) -> dict[str, object]:
    """Return a task as a row; `agent_name` is the agent loop that verl should run for it."""
    values = task.to_json()
    del values["truth"]
    return {
        "data_source": task.source,
        "prompt": [{"role": message.role, "content": message.content} for message in prompt.messages(task)],
        "ability": task.grader,
        "reward_model": {"style": "rule", "ground_truth": task.truth},
        "extra_info": {"index": index, "split": task.split, "task": json.dumps(values, ensure_ascii=False)},
        "agent_name": agent_name,
    }


def from_verl(row: Mapping[str, object]) -> Task:
    """Read the task that `to_verl` wrote."""
    return _task(Row(row, 1, "a row of verl's"))


def write_verl(path: str | Path, tasks: Iterable[Task], prompt: Prompt, agent_name: str) -> int:
    """Write tasks as verl's Parquet file, and return how many there were."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    schema = pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct({"index": pa.int64(), "split": text, "task": text}),
            "agent_name": text,
        }
    )
    rows = [to_verl(task, index, prompt, agent_name) for index, task in enumerate(tasks)]
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return len(rows)


def read_verl(path: str | Path) -> Iterator[Task]:
    """Read the tasks of a file that `write_verl` wrote."""
    with closing(read_file(Path(path))) as rows:
        yield from map(_task, rows)


def _task(row: Row) -> Task:
    values = row.struct("extra_info").struct("task").values
    return Task.from_json({**values, "truth": row.struct("reward_model").need("ground_truth")})
