"""`cleaner purify` on files of every kind: as a command, in pieces, in processes, and killed in the middle."""

from __future__ import annotations

import errno
import json
import os
import signal
import struct
import subprocess
import sys
import zipfile
import zlib
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from datasets import load_dataset

from cleaner_rl.cli import main
from cleaner_rl.logs.jobs import alone
from cleaner_rl.logs.places import open_file
from cleaner_rl.logs.records import write_record
from cleaner_rl.trajectory import RolloutInfo, TextSpan, Trajectory, without_hindsight
from cleaner_rl.trajectory.store import JsonlWriter, ParquetWriter, read
from tests.builders import answered, as_text, trajectory, unread, worked
from tests.logs.cases import CASES, Case, Step, py
from tests.logs.rendering import RENDERED, hermes, inspect, openai, verl
from tests.restricted import DOCKERS_CAPABILITIES, cleaner


def cleaned(*arguments: str | Path, exit_code: int = 0) -> Any:
    ran = CliRunner().invoke(main, ["purify", *map(str, arguments), "--no-replay", "--json"])
    assert ran.exit_code == exit_code, ran.output
    return json.loads(ran.stdout) if exit_code == 0 else ran.output


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_eval(path: Path) -> dict[str, Any]:
    members = {"header.json": {"version": 2, "status": "success"}, "summaries.json": [{"id": 1}]}
    members |= {f"samples/{number}_epoch_1.json": inspect(case) for number, case in enumerate(CASES)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in members.items():
            archive.writestr(name, json.dumps(value))
    return members


@pytest.mark.parametrize("variant", RENDERED)
def test_jsonl_comes_back_and_is_repaired(variant: str, tmp_path: Path) -> None:
    records = [RENDERED[variant](case) for case in CASES]
    source = write_lines(tmp_path / "some.log", records)
    off = cleaned(source, "--out", tmp_path / "off", "--method", "mask", "--same")
    assert lines(tmp_path / "off/same/some.log") == records
    assert (off["trajectories"], off["edited"]) == (20, 0)
    on = cleaned(source, "--out", tmp_path / "on", "--same")
    assert on["edits"] == {"graft": 7, "replace": 1}
    assert on["repaired_turns"] == 9
    changed = lines(tmp_path / "on/same/some.log")
    for case, before, after in zip(CASES, records, changed, strict=True):
        assert (after == before) is ("graft" not in case.expected and "replace" not in case.expected), case.name


def test_parquet_keeps_its_columns_and_types(tmp_path: Path) -> None:
    rows = [{**openai(case), "day": number, "raw": b"\x00\xff"} for number, case in enumerate(CASES)]
    table = pa.Table.from_pylist(rows)
    table = table.set_column(table.column_names.index("day"), "day", table["day"].cast(pa.int32()).cast(pa.date32()))
    pq.write_table(table, tmp_path / "logs.parquet", row_group_size=7)
    cleaned(tmp_path / "logs.parquet", "--out", tmp_path / "off", "--method", "mask", "--same")
    parts = sorted((tmp_path / "off/same").iterdir())
    assert [part.name for part in parts] == ["logs-00000.parquet", "logs-00001.parquet", "logs-00002.parquet"]
    assert pa.concat_tables([pq.read_table(part) for part in parts]).equals(table)
    assert cleaned(tmp_path / "logs.parquet", "--out", tmp_path / "on")["edits"] == {"graft": 7, "replace": 1}


def test_columns_that_json_has_no_words_for_are_named_where_nothing_is_left_to_read(tmp_path: Path) -> None:
    messages = [{**message, "at": datetime(2026, 1, 1)} for message in openai(CASES[4])["messages"][:2]]
    pq.write_table(pa.Table.from_pylist([{"messages": messages, "n": 1, "raw": b"1"}]), tmp_path / "a.parquet")
    told = " ".join(cleaned(tmp_path / "a.parquet", "--out", tmp_path / "out", exit_code=1).split())
    assert "'n'" in told
    assert "'messages' (timestamp[us]), 'raw' (binary)" in told


def test_an_eval_log_keeps_its_other_members(tmp_path: Path) -> None:
    members = write_eval(tmp_path / "run.eval")
    cleaned(tmp_path / "run.eval", "--out", tmp_path / "off", "--method", "mask", "--same")
    with zipfile.ZipFile(tmp_path / "off/same/run.eval") as archive:
        assert {name: json.loads(archive.read(name)) for name in archive.namelist()} == members
    assert cleaned(tmp_path / "run.eval", "--out", tmp_path / "on")["edits"] == {"graft": 7, "replace": 1}


def test_members_that_inspect_compressed_with_zstd_are_read(tmp_path: Path) -> None:
    sample = json.dumps(inspect(CASES[0])).encode()
    packed = pa.compress(sample, "zstd", asbytes=True)
    name = b"samples/s_epoch_1.json"
    sizes = struct.pack("<IIIHH", zlib.crc32(sample), len(packed), len(sample), len(name), 0)
    local = b"PK\x03\x04" + struct.pack("<HHHHH", 63, 0, 93, 0, 0) + sizes + name
    central = b"PK\x01\x02" + struct.pack("<HHHHHH", 63, 63, 0, 93, 0, 0) + sizes + bytes(14) + name
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    (tmp_path / "run.eval").write_bytes(local + packed + central + end)
    assert cleaned(tmp_path / "run.eval", "--out", tmp_path / "out", "--same")["edits"] == {"graft": 1}
    with zipfile.ZipFile(tmp_path / "out/same/run.eval") as archive:
        assert len(json.loads(archive.read(name.decode()))["messages"]) == 4
    (tmp_path / "bad.eval").write_bytes(local + packed[:-9] + bytes(9) + central + end)
    ran = CliRunner().invoke(main, ["purify", str(tmp_path / "bad.eval"), "--out", str(tmp_path / "x")])
    assert ran.exit_code == 1


def test_our_own_store_is_repaired_too(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path / "store") as writer:
        writer.write(trajectory(unread(), worked("print(1 + 1)"), answered()))
        text = trajectory(worked(), answered())
        asked = RolloutInfo(messages=[{"role": "user", "content": "?"}], tools=[{"name": "python"}])
        writer.write(Trajectory(TextSpan("?"), tuple(map(as_text, text.turns)), text.key, info=asked))
    found = cleaned(tmp_path / "store", "--out", tmp_path / "out", "--sft", "jsonl")
    (row,) = lines(tmp_path / "out/sft/part-000000.jsonl")
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert row["messages"][1]["content"] == text.turns[0].text
    assert row["messages"][2]["content"] == "2"
    assert row["tools"] == [{"type": "function", "function": {"name": "python"}}]
    assert (found["trajectories"], found["edited"], found["repaired_turns"]) == (2, 1, 1)
    assert found["tokens_before"] > found["tokens_after"] > 0
    assert found["characters_before"] == found["characters_after"] > 0
    assert [len(each.edits) for each in read(tmp_path / "out/store")] == [1, 0]


def test_a_folder_of_all_kinds_in_small_pieces_and_two_processes(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    write_lines(logs / "a.jsonl", [openai(case) for case in CASES] * 3)
    write_lines(logs / "deep/7.jsonl", [verl(case) for case in CASES])
    write_eval(logs / "deep/run.eval")
    (logs / "settings.json").write_text('{"lr": 1}')
    (logs / "notes.txt").write_text("hello\n")
    # Nothing is as small as a megabyte here, so the size of a piece is set below the command.
    from cleaner_rl.logs.plans import plan

    made = plan([str(logs)], None, size=9_000)
    assert len(made.units) > 5
    assert [Path(line.split(" ")[0]).name for line in made.skipped] == ["notes.txt", "settings.json"]
    one = cleaned(logs, "--out", tmp_path / "one")
    two = cleaned(logs, "--out", tmp_path / "two", "--jobs", "2")
    assert {**one, "out": ""} == {**two, "out": ""}
    assert one["trajectories"] == 100
    assert one["edits"] == {"graft": 35, "replace": 5}


def test_logs_of_one_name_are_all_written_again(tmp_path: Path) -> None:
    for number, run in enumerate(("run1", "run2")):
        (tmp_path / run).mkdir()
        write_lines(tmp_path / run / "log.jsonl", [openai(CASES[number])])
    logs = tmp_path / "run1/log.jsonl", tmp_path / "run2/log.jsonl"
    cleaned(*logs, "--out", tmp_path / "out", "--same", "--method", "mask")
    for number, run in enumerate(("run1", "run2")):
        assert lines(tmp_path / "out/same" / run / "log.jsonl") == [openai(CASES[number])]


def test_a_log_that_two_places_hold_is_read_once(tmp_path: Path) -> None:
    write_lines(tmp_path / "log.jsonl", [openai(CASES[0])])
    assert cleaned(tmp_path, tmp_path / "log.jsonl", "--out", tmp_path / "out")["trajectories"] == 1


def test_results_below_the_logs_are_no_logs(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    write_lines(logs / "a.jsonl", [openai(CASES[0])])
    arguments = logs, "--out", logs / "deep/clean", "--same", "--sft", "jsonl"
    first = cleaned(*arguments)
    assert first["trajectories"] == 1
    assert cleaned(*arguments) == first, "a finished run only says again what it did"
    other = cleaned(logs, "--out", tmp_path / "other")
    assert other["trajectories"] == 1
    (told,) = other["skipped_files"]
    assert told.startswith(f"{logs}/deep/clean ")
    assert "`cleaner purify`" in told
    assert cleaned(logs / "deep/clean/same", "--out", tmp_path / "named")["trajectories"] == 1
    assert "`cleaner purify`" in cleaned(logs / "deep/clean", "--out", tmp_path / "all", exit_code=1)


def test_what_a_killed_run_left_below_the_logs_is_no_log(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [openai(CASES[0])])
    arguments = tmp_path, "--out", tmp_path / "out", "--same"
    cleaned(*arguments)
    (unit,) = (tmp_path / "out/units").iterdir()
    unit.unlink()
    assert cleaned(*arguments)["trajectories"] == 1


def test_lines_are_split_between_pieces_without_loss_or_doubling(tmp_path: Path) -> None:
    from cleaner_rl.logs.containers import chunks_of
    from cleaner_rl.logs.plans import plan

    records = [{"messages": [{"role": "user", "content": "x" * (number % 50)}], "n": number} for number in range(200)]
    write_lines(tmp_path / "a.jsonl", records)
    for size in (1, 7, 64, 100, 1_000, 100_000):
        pieces = [piece for unit in plan([str(tmp_path)], None, size).units for piece, _ in unit.pieces]
        found = [record for piece in pieces for chunk in chunks_of(piece) for record in chunk.records]
        assert found == records, size


def test_what_cannot_be_read_goes_through_untouched(tmp_path: Path) -> None:
    good = json.dumps(openai(CASES[0]))
    branched = RENDERED["verifiers"](CASES[0])
    branched["traces"][0]["nodes"][3]["parent"] = 0
    odd = [
        good,
        '{"messages": [{"role": "user", "content": "cut of',
        '{"messages": "none"}',
        '{"messages": [{"role": "assistant", "content": "\\ud800"}]}',
        "[1, 2]",
        json.dumps(hermes(CASES[0]) | {"messages": hermes(CASES[0])["messages"] + openai(CASES[0])["messages"]}),
    ]
    (tmp_path / "odd.jsonl").write_text("\n".join(odd) + "\n")
    found = cleaned(tmp_path / "odd.jsonl", "--out", tmp_path / "out", "--same", "--sft", "jsonl")
    assert sum(found["not_read"].values()) == 5
    assert found["not_read"]["text that is not valid JSON"] == 1
    out = (tmp_path / "out/same/odd.jsonl").read_text().splitlines()
    assert out[1:] == odd[1:]
    assert found["sft_rows"] == 1
    write_lines(tmp_path / "traces.jsonl", [branched, RENDERED["verifiers"](CASES[4])])
    found = cleaned(tmp_path / "traces.jsonl", "--out", tmp_path / "two", "--same")
    assert found["not_read"] == {"a trace with branches": 1}
    assert lines(tmp_path / "two/same/traces.jsonl")[0] == branched


def test_logs_of_which_no_record_can_be_read_are_an_error_in_words(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"messages": "none"}, {"messages": []}, [1]])
    told = cleaned(tmp_path / "a.jsonl", "--from", "atif", "--out", tmp_path / "out", exit_code=1)
    assert "2 a record without the steps of an ATIF trajectory; 1 JSON that is not an object" in told
    assert "--from" in told
    (tmp_path / "empty.jsonl").write_text("")
    assert "is empty" in cleaned(tmp_path / "empty.jsonl", "--from", "atif", "--out", tmp_path / "2", exit_code=1)


def test_a_log_that_a_row_cannot_hold_is_repaired_and_makes_none(tmp_path: Path) -> None:
    seen = openai(CASES[0])
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen["messages"][1]["content"] = [{"type": "text", "text": seen["messages"][1]["content"]}, picture]
    source = write_lines(tmp_path / "a.jsonl", [seen, openai(CASES[0])])
    found = cleaned(source, "--out", tmp_path / "out", "--sft", "jsonl")
    assert (found["edited"], found["sft_rows"]) == (2, 1)
    assert found["no_row"] == {"a content with a part of the type image_url": 1}
    told = CliRunner().invoke(main, ["purify", str(source), "--out", str(tmp_path / "two"), "--sft", "jsonl"])
    assert "no row       1: " in told.output
    assert "image_url" in told.output


def odd_records() -> dict[str, Any]:
    """Records that no store can hold as trajectories."""
    program = openai(CASES[0])
    program["messages"][2]["tool_calls"][0]["function"]["arguments"] = '{"code": "print(\'\\ud800\')"}'
    return {
        "program": program,
        "task": openai(CASES[0]) | {"task_id": "\ud800"},
        "rollout": openai(CASES[0]) | {"rollout": 2**63},
        "reward": openai(CASES[0]) | {"reward": 10**400},
    }


@pytest.mark.parametrize("odd", odd_records())
def test_a_record_that_no_store_holds_goes_through_as_it_is(odd: str, tmp_path: Path) -> None:
    records = [openai(CASES[4]), odd_records()[odd]]
    source = write_lines(tmp_path / "a.jsonl", records)
    found = cleaned(source, "--out", tmp_path / "out", "--same", "--sft", "jsonl")
    assert sum(found["not_read"].values()) == found["sft_rows"] == 1
    assert lines(tmp_path / "out/same/a.jsonl") == records
    assert [write_record(each) for each in read(tmp_path / "out/store")] == records  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_is_no_unicode_makes_no_row_and_the_others_do(kind: str, tmp_path: Path) -> None:
    described, identified = openai(CASES[0]), openai(CASES[0])
    described["tools"] = [{"type": "function", "function": {"name": "python", "description": "\ud800"}}]
    for message in identified["messages"][2:4]:
        message["tool_call_id"] = "\ud800"
    source = write_lines(tmp_path / "a.jsonl", [described, identified, openai(CASES[0])])
    found = cleaned(source, "--out", tmp_path / "out", "--sft", kind)
    assert (found["trajectories"], found["sft_rows"]) == (3, 1)


def test_bytes_that_are_no_text_come_back_as_they_were(tmp_path: Path) -> None:
    log = json.dumps(openai(CASES[4])).encode() + b'\n{"messages": "\xff\xfe \xc3\xa9\r\n\xed\xa0\x80\n'
    (tmp_path / "odd.jsonl").write_bytes(log)
    cleaned(tmp_path / "odd.jsonl", "--out", tmp_path / "out", "--same")
    out = (tmp_path / "out/same/odd.jsonl").read_bytes()
    assert out.splitlines(keepends=True)[1:] == log.splitlines(keepends=True)[1:]
    stored = [write_record(each) for each in read(tmp_path / "out/store")][1:]  # type: ignore[arg-type]
    assert [text.encode(errors="surrogateescape") for text in stored] == [
        b'{"messages": "\xff\xfe \xc3\xa9\r', b"\xed\xa0\x80"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "first", ['{"messages": [{"role": "us', 'ser", "content": "?"}]}', '{"messages": [', "cut, off"]
)
def test_a_first_line_that_is_broken_costs_no_more_than_itself(first: str, tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text(f"{first}\n\n" + "".join(json.dumps(openai(case)) + "\n" for case in CASES))
    found = cleaned(tmp_path / "cut.jsonl", "--out", tmp_path / "out")
    assert (found["trajectories"], found["not_read"]) == (21, {"text that is not valid JSON": 1})


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("records", [[openai(CASES[0])], [openai(CASES[0])] * 2, openai(CASES[0])])
def test_a_document_is_known_however_it_is_indented(indent: int | None, records: Any, tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps(records, indent=indent))
    found = cleaned(tmp_path / "log.json", "--out", tmp_path / "out")
    assert found["trajectories"] == (len(records) if isinstance(records, list) else 1)


def test_a_damaged_file_costs_no_more_than_itself(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    write_lines(logs / "a.jsonl", [openai(CASES[0])])
    pq.write_table(pa.Table.from_pylist([openai(CASES[0])]), logs / "b.parquet")
    write_eval(logs / "c.eval")
    for name in ("b.parquet", "c.eval"):
        (logs / name).write_bytes((logs / name).read_bytes()[:-100])
    found = cleaned(logs, "--out", tmp_path / "out")
    assert found["trajectories"] == 1
    assert [line.split(" ")[0] for line in found["skipped_files"]] == [str(logs / "b.parquet"), str(logs / "c.eval")]
    assert f"{logs}/b.parquet is damaged" in cleaned(logs / "b.parquet", "--out", tmp_path / "x", exit_code=1)


@pytest.mark.parametrize("options", [[], ["--roc", "2"], ["--same"]])
def test_of_a_log_that_is_damaged_further_in_the_beginning_is_read(options: list[str], tmp_path: Path) -> None:
    write_eval(tmp_path / "a.eval")
    with zipfile.ZipFile(tmp_path / "a.eval") as archive:
        damaged = archive.getinfo("samples/2_epoch_1.json")
    data = bytearray((tmp_path / "a.eval").read_bytes())
    data[damaged.header_offset + 60] ^= 1
    (tmp_path / "a.eval").write_bytes(data)
    write_lines(tmp_path / "b.jsonl", [openai(CASES[0])])
    found = cleaned(tmp_path / "a.eval", tmp_path / "b.jsonl", "--out", tmp_path / "out", *options)
    assert found["trajectories"] == 3
    (message,) = found["damaged"]
    assert message.startswith(f"{tmp_path}/a.eval is damaged (Bad CRC-32 for file 'samples/2_epoch_1.json')")


@pytest.mark.parametrize("options", [[], ["--roc", "2"]])
def test_of_a_store_with_a_line_that_is_cut_the_beginning_is_read(options: list[str], tmp_path: Path) -> None:
    with JsonlWriter(tmp_path / "store.jsonl") as writer:
        for _ in range(3):
            writer.write(trajectory(unread(), worked("print(1 + 1)"), answered()))
    whole = (tmp_path / "store.jsonl").read_bytes()
    (tmp_path / "store.jsonl").write_bytes(whole[: -len(whole) // 6])
    found = cleaned(tmp_path / "store.jsonl", "--out", tmp_path / "out", *options)
    assert (found["trajectories"], found["edited"]) == (2, 2)
    (message,) = found["damaged"]
    assert message.startswith(f"line 3 of {tmp_path}/store.jsonl can't be read")


def test_a_file_that_may_not_be_read_costs_no_more_than_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "a.jsonl", [openai(CASES[0])])
    write_lines(tmp_path / "b.jsonl", [openai(CASES[0])])

    def open_or_not(uri: str) -> Any:
        if uri.endswith("a.jsonl"):
            raise PermissionError(errno.EACCES, "Permission denied", uri)
        return open_file(uri)

    monkeypatch.setattr("cleaner_rl.logs.containers.open_file", open_or_not)
    found = cleaned(tmp_path, "--out", tmp_path / "out")
    told = f"{tmp_path}/a.jsonl can't be opened: Permission denied; let this user read it, or leave it out"
    assert (found["trajectories"], found["skipped_files"]) == (1, [told])
    assert told in cleaned(tmp_path / "a.jsonl", "--out", tmp_path / "x", exit_code=1)


def test_a_sample_that_is_no_json_goes_through_as_it_is(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "run.eval", "w") as archive:
        archive.writestr("samples/1_epoch_1.json", json.dumps(inspect(CASES[0])))
        archive.writestr("samples/2_epoch_1.json", b'{"id": \xff')
    found = cleaned(tmp_path / "run.eval", "--out", tmp_path / "out", "--same")
    assert found["not_read"] == {"text that is not valid JSON": 1}
    with zipfile.ZipFile(tmp_path / "out/same/run.eval") as archive:
        assert archive.read("samples/2_epoch_1.json") == b'{"id": \xff'


def test_a_log_with_chunked_samples_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "run.eval", "w") as archive:
        archive.writestr("samples/1_epoch_1/chunk_1.json", "{}")
    assert f"{tmp_path}/run.eval has chunked samples" in cleaned(
        tmp_path / "run.eval", "--out", tmp_path / "out", exit_code=1
    )


def test_rows_for_supervised_training(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [openai(case) for case in CASES])
    found = cleaned(source, "--out", tmp_path / "out", "--sft", "jsonl")
    rows = lines(tmp_path / "out/sft/part-000000.jsonl")
    assert found["sft_rows"] == len(rows) == 20
    first = rows[0]
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert first["loss_mask"] == [0, 0, 1, 0, 1]
    assert first["messages"][2]["content"] == CASES[0].steps[0].said
    assert first["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"code": "print(1 + 1)"}
    uncorrected = next(
        row for row, case in zip(rows, CASES, strict=True) if case.name == "a failure that nobody mended"
    )
    assert uncorrected["loss_mask"] == [0, 0, 0, 0, 1], "a failing call is no example"
    clean = cleaned(source, "--out", tmp_path / "clean", "--sft", "jsonl", "--clean-only")
    assert clean["sft_rows"] < 20
    for row in lines(tmp_path / "clean/sft/part-000000.jsonl"):
        assistants = [message["role"] == "assistant" for message in row["messages"]]
        assert row["loss_mask"] == [int(each) for each in assistants], "what verl's own data set does"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rows_are_read_by_hugging_face_datasets(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [openai(case) for case in CASES])
    cleaned(source, "--out", tmp_path / "jsonl", "--sft", "jsonl")
    cleaned(source, "--out", tmp_path / "parquet", "--sft", "parquet")
    (part,) = (tmp_path / "parquet/sft").rglob("*.parquet")
    table = load_dataset("parquet", data_files=str(part), split="train", cache_dir=str(tmp_path / "cache"))
    rows = lines(tmp_path / "jsonl/sft/part-000000.jsonl")
    assert [row["tools"] for row in table] == [row["tools"] for row in rows]
    assert [row["loss_mask"] for row in table] == [row["loss_mask"] for row in rows]
    for wide, row in zip(table["messages"], rows, strict=True):
        narrow = [{name: value for name, value in message.items() if value is not None} for message in wide]
        assert narrow == row["messages"]


def test_tools_with_different_parameters_are_not_given_empty_ones(tmp_path: Path) -> None:
    record = openai(CASES[0])
    other = {"type": "function", "function": {"name": "search", "parameters": {"properties": {"query": {}}}}}
    record["tools"] = [*record["tools"], other]
    source = write_lines(tmp_path / "a.jsonl", [record])
    cleaned(source, "--out", tmp_path / "out", "--sft", "parquet")
    (part,) = (tmp_path / "out/sft").rglob("*.parquet")
    assert json.loads(pq.read_table(part)["tools"].to_pylist()[0]) == record["tools"]


@pytest.mark.parametrize(
    "parameters",
    [
        [{"type": "object", "properties": {}}],
        [{"additionalProperties": False}, {"additionalProperties": {"type": "string"}}],
        [{"properties": {"x": {"type": "string"}}}, {"properties": {"x": {"type": ["string", "null"]}}}],
        [{"properties": {"x": {"maximum": 2**70}}}],
    ],
)
def test_tools_that_arrow_cannot_hold_are_json_text(parameters: list[Any], tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": each}} for each in parameters]
    source = write_lines(tmp_path / "a.jsonl", [openai(CASES[0]) | {"tools": tools}])
    cleaned(source, "--out", tmp_path / "out", "--sft", "parquet")
    (part,) = (tmp_path / "out/sft").rglob("*.parquet")
    assert json.loads(pq.read_table(part)["tools"].to_pylist()[0]) == tools


def test_roc_keeps_the_cleanest_attempts(tmp_path: Path) -> None:
    clean, repaired, lost = CASES[4], CASES[0], CASES[6]
    attempts = [repaired, clean, repaired, clean, lost, lost, repaired, clean]
    records = [{**openai(case), "task_id": "sum"} for case in attempts]
    alone = {**openai(repaired), "task_id": "alone"}
    source = write_lines(tmp_path / "a.jsonl", [*records, alone])
    found = cleaned(source, "--out", tmp_path / "out", "--roc", "4", "--sft", "jsonl")
    assert found["roc"] == {"kept": 4, "dropped": 4}
    assert (found["sft_rows"], found["duplicate_rows"]) == (3, 2), "and the task with one attempt keeps it"
    assert found["trajectories"] == 9, "the store holds all, with the reason"
    kept = [each for each in read(tmp_path / "out/store") if (each.info.verdict or {}).get("kept")]
    assert sorted(each.reward or 0.0 for each in kept) == [0.0, 0.0, 1.0, 1.0]
    assert all(not each.edits for each in kept), "natively clean successes come before repaired ones"


def test_an_attempt_that_ended_in_a_fault_needs_no_outcome(tmp_path: Path) -> None:
    samples = [{**inspect(CASES[4 if number % 2 else 6]), "epoch": number} for number in range(6)]
    faulted = {**inspect(CASES[4]), "epoch": 6, "scores": None, "error": {"message": "the sandbox died"}}
    source = write_lines(tmp_path / "a.jsonl", [*samples, faulted])
    found = cleaned(source, "--out", tmp_path / "out", "--roc", "4")
    assert found["roc"] == {"kept": 4, "dropped": 3}
    unknown = write_lines(tmp_path / "b.jsonl", [*samples, {**faulted, "error": None}])
    assert cleaned(unknown, "--out", tmp_path / "unknown", "--roc", "4")["roc"] == {}, "one that may have been solved"


def test_another_run_s_folder_is_not_written_to(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [openai(case) for case in CASES])
    cleaned(source, "--out", tmp_path / "out")
    again = cleaned(source, "--out", tmp_path / "out")
    assert again["trajectories"] == 20, "a finished run only says again what it did"
    told = " ".join(cleaned(source, "--out", tmp_path / "out", "--threshold", "0.9", exit_code=1).split())
    assert "holds the results of another run: --threshold was 0.5, is 0.9. " in told
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    assert "holds other files" in cleaned(source, "--out", tmp_path / "mine", exit_code=1)
    assert f"{tmp_path}/none" in cleaned(tmp_path / "none", "--out", tmp_path / "x", exit_code=1)
    (tmp_path / "b.txt").write_text("hello")
    assert "Parquet" in cleaned(tmp_path / "b.txt", "--out", tmp_path / "x", exit_code=1)


KILLED = """
import os, signal, sys
from cleaner_rl.logs import jobs as purify_run
from cleaner_rl.cli.purify import purify
from cleaner_rl.logs import plans

steps = int(sys.argv[1])
put = purify_run.put

def put_or_die(file, uri):
    global steps
    steps -= 1
    if steps < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    put(file, uri)

purify_run.put = put_or_die
real = plans.plan
import cleaner_rl.logs.purification as purification
purification.plan = lambda paths, form, size, *others: real(paths, form, 20_000, *others)
purify(sys.argv[2:], standalone_mode=False)
"""


@pytest.mark.timeout(400)
def test_a_run_killed_at_any_moment_goes_on_without_loss_or_doubling(tmp_path: Path) -> None:
    records = [{**openai(CASES[number % 20]), "task_id": f"t{number}"} for number in range(120)]
    for number, record in enumerate(records):
        record["messages"][0]["content"] = f"Be brief, {number}."
    source = write_lines(tmp_path / "a.jsonl", records)
    arguments = [str(source), "--out", str(tmp_path / "out"), "--same", "--sft", "jsonl", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    kills = 0
    # Each try dies a few files later than the one before: before the plan, between parts, before a unit's last word.
    for steps in (0, 2, 3, 4, 6, 5, 1000):
        ran = subprocess.run(
            [sys.executable, "-c", KILLED, str(steps), *arguments],
            capture_output=True, text=True, timeout=60, check=False, env=environment,
        )  # fmt: skip
        kills += ran.returncode == -signal.SIGKILL
        assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
        for name in ("store", "sft", "same"):
            assert not [*(tmp_path / "out" / name).rglob(".*")], "unfinished files lie elsewhere"
    assert kills >= 6
    assert json.loads(ran.stdout)["trajectories"] == 120
    stored = list(read(tmp_path / "out/store"))
    assert Counter(each.key.task for each in stored) == Counter(f"t{number}" for number in range(120))
    rows = [row for part in sorted((tmp_path / "out/sft").glob("part-*")) for row in lines(part)]
    assert [row["task"] for row in rows] == [f"t{number}" for number in range(120)]
    same = [row for part in sorted((tmp_path / "out/same").iterdir()) for row in lines(part)]
    assert [row["task_id"] for row in same] == [f"t{number}" for number in range(120)]
    once = tmp_path / "once"
    cleaned(source, "--out", once)
    assert {each.key.task: (each.turns, each.reward) for each in read(once / "store")} == {
        each.key.task: (each.turns, each.reward) for each in stored
    }


def test_the_store_alone_gives_the_logs_back(tmp_path: Path) -> None:
    records = [RENDERED[variant](case) for variant in ("openai", "atif") for case in CASES]
    write_lines(tmp_path / "a.jsonl", records[:20])
    write_lines(tmp_path / "b.jsonl", records[20:])
    cleaned(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--out", tmp_path / "out")
    stored = sorted(read(tmp_path / "out/store"), key=lambda each: each.key.rollout)
    assert [write_record(without_hindsight(each)) for each in stored] == records  # type: ignore[arg-type]


def test_the_help_has_an_example() -> None:
    shown = CliRunner().invoke(main, ["purify", "--help"])
    assert "cleaner purify logs/ --out clean --sft jsonl" in shown.output


@pytest.mark.parametrize("options", ["", "?region=eu"])
def test_places_by_uri_as_in_an_object_store(options: str, tmp_path: Path) -> None:
    """`file://` goes the way of `s3://`: everything through pyarrow's file systems."""
    (tmp_path / "logs").mkdir()
    write_lines(tmp_path / "logs/a.jsonl", [openai(case) for case in CASES])
    write_eval(tmp_path / "logs/run.eval")
    pq.write_table(pa.Table.from_pylist([openai(case) for case in CASES]), tmp_path / "logs/b.parquet")
    write_lines(tmp_path / "logs/é 1?.jsonl", [openai(case) for case in CASES])
    logs, out = f"file://{tmp_path}/logs{options}", f"file://{tmp_path}/out{options}"
    found = cleaned(logs, "--out", out, "--same", "--sft", "parquet")
    assert found["edits"] == {"graft": 28, "replace": 4}
    here = cleaned(tmp_path / "logs", "--out", tmp_path / "here", "--same", "--sft", "parquet")
    named = {"out": "", "files": [], "examples": [], "tables": {}}
    assert {**found, **named} == {**here, **named}
    assert found["tables"]["tools"] == here["tables"]["tools"]
    stores = [list(read(tmp_path / f"{each}/store")) for each in ("out", "here")]
    there, local = ([replace(one, info=RolloutInfo()) for one in store] for store in stores)
    assert there == local
    files = {one.info.log["source"]["file"] for one in stores[0] if one.info.log}
    assert len(files) == 4
    assert all(file.startswith(f"file://{tmp_path}/logs/") for file in files)
    assert (tmp_path / "out/same/é 1?.jsonl").read_bytes() == (tmp_path / "here/same/é 1?.jsonl").read_bytes()
    assert cleaned(logs, "--out", out, "--same", "--sft", "parquet") == found
    assert "--same was on, is off; --sft was parquet, is not given" in cleaned(logs, "--out", out, exit_code=1)


FEW_FILES = """
import resource, sys
from cleaner_rl.cli import main

main(["purify", "--help"], standalone_mode=False)  # which loads all that is needed
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
main(["purify", *sys.argv[1:]], standalone_mode=False)
"""


def test_many_small_logs_and_sets_of_tools_need_few_open_files(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for number in range(80):
        tools = [{"type": "function", "function": {"name": f"f{number}"}}]
        write_lines(tmp_path / f"logs/{number}.jsonl", [openai(CASES[0]) | {"tools": tools}])
    arguments = [str(tmp_path / "logs"), "--out", str(tmp_path / "out"), "--same", "--sft", "parquet", "--no-replay"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(
        [sys.executable, "-c", FEW_FILES, *arguments],
        capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert len([*(tmp_path / "out/same").iterdir()]) == 80
    (part,) = (tmp_path / "out/sft").iterdir()
    assert pq.read_table(part).num_rows == 80


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [openai(CASES[0])])
    with alone(str(tmp_path / "out")):
        assert "another process" in cleaned(source, "--out", tmp_path / "out", exit_code=1)
    assert cleaned(source, "--out", tmp_path / "out")["trajectories"] == 1


def test_without_tier_2_nothing_is_replayed_unless_it_is_asked_for(tmp_path: Path) -> None:
    steps = {
        "fresh": CASES[0].steps[:2],
        "state": (Step("I set.", (py("x = 2\nprint(x)", "2"),)), Step("I add.", (py("print(x + 1)", "3"),))),
    }
    steps["state"] += steps["fresh"]
    logs = write_lines(tmp_path / "logs.jsonl", [openai(Case(name, each, ())) for name, each in steps.items()])

    def ran(name: str, *options: str) -> subprocess.CompletedProcess[str]:
        return cleaner("purify", str(logs), "--out", str(tmp_path / name), *options, rules=DOCKERS_CAPABILITIES)

    default = ran("default")
    assert default.returncode == 0, default.stderr
    assert "not replayed: tier T2 is required" in default.stderr
    assert [each.info.replay for each in read(tmp_path / "default/store")] == ["", ""]
    asked = ran("asked", "--replay")
    assert "replayed     1 of 2 trajectories" in asked.stdout
    assert "1  one interpreter per call gives something else" in asked.stdout
    assert "needs tier 2" in asked.stdout
    assert [each.info.replay for each in read(tmp_path / "asked/store")] == ["same", "not_replayable"]
    sessions = ran("sessions", "--replay", "--session")
    assert sessions.returncode == 1, "who asks for sessions hears that there are none"
    assert "--fresh" in sessions.stderr
