"""A writer that is killed: no earlier file is lost, and no reader ever sees half of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cleaner_rl.trajectory import Key, TextSpan, Trajectory
from cleaner_rl.trajectory.store import JsonlWriter, ParquetWriter, files, read

VICTIM = """
import sys
from pathlib import Path
from cleaner_rl.trajectory import Key, TextSpan, Trajectory
from cleaner_rl.trajectory.store import JsonlWriter, ParquetWriter, parquet

folder, kind = sys.argv[1:]
parquet.ROWS_IN_GROUP = 8

def rows(count):
    return [Trajectory(TextSpan("p" * 1000), key=Key("run", 0, "task", number)) for number in range(count)]

def writer(name):
    return ParquetWriter(folder) if kind == "parquet" else JsonlWriter(Path(folder) / name)

with writer("first.jsonl") as first:
    for row in rows(3):
        first.write(row)
with writer("second.jsonl") as second:
    for row in rows(100):
        second.write(row)
    print("written", flush=True)
    sys.stdin.read()  # until the end, which comes from outside
"""


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_killed_writer_loses_only_the_unfinished_file(tmp_path: Path, kind: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(tmp_path), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "written\n"
        assert [each.key.rollout for each in read(tmp_path)] == [0, 1, 2], "half a file can be seen"
        victim.kill()
    assert victim.returncode == -9
    assert [each.key.rollout for each in read(tmp_path)] == [0, 1, 2]
    [left_behind] = tmp_path.rglob(f"*{files.UNFINISHED}")
    assert left_behind.name.startswith(".")

    more = Trajectory(TextSpan("more"), key=Key("run", 0, "task", 3))
    with ParquetWriter(tmp_path) if kind == "parquet" else JsonlWriter(tmp_path / "third.jsonl") as writer:
        writer.write(more)
    assert [each.key.rollout for each in read(tmp_path)] == [0, 1, 2, 3]
