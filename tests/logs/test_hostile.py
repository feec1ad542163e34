"""Files that were made to harm whoever reads them: each costs no more than itself, and the run goes on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cleaner_rl.logs import LogSettings, purify
from cleaner_rl.logs.containers import DamagedError, Kind, Piece, chunks_of
from tests.logs.cases import CASES
from tests.logs.rendering import inspect, openai, verl

MEMORY = 3 << 30
CPU_SECONDS = 200
"""A hundred times what judging the sentences takes."""
PURIFY = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from cleaner_rl.cli import main
main(["purify", *sys.argv[1:], "--no-replay", "--json"])
"""
SAMPLE = json.dumps(inspect(CASES[0]))
GOOD = json.dumps(openai(CASES[0]))
DIGITS = "9" * 5_000


def purified(folder: Path, *options: str) -> Any:
    """What `cleaner purify` says about a folder, in a process with little memory."""
    arguments = [str(folder), "--out", f"{folder}-out", *options]
    ran = subprocess.run([sys.executable, "-c", PURIFY, *arguments], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    return json.loads(ran.stdout)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "good.jsonl").write_text(GOOD + "\n")
    return folder


@contextmanager
def archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A log of Inspect's with one good sample, and with what the block adds."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("samples/1_epoch_1.json", SAMPLE)
        yield made


