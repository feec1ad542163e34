"""The store as others see it: DuckDB and Hugging Face datasets, without our code; and a copy that DuckDB made."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import Edit, Key, RepairKind, RepairMode, TextSpan, TokenSpan, Trajectory, Turn, token_span
from cleaner_rl.trajectory.store import JsonlWriter, ParquetWriter, read

STATUSES = {1: [Status.OK, Status.ERROR], 2: [Status.TIMEOUT, Status.FAULT, Status.ERROR], 10: [Status.OK]}


def asked(query: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def turn(status: Status, edit: Edit[TokenSpan] | None = None) -> Turn[TokenSpan]:
    return Turn(
        token_span("think 🙂 ", [5, 6], [-0.5, -0.25], version=4),
        token_span("act", [7], [-0.1]),
        token_span("seen", [8, 9, 10]),
        (ToolCall("python", {"code": "1/0"}, "1/0", 0, 3),),
        (ToolResult(status, "out", seconds=0.5),),
        edit=edit,
    )


def trajectories() -> list[Trajectory[TokenSpan]]:
    repaired = turn(Status.OK, Edit(RepairMode.SAAR, RepairKind.GRAFT, (turn(Status.ERROR), turn(Status.OK)), 0.75))
    made = [
        Trajectory(token_span("prompt", [1, 2]), tuple(map(turn, statuses)), Key("a run", step, "t", 0), reward=0.5)
        for step, statuses in STATUSES.items()
    ]
    return [*made, Trajectory(token_span("prompt", [3]), (repaired,), Key("a run", 10, "t", 1), success=True)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with ParquetWriter(tmp_path / "store") as writer:
        for trajectory in trajectories():
            writer.write(trajectory)
    return tmp_path / "store"


def test_duckdb_counts_failed_calls_per_step(store: Path) -> None:
    counted = asked(f"""
        select step, count(*) filter (result.status not in ('ok', 'fault')) as failed
        from (
            select step, unnest(turn.results) as result
            from (
                select step, unnest(turns) as turn
                from read_parquet('{store}/**/*.parquet', hive_partitioning=true)
            )
        )
        group by step order by step
    """)
    assert counted == [
        (step, sum(result.failed for each in trajectories() if each.key.step == step for result in all_results(each)))
        for step in STATUSES
    ]
    assert [failed for _, failed in counted] == [1, 2, 0]


def all_results(trajectory: Trajectory[TokenSpan]) -> list[ToolResult]:
    return [result for each in trajectory.turns for result in each.results]


def test_duckdb_sees_the_same_numbers(store: Path) -> None:
    rows = asked(f"""
        select run, prompt.ids, turns[1].reasoning.sampled, turns[1].reasoning.sampled_version,
               turns[1].edit.similarity, len(replaced), replaced[1].under, replaced[1].results[1].status
        from read_parquet('{store}/**/*.parquet', hive_partitioning=true) where step = 10 order by rollout
    """)
    assert rows == [
        ("a run", [1, 2], [-0.5, -0.25], 4, None, 0, None, None),
        ("a run", [3], [-0.5, -0.25], 4, 0.75, 2, 0, "error"),
    ]


def test_a_copy_that_duckdb_made_is_a_store(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.parquet"
    asked(f"copy (select * from read_parquet('{store}/**/*.parquet') order by step, rollout) to '{copy}'")
    assert list(read(copy)) == trajectories()


def test_datasets_sees_the_same_numbers(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    files = [str(file) for file in sorted(store.rglob("*.parquet"), key=lambda each: int(each.parent.name[5:]))]
    rows = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert len(rows) == len(trajectories())
    for row, expected in zip(rows, trajectories(), strict=True):
        assert (row["run"], row["step"], row["task"], row["rollout"]) == (
            "a run",
            expected.key.step,
            "t",
            expected.key.rollout,
        )
        assert row["prompt"]["ids"] == expected.prompt.ids.tolist()
        seen = [
            row["prompt"],
            *(each[part] for each in row["turns"] for part in ("reasoning", "action", "observation")),
        ]
        assert "".join(span["text"] for span in seen) == expected.text
        assert [token for span in seen for token in span["ids"]] == expected.ids().tolist()
        sampled = np.array([value for span in seen for value in span["sampled"] or []], np.float32)
        assert sampled.tobytes() == expected.behaviour_logprobs()[expected.loss_mask()].tobytes()


def test_duckdb_reads_jsonl_too(tmp_path: Path) -> None:
    with JsonlWriter(tmp_path / "log.jsonl") as writer:
        for trajectory in trajectories():
            writer.write(trajectory)
        writer.write(Trajectory(TextSpan("text only"), key=Key("a run", 11)))
    rows = asked(f"""
        select step, prompt.ids, turns[1].edit.original[1].results[1].status
        from read_json('{tmp_path}/log.jsonl') where step >= 10 order by step, rollout
    """)
    assert rows == [(10, [1, 2], None), (10, [3], "error"), (11, None, None)]
