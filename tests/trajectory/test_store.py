"""Both formats: what goes in comes out, bit for bit; and what readers without our code see."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.trajectory import AnyTrajectory, Key, Phase, RolloutInfo, Scores, TextSpan, TokenSpan, Trajectory
from cleaner_rl.trajectory.store import (
    JsonlWriter,
    ParquetWriter,
    StoreError,
    bounded_batches,
    files,
    parquet,
    read,
    read_at,
    record,
)
from cleaner_rl.trajectory.store.record import SCHEMA_VERSION
from tests.generators import any_trajectories, frozen
from tests.profile import examples


def write(writer: ParquetWriter | JsonlWriter, trajectories: Iterable[AnyTrajectory]) -> None:
    with writer as opened:
        for trajectory in trajectories:
            opened.write(trajectory)


def numbered(count: int, run: str = "run", step: int = 0) -> list[AnyTrajectory]:
    return [Trajectory(TextSpan("p"), key=Key(run, step, "task", number)) for number in range(count)]


def in_store_order(trajectories: Iterable[AnyTrajectory]) -> list[AnyTrajectory]:
    return sorted(trajectories, key=lambda each: (parquet._quoted(each.key.run), each.key.step))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(any_trajectories, max_size=3))
def test_parquet_gives_back_what_it_got(trajectories: list[AnyTrajectory]) -> None:
    with TemporaryDirectory() as folder:
        write(ParquetWriter(folder), trajectories)
        if trajectories:
            assert sorted(read(folder), key=repr) == sorted(trajectories, key=repr)
        assert not [each for each in Path(folder).rglob("*") if each.name.endswith(files.UNFINISHED)]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(any_trajectories, max_size=3))
def test_jsonl_gives_back_what_it_got(trajectories: list[AnyTrajectory]) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "some.jsonl"
        write(JsonlWriter(file), trajectories)
        assert list(read(file)) == trajectories
        assert all(json.loads(line, parse_constant=pytest.fail) for line in file.read_bytes().splitlines())


def odd_floats() -> Trajectory[TokenSpan]:
    floats = frozen(np.array([np.nan, -np.inf, -0.0, -1e-45, -0.1, np.inf], np.float32))
    span = TokenSpan("odd", frozen(np.arange(6, dtype=np.int32)), Scores(floats, 2), Scores(floats))
    return Trajectory(span, reward=float("-inf"), info=RolloutInfo(other={"limit": float("inf")}))


@pytest.mark.parametrize("writer", [ParquetWriter, JsonlWriter])
def test_floats_that_json_cannot_spell_come_back(
    tmp_path: Path, writer: type[ParquetWriter] | type[JsonlWriter]
) -> None:
    write(writer(tmp_path / "store"), [odd_floats()])
    [found] = read(tmp_path / "store")
    assert found == odd_floats()


@pytest.mark.parametrize("writer", [ParquetWriter, JsonlWriter])
def test_a_nan_reward_comes_back(tmp_path: Path, writer: type[ParquetWriter] | type[JsonlWriter]) -> None:
    write(writer(tmp_path / "store"), [Trajectory(TextSpan(""), reward=float("nan"))])
    [found] = read(tmp_path / "store")
    assert found.reward is not None
    assert np.isnan(found.reward)


@pytest.mark.parametrize("writer", [ParquetWriter, JsonlWriter])
def test_what_was_read_cannot_be_written_to(tmp_path: Path, writer: type[ParquetWriter] | type[JsonlWriter]) -> None:
    write(writer(tmp_path / "store"), [odd_floats()])
    [found] = read(tmp_path / "store")
    assert isinstance(found.prompt, TokenSpan)
    assert found.prompt.sampled is not None
    for array in (found.prompt.ids, found.prompt.sampled.logprobs):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_many_rows_keep_their_order_over_groups_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_IN_GROUP", 4)
    monkeypatch.setattr(parquet, "ROWS_IN_FILE", 12)
    write(ParquetWriter(tmp_path), numbered(30))
    assert list(read(tmp_path)) == numbered(30)
    assert [pq.read_metadata(file).num_row_groups for file in files.find(tmp_path)] == [3, 3, 2]


def test_a_large_group_is_read_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trajectories = [
        Trajectory(replace(odd_floats().prompt, text=str(number)), key=Key("run", 0, "task", number))
        for number in range(20)
    ]
    write(ParquetWriter(tmp_path), trajectories)
    monkeypatch.setattr(parquet, "ROWS_IN_GROUP", 3)
    assert list(read(tmp_path)) == trajectories


def test_partitions_are_by_run_and_step_and_read_in_order(tmp_path: Path) -> None:
    written = [each for step in (10, 9) for run in ("b", "a/b", "") for each in numbered(2, run, step)]
    write(ParquetWriter(tmp_path), written)
    folders = {str(file.parent.relative_to(tmp_path)) for file in files.find(tmp_path)}
    assert folders == {f"run={run}/phase=training/step={step}" for run in ("b", "a%2Fb", "") for step in (9, 10)}
    assert list(read(tmp_path)) == in_store_order(written)


@pytest.mark.parametrize("writer", [ParquetWriter, JsonlWriter])
def test_one_phase_is_read_alone(tmp_path: Path, writer: type[ParquetWriter] | type[JsonlWriter]) -> None:
    training = numbered(2)
    evaluation = [replace(each, key=replace(each.key, phase=Phase.EVALUATION)) for each in numbered(2)]
    write(writer(tmp_path / "store"), training + evaluation)
    assert list(read(tmp_path / "store", Phase.TRAINING)) == training
    assert list(read(tmp_path / "store", Phase.EVALUATION)) == evaluation


def test_only_some_partitions_are_open_at_a_time(tmp_path: Path) -> None:
    rounds = [numbered(1, step=step)[0] for _ in range(2) for step in range(parquet.OPEN_PARTITIONS + 1)]
    writer = ParquetWriter(tmp_path)
    with writer:
        for trajectory in rounds:
            writer.write(trajectory)
            assert len(list(tmp_path.rglob(f"*{files.UNFINISHED}"))) <= parquet.OPEN_PARTITIONS
    assert list(read(tmp_path)) == in_store_order(rounds)


def test_appending_adds_files_and_touches_none(tmp_path: Path) -> None:
    write(ParquetWriter(tmp_path), numbered(3))
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files.find(tmp_path)}
    write(ParquetWriter(tmp_path), numbered(2))
    assert all((file.stat().st_mtime_ns, file.read_bytes()) == content for file, content in before.items())
    assert list(read(tmp_path)) == numbered(3) + numbered(2)


def test_a_part_of_a_store_is_a_store(tmp_path: Path) -> None:
    write(ParquetWriter(tmp_path), numbered(2, "a") + numbered(3, "b"))
    [file] = files.find(tmp_path / "run=b")
    assert list(read(tmp_path / "run=b")) == list(read(str(file))) == numbered(3, "b")


def test_a_folder_may_hold_both_formats(tmp_path: Path) -> None:
    write(JsonlWriter(tmp_path / "log.jsonl"), numbered(1))
    write(ParquetWriter(tmp_path), numbered(2))
    assert list(read(tmp_path)) == numbered(1) + numbered(2)


def test_reading_can_stop_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_IN_GROUP", 4)
    write(ParquetWriter(tmp_path), numbered(30))
    trajectories = read(tmp_path)
    assert next(trajectories) == numbered(1)[0]
    trajectories.close()  # type: ignore[attr-defined]  # an iterator for callers, a generator in truth


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_block_that_raises_leaves_no_file(tmp_path: Path, kind: str) -> None:
    writer = ParquetWriter(tmp_path) if kind == "parquet" else JsonlWriter(tmp_path / "log.jsonl")

    def interrupted() -> Iterator[AnyTrajectory]:
        yield numbered(1)[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(writer, interrupted())
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_a_file_that_cannot_be_finished_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = files.publish

    def full(temporary: Path, name: Path) -> None:
        if "step=1" in str(name):
            raise OSError("no space left")
        publish(temporary, name)

    monkeypatch.setattr(parquet, "publish", full)
    with pytest.raises(OSError, match="no space left"):
        write(ParquetWriter(tmp_path), [numbered(1, step=step)[0] for step in range(3)])
    assert [each.key.step for each in read(tmp_path)] == [0, 2]
    assert not list(tmp_path.rglob(f"*{files.UNFINISHED}"))


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    ("kind", "bad", "advice"),
    [
        ("parquet", Trajectory(TextSpan("\ud800")), "lone surrogate"),
        ("jsonl", Trajectory(TextSpan("\ud800")), "lone surrogate"),
        ("parquet", Trajectory(TextSpan(""), key=Key(run="\ud800")), "lone surrogate"),
        ("parquet", Trajectory(TextSpan(""), info=RolloutInfo(other={"array": np.zeros(1)})), "JSON values"),
        ("jsonl", Trajectory(TextSpan(""), info=RolloutInfo(other={"array": np.zeros(1)})), "JSON values"),
        ("parquet", Trajectory(TextSpan(""), info=RolloutInfo(other=nested(100_000))), "nested too deeply"),
        ("jsonl", Trajectory(TextSpan(""), info=RolloutInfo(other=nested(100_000))), "nested too deeply"),
        ("parquet", Trajectory(TextSpan(""), key=Key(rollout=2**70)), "64 bits"),
    ],
)
def test_what_cannot_be_stored_is_named(tmp_path: Path, kind: str, bad: Trajectory[TextSpan], advice: str) -> None:
    bad = replace(bad, key=replace(bad.key, task="the culprit"))
    with pytest.raises(StoreError, match=f"the culprit.*{advice}"):
        write(ParquetWriter(tmp_path) if kind == "parquet" else JsonlWriter(tmp_path / "log"), [*numbered(2, ""), bad])
    assert not [each for each in tmp_path.rglob("*") if each.is_file() and (not bad.key.run or "run=%" in str(each))]


def test_a_group_that_is_at_fault_as_a_whole_blames_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table_of_one = record._table_of

    def too_large_together(trajectories: Sequence[AnyTrajectory]) -> object:
        if len(trajectories) > 1:
            raise OverflowError("more than 2 GB")
        return table_of_one(trajectories)

    monkeypatch.setattr(record, "_table_of", too_large_together)
    with pytest.raises(OverflowError, match="more than 2 GB"):
        write(ParquetWriter(tmp_path), numbered(2))


def test_the_same_trajectories_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(ParquetWriter(tmp_path / name), [*numbered(3), odd_floats()])
    one, two = ([file.read_bytes() for file in files.find(tmp_path / name)] for name in ("one", "two"))
    assert one == two


def test_reading_and_writing_need_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_IN_GROUP", 4)
    peak = 0

    def watched(trajectories: Iterable[AnyTrajectory]) -> Iterator[AnyTrajectory]:
        nonlocal peak
        for trajectory in trajectories:
            peak = max(peak, pa.total_allocated_bytes())
            yield trajectory

    ids = frozen(np.arange(10_000, dtype=np.int32))
    row_size = ids.nbytes
    write(ParquetWriter(tmp_path), watched(Trajectory(TokenSpan("", ids)) for _ in range(400)))
    assert sum(1 for _ in watched(read(tmp_path))) == 400
    assert peak < 50 * row_size, "of 400 rows"


def test_the_slim_import_leaves_pyarrow_alone() -> None:
    check = "import sys, cleaner_rl.trajectory; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_jsonl_never_writes_over_a_file(tmp_path: Path) -> None:
    write(JsonlWriter(tmp_path / "log.jsonl"), numbered(1))
    with pytest.raises(StoreError, match="new name"):
        JsonlWriter(tmp_path / "log.jsonl")
    assert list(read(tmp_path / "log.jsonl")) == numbered(1)


def test_what_is_no_store_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such"):
        list(read(tmp_path / "nowhere"))
    with pytest.raises(StoreError, match=r"\.parquet.*\.jsonl"):
        list(read(tmp_path))
    for number, content in enumerate([b"hello\n", b"[1]\n", b'{"a": 1}\n', b'{"schema_version": 1}\n', b"\xff\n"]):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(content)
        with pytest.raises(StoreError, match=f"{number}.jsonl"):
            list(read(file))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(StoreError, match="isn't ours"):
        list(read(tmp_path / "other.parquet"))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    write(ParquetWriter(tmp_path), numbered(3))
    [file] = files.find(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(StoreError, match=r"part-00000"):
        list(read(tmp_path))


def test_a_row_that_makes_no_sense_is_no_crash(tmp_path: Path) -> None:
    write(ParquetWriter(tmp_path), numbered(1))
    [file] = files.find(tmp_path)
    table = pq.read_table(file, partitioning=None)
    position = table.schema.get_field_index("stop_reason")
    pq.write_table(table.set_column(position, table.schema.field(position), pa.array(["bored"])), file)
    with pytest.raises(StoreError, match="'bored' is not a valid StopReason"):
        list(read(tmp_path))


@pytest.mark.parametrize(
    ("version", "advice"), [(SCHEMA_VERSION + 1, "upgrade cleaner-rl"), (SCHEMA_VERSION - 1, "make it again")]
)
def test_a_schema_of_another_version_is_refused_with_advice(tmp_path: Path, version: int, advice: str) -> None:
    write(ParquetWriter(tmp_path), numbered(1))
    [file] = files.find(tmp_path)
    table = pq.read_table(file, partitioning=None)
    others = pa.array([version], pa.int32())
    for metadata in ({b"cleaner_rl.schema_version": str(version).encode()}, None):
        changed = table.set_column(0, "schema_version", others).replace_schema_metadata(metadata)
        pq.write_table(changed, file)
        with pytest.raises(StoreError, match=f"schema version {version}.*{advice}"):
            list(read(tmp_path))
    (tmp_path / "log").write_text(json.dumps({"schema_version": version}))
    with pytest.raises(StoreError, match=f"schema version {version}.*{advice}"):
        list(read(tmp_path / "log"))


def test_one_trajectory_is_read_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_IN_GROUP", 3)
    trajectories = [replace(each, info=RolloutInfo(other={"place": place})) for place, each in enumerate(numbered(8))]
    write(ParquetWriter(tmp_path / "store"), trajectories)
    write(JsonlWriter(tmp_path / "store.jsonl"), trajectories)
    (part,) = (tmp_path / "store").rglob("*.parquet")
    for file in (part, tmp_path / "store.jsonl"):
        assert [read_at(file, place) for place in range(8)] == trajectories
        with pytest.raises(StoreError, match="row 8"):
            read_at(file, 8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("info", "[" * 100_000),
        ("info", "[1]"),
        ("turns", 5),
        ("prompt", "text"),
        ("reward", "high"),
        ("step", [1]),
        ("rollout", 2**63),
    ],
)
def test_finding_line_that_no_store_wrote_is_named(field: str, value: object, tmp_path: Path) -> None:
    write(JsonlWriter(tmp_path / "store.jsonl"), numbered(1))
    record = json.loads((tmp_path / "store.jsonl").read_text())
    (tmp_path / "store.jsonl").write_text(json.dumps(record | {field: value}))
    with pytest.raises(StoreError, match=r"line 1 of .*store\.jsonl"):
        list(read(tmp_path / "store.jsonl"))


def test_finding_deep_info_in_parquet_is_named(tmp_path: Path) -> None:
    write(ParquetWriter(tmp_path / "store"), numbered(1))
    (part,) = (tmp_path / "store").rglob("*.parquet")
    table = pq.read_table(part)
    place = table.schema.get_field_index("info")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(["[" * 100_000])), part)
    with pytest.raises(StoreError, match=part.name):
        list(read(tmp_path / "store"))


@given(st.lists(any_trajectories, min_size=2, max_size=4))
@settings(deadline=None, max_examples=examples(25))
def test_reading_one_equals_reading_all(trajectories: list[AnyTrajectory]) -> None:
    with TemporaryDirectory() as folder:
        write(ParquetWriter(folder), trajectories)
        for file in files.find(Path(folder)):
            everything = list(read(file))
            assert [read_at(file, place) for place in range(len(everything))] == everything


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other locks")
@pytest.mark.parametrize(("problem", "told"), [(errno.EWOULDBLOCK, "another process"), (errno.ENOLCK, "locks")])
def test_a_folder_that_cant_be_locked_says_why(
    problem: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(files.BusyError, match=told), files.only_writer(tmp_path / ".lock"):
        pass


def test_finding_rows_that_expand_beyond_what_their_file_explains_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary holds a text once, and any number of rows have it."""
    monkeypatch.setattr(parquet, "EXPANDED_BYTES", 1 << 20)
    row = record.table_of([Trajectory(TextSpan("x" * 10_000), key=Key("run", 0, "sum", 0))])
    bomb = tmp_path / "bomb.parquet"
    pq.write_table(pa.concat_tables([row] * 2_000), bomb, use_dictionary=True)
    read_rows: list[AnyTrajectory] = []
    with pytest.raises(StoreError, match=r"bomb\.parquet .* 250 times"):
        read_rows.extend(read(bomb))
    assert 0 < len(read_rows) <= max(1 << 20, 250 * bomb.stat().st_size) // 10_000


def test_rows_that_are_large_are_decoded_a_few_at_a_time(tmp_path: Path) -> None:
    for length, rows in ((1_000, parquet.ROWS_IN_GROUP), (1_000_000, parquet.FEW_ROWS)):
        file = tmp_path / f"{length}.parquet"
        row = record.table_of([Trajectory(TextSpan("x" * length), key=Key("run", 0, "sum", 0))])
        pq.write_table(pa.concat_tables([row] * 100), file, use_dictionary=False)
        with pq.ParquetFile(file) as opened:
            assert len(next(bounded_batches(opened, file))) == min(100, rows)