def add_bomb(made: zipfile.ZipFile, name: str, megabytes: int) -> None:
    """Add a member of blanks without compressing all of them: a block that was flushed can be repeated."""
    blanks = b" " * (1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packer.compress(blanks)
    packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = block * megabytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    made.writestr(zipfile.ZipInfo(name), packed)
    info = made.getinfo(name)
    info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, megabytes << 20
    patched = made.fp
    assert patched is not None
    here = patched.tell()
    patched.seek(info.header_offset)
    patched.write(info.FileHeader(zip64=False))
    patched.seek(here)


@pytest.mark.parametrize(("claimed", "options"), [(2_000 << 20, ["--roc", "2"]), (100, ["--same"])])
def test_finding_zip_bomb_costs_no_more_than_itself(claimed: int, options: list[str], logs: Path) -> None:
    with archive(logs / "bomb.eval") as made:
        add_bomb(made, "samples/2_epoch_1.json", 2_000)
        made.getinfo("samples/2_epoch_1.json").file_size = claimed
    assert (logs / "bomb.eval").stat().st_size < 3 << 20
    found = purified(logs, *options)
    assert found["edits"] == {"graft": 2}
    (message,) = found["damaged"]
    assert message.startswith(f"{logs}/bomb.eval ")
    assert "samples/2_epoch_1.json" in message


def test_finding_zip_bomb_among_the_other_members_costs_no_more_than_its_file(logs: Path) -> None:
    with archive(logs / "bomb.eval") as made:
        add_bomb(made, "summaries.json", 2_000)
    found = purified(logs, "--same")
    assert found["edits"] == {"graft": 1}
    assert "summaries.json has 2,097,152,000 bytes" in next(iter(found["damaged"]))


def test_finding_zip_bomb_of_one_member_that_is_listed_often_is_bounded_as_a_whole(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cleaner_rl.logs.containers.EXPANDED_BYTES", 10 * len(SAMPLE))
    monkeypatch.setattr("cleaner_rl.logs.containers.EXPANSION", 1)
    with archive(logs / "bomb.eval") as made:
        made.filelist *= 99
    found = purify(logs, logs.with_name("out")).summary
    assert found.trajectories < 20
    assert any("bomb.eval" in message for message in found.damaged)


def test_finding_zip_member_that_needs_a_password_is_damage(logs: Path) -> None:
    with archive(logs / "odd.eval") as made:
        made.writestr("samples/2_epoch_1.json", SAMPLE)
        made.getinfo("samples/2_epoch_1.json").flag_bits |= 1
    assert "samples/2_epoch_1.json" in next(iter(purify(logs, logs.with_name("out")).summary.damaged))


def test_finding_zip_member_of_a_compression_without_bounds_is_damage(logs: Path) -> None:
    with archive(logs / "odd.eval") as made:
        made.writestr("samples/2_epoch_1.json", SAMPLE, zipfile.ZIP_BZIP2)
    assert "samples/2_epoch_1.json" in next(iter(purify(logs, logs.with_name("out")).summary.damaged))


def test_finding_zstd_member_that_claims_four_gigabytes_gets_no_memory(logs: Path) -> None:
    with archive(logs / "zstd.eval") as made:
        made.writestr("samples/2_epoch_1.json", b"x" * 100, zipfile.ZIP_STORED)
        info = made.getinfo("samples/2_epoch_1.json")
        info.compress_type, info.file_size = 93, 0xFFFFFFF0
    assert "samples/2_epoch_1.json" in next(iter(purified(logs)["damaged"]))


def test_finding_parquet_bomb_is_bounded_by_what_its_file_explains(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.logs.containers.EXPANDED_BYTES", 1 << 20)
    same = pa.DictionaryArray.from_arrays(pa.array([0] * 5_000, pa.int32()), pa.array(["A" * 2_000]))
    pq.write_table(pa.table({"messages": same}), logs / "bomb.parquet")
    found = purify(logs, logs.with_name("out"), LogSettings(log_format="openai")).summary
    assert found.trajectories < 1_000
    assert any("bomb.parquet" in message for message in found.damaged)


def test_finding_parquet_rows_that_share_a_long_text_are_decoded_a_few_at_a_time(logs: Path) -> None:
    same = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array(["A" * (1 << 20)]))
    pq.write_table(pa.table({"messages": same}), logs / "long.parquet")
    piece = Piece(str(logs / "long.parquet"), "long.parquet", Kind.PARQUET, 0, 1)
    sizes = [sum(len(record["messages"]) for record in chunk.records) for chunk in chunks_of(piece)]
    assert sum(sizes) == 200 << 20
    assert max(sizes) < 100 << 20


def with_digits(place: str) -> str:
    record = openai(CASES[0])
    if place == "field":
        return GOOD[:-1] + f', "other": {DIGITS}}}'
    if place == "arguments":
        record["messages"][2]["tool_calls"][0]["function"]["arguments"] = f'{{"code": {DIGITS}}}'
    elif place == "result":
        record["messages"][3]["content"] = f'{{"exit_code": {DIGITS}}}'
    elif place == "uid":
        record = verl(CASES[0]) | {"uid": f"task_{DIGITS}_0"}
    return json.dumps(record)


@pytest.mark.parametrize("place", ["field", "arguments", "result", "uid"])
def test_finding_integer_of_5000_digits_costs_no_more_than_its_record(place: str, logs: Path) -> None:
    good = json.dumps(verl(CASES[0])) if place == "uid" else GOOD
    for name, lines in (("first.jsonl", [with_digits(place), good]), ("second.jsonl", [good, with_digits(place)])):
        (logs / name).write_text("\n".join(lines) + "\n")
        found = purify(logs / name, f"{logs}-{name}", LogSettings(same=True)).summary
        assert (found.trajectories, len(found.damaged)) == (2, 0)
        if place in ("field", "uid"):
            assert sum(found.not_read.values()) == 1
            assert with_digits(place) in (Path(f"{logs}-{name}") / "same" / name).read_text().splitlines()


def test_finding_integer_of_5000_digits_in_a_document_is_one_bad_file(logs: Path) -> None:
    (logs / "log.json").write_text(json.dumps([openai(CASES[0])], indent=1)[:-1] + f",\n{DIGITS}]")
    found = purify(logs, logs.with_name("out"))
    assert found.summary.edits == {"graft": 1}
    assert any("log.json" in each and "4,300 digits" in each for each in found.skipped)


def with_brackets(place: str, depth: int) -> str:
    deep = "[" * depth + "]" * depth
    record = openai(CASES[0])
    if place == "line":
        return "[" * depth
    if place == "field":
        return GOOD[:-1] + f', "schema_version": {deep}}}'
    if place == "arguments":
        record["messages"][2]["tool_calls"][0]["function"]["arguments"] = f'{{"code": {deep}}}'
    elif place == "tools":
        record["tools"] = deep
    elif place == "result":
        record["messages"][3]["content"] = f'{{"exit_code": {deep}}}'
    return json.dumps(record)


@pytest.mark.parametrize("place", ["line", "field", "arguments", "tools", "result"])
def test_finding_deep_json_costs_no_more_than_its_record(place: str, logs: Path) -> None:
    # Near Python's own limit a value can be read and not written.
    odd = [with_brackets(place, depth) for depth in (100_000, *range(700, 1_000, 6))]
    (logs / "deep.jsonl").write_text("\n".join([odd[0], GOOD, *odd[1:], GOOD]) + "\n")
    found = purify(logs / "deep.jsonl", logs.with_name("out"), LogSettings(same=True, sft="jsonl")).summary  # type: ignore[arg-type]
    assert (found.trajectories, len(found.damaged)) == (len(odd) + 2, 0)
    assert found.edits["graft"] >= 2
    written = (logs.with_name("out") / "same" / "deep.jsonl").read_text().splitlines()
    assert [written[0], *written[2:-1]] == odd if place in ("line", "field") else len(written) == len(odd) + 2


def test_a_damaged_error_is_raised_for_each_way_of_reading_a_bomb(logs: Path) -> None:
    with archive(logs / "bomb.eval") as made:
        add_bomb(made, "samples/2_epoch_1.json", 200)
    reading = chunks_of(Piece(str(logs / "bomb.eval"), "bomb.eval", Kind.EVAL))
    assert len(next(reading).records) == 1
    with pytest.raises(DamagedError, match="209,715,200 bytes"):
        next(reading)


def test_finding_links_to_folders_are_not_followed_and_named(logs: Path, tmp_path: Path) -> None:
    """Neither out of the folder nor round in a circle; a link to a file is that file."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "other.jsonl").write_text(GOOD + "\n")
    for name, target in {
        "root": Path("/"),
        "out": outside,
        "again": logs,
        "one.jsonl": outside / "other.jsonl",
    }.items():
        (logs / name).symlink_to(target)
    result = purify(logs, tmp_path / "result")
    assert result.summary.trajectories == 2
    assert [each.partition(" is a link")[0] for each in sorted(result.skipped)] == [
        f"{logs}/{name}" for name in ("again", "out", "root")
    ]
    assert purify(logs / "out", tmp_path / "named").summary.trajectories == 1


def test_a_folder_that_can_not_be_read_is_left_out_and_named(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (closed := logs / "closed").mkdir()
    scandir = os.scandir

    def scan(path: Any) -> Any:
        if path == str(closed):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    result = purify(logs, logs.with_name("out"))
    assert result.summary.trajectories == 1
    assert result.skipped == (f"{closed} can't be read: Permission denied",)


def test_no_sentence_is_read_in_many_ways() -> None:
    limit = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))"
    code = f"{limit}; runpy.run_module('tests.logs.hostile_sentences', run_name='__main__')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr  # -9 or -24: the CPU time ran out
    assert int(ran.stdout) > 1_000
