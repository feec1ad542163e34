"""Logs of agents: samples of each, whole files as records, compressed files, damage, and where rows came from."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cleaner_rl.logs import LogSettings, PurifyError, SftKind, log_format, purify, write_record
from cleaner_rl.logs.containers import FILE_BYTES, Kind, Piece, chunks_of
from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.plans import plan
from cleaner_rl.trajectory import undo
from cleaner_rl.trajectory.store import read
from tests.logs.agents import AGENTS
from tests.logs.cases import CASES, UNREAD
from tests.logs.rendering import RENDERED, Record, openai

SAMPLES = Path(__file__).parent / "data/samples"
SAME = LogSettings(same=True, sft=SftKind.JSONL)
FORMS = {
    "agents-sdk.json": ("responses", ["get_weather"], [True]),
    "atif-trajectory.json": ("atif", ["bash_command"], None),
    "claude-code.jsonl": ("claude-code", ["Bash", "Bash"], [True, False]),
    "inspect.json": ("inspect", ["addition", "addition"], [True, False]),
    "langfuse.jsonl": ("langfuse", ["get_weather"], [False]),
    "langsmith.jsonl": ("langsmith", ["get_weather"], [True]),
    "mini-v1.traj.json": ("mini-swe-agent", ["bash", "bash"], None),
    "mini-v2.traj.json": ("mini-swe-agent", ["bash"], [True]),
    "openai.jsonl": ("openai", ["get_weather"], [False]),
    "openhands-v0.json": ("openhands", ["execute_bash"], [True]),
    "openhands-v1.json": ("openhands", ["terminal", "terminal"], [True, False]),
    "otel.jsonl": ("otel", ["get_weather"], [False]),
    "pi.jsonl": ("session-trace", ["bash"], [True]),
    "responses.jsonl": ("responses", ["get_weather"], None),
    "rollout-codex.jsonl": ("codex", ["shell_command", "apply_patch"], None),
    "session-trace.jsonl": ("session-trace", ["get_time"], [False]),
    "sharegpt.json": ("sharegpt", ["get_weather"], [False]),
    "swe-agent.traj": ("swe-agent", ["bash"], None),
    "trajectory-swe-agent.jsonl": ("trajectory", ["bash"], None),
    "trajectory.jsonl": ("trajectory", ["execute_bash"], None),
    "verifiers-results.jsonl": ("verifiers", ["line_count"], [False]),
    "verl-rollout.jsonl": ("verl", ["code_interpreter", "code_interpreter"], [True, False]),
}
"""The format of each sample, its calls, and whether they failed; None if that is for `judging` to say."""


def values(path: Path) -> Any:
    text = path.read_text()
    return [json.loads(line) for line in text.split("\n") if line] if path.suffix == ".jsonl" else json.loads(text)


def rows(folder: Path) -> list[Record]:
    return [
        json.loads(line)
        for file in sorted((folder / "sft").glob("*.jsonl"))
        for line in file.read_text().split("\n")
        if line
    ]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def write_file(path: Path, record: Record) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in record["lines"]))
    return path


def test_there_is_a_sample_of_each() -> None:
    assert {path.name for path in SAMPLES.iterdir()} == set(FORMS)


@pytest.mark.parametrize("name", FORMS)
def test_a_sample_is_known_its_calls_are_found_and_it_comes_back(name: str, tmp_path: Path) -> None:
    form, calls, failed = FORMS[name]
    assert {form for unit in plan([str(SAMPLES / name)], None).units for _, form in unit.pieces} == {form}
    summary = purify(SAMPLES / name, tmp_path / "out", LogSettings(same=True, repair=None)).summary
    assert (summary.trajectories, summary.not_read, summary.without_calls) == (1, {}, 0)
    assert values(tmp_path / "out/same" / name) == values(SAMPLES / name)
    (trajectory,) = read(tmp_path / "out/store")
    assert [call.name for turn in trajectory.turns for call in turn.calls] == calls
    if failed is not None:
        assert [turn.failed for turn in trajectory.turns if turn.calls] == failed


def test_one_folder_of_all_of_them_in_one_call(logs: Path, tmp_path: Path) -> None:
    """Beside logs of the other kinds, and files that are none."""
    shutil.copytree(SAMPLES, logs / "samples")
    for variant, render in AGENTS.items():
        for number, case in enumerate(CASES):
            record = render(case)
            file = logs / variant.replace(", ", "-") / f"{number}.json{'l' * ('lines' in record)}"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(record)) if "lines" not in record else write_file(file, record)
    for variant, render in RENDERED.items():
        (logs / f"{variant}.jsonl").write_text("".join(json.dumps(render(case)) + "\n" for case in CASES))
    (logs / "settings.json").write_text('{"a": 1}')
    done = purify(logs, tmp_path / "out", SAME)
    found = done.summary
    assert found.trajectories == len(FORMS) + len(CASES) * (len(AGENTS) + len(RENDERED))
    assert found.not_read == {}
    assert found.edits["graft"] >= 8 * len(AGENTS)
    assert [each.partition(" ")[0] for each in done.skipped] == [str(logs / "settings.json")]
    for each in read(tmp_path / "out/store"):
        trajectory: Any = each
        for index, _ in reversed(each.edits):
            trajectory = undo(trajectory, index)
        source = Path((trajectory.info.log or {})["source"]["file"])
        kept = write_record(trajectory)
        whole = values(source)
        if "samples" in whole:  # Inspect's, of which each is a record
            whole = whole["samples"]
        assert kept.get("lines", kept) == whole or kept in whole, source
    written = purify(tmp_path / "out/same", tmp_path / "again", LogSettings(repair=None)).summary
    assert (written.trajectories, written.not_read) == (found.trajectories, {})
    assert written.turns_after == found.turns_after
    assert found.sft_rows == len(rows(tmp_path / "out"))


def test_a_row_names_the_file_the_line_and_the_record_and_its_results_name_their_calls(tmp_path: Path) -> None:
    records = [{**openai(case), "id": f"r-{number}"} for number, case in enumerate(CASES)]
    text = "\n\n".join(map(json.dumps, records))
    (tmp_path / "log.jsonl").write_text(text)
    purify(tmp_path / "log.jsonl", tmp_path / "out", LogSettings(sft=SftKind.JSONL, repair=None, piece_bytes=3_000))
    found = rows(tmp_path / "out")
    sources = [(row["source_file"], row["source_line"], row["source_id"]) for row in found]
    assert sources == [(str(tmp_path / "log.jsonl"), 2 * number + 1, f"r-{number}") for number in range(len(CASES))]
    answers = [message for row in found for message in row["messages"] if message["role"] == "tool"]
    assert {answer["name"] for answer in answers} == {"python", "search"}
    assert all("tool_call_id" in answer for answer in answers)
    purify(SAMPLES / "claude-code.jsonl", tmp_path / "session", LogSettings(sft=SftKind.PARQUET))
    (trajectory,) = read(tmp_path / "session/store")
    assert (trajectory.info.log or {})["source"] == {
        "file": str(SAMPLES / "claude-code.jsonl"),
        "line": 1,
        "id": "3c8b6d0a-0000-4000-8000-000000000001",
    }


def test_lines_are_numbered_whatever_the_size_of_the_pieces(tmp_path: Path) -> None:
    records = [{"messages": [{"role": "user", "content": "x" * (number % 50)}], "n": number} for number in range(200)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for size in (1, 7, 64, 100, 1_000, 100_000):
        pieces = [piece for unit in plan([str(tmp_path)], None, size).units for piece, _ in unit.pieces]
        found = [line for piece in pieces for chunk in chunks_of(piece) for line in chunk.lines]
        assert found == list(range(1, 201)), size


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstd)])
def test_compressed_logs_are_read_and_written_compressed(
    suffix: str, pack: Callable[[bytes], bytes], logs: Path, tmp_path: Path
) -> None:
    text = "".join(json.dumps(openai(case)) + "\n" for case in CASES)
    (logs / f"log.jsonl.{suffix}").write_bytes(pack(text.encode()))
    (logs / f"session.jsonl.{suffix}").write_bytes(pack((SAMPLES / "claude-code.jsonl").read_bytes()))
    found = purify(logs, tmp_path / "out", LogSettings(same=True, repair=None)).summary
    assert (found.trajectories, found.damaged, found.not_read) == (len(CASES) + 1, {}, {})
    for name, before in (("log", text), ("session", (SAMPLES / "claude-code.jsonl").read_text())):
        packed = pa.input_stream(str(tmp_path / f"out/same/{name}.jsonl.{suffix}"), compression="detect")
        assert list(map(json.loads, packed.read().splitlines())) == list(map(json.loads, before.splitlines()))


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_compressed_log_that_breaks_off_is_damaged(pack: Callable[[bytes], bytes], logs: Path) -> None:
    packed = pack("".join(json.dumps({**openai(case), "n": n}) + "\n" for n in range(200) for case in CASES).encode())
    (logs / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (logs / "good.jsonl").write_text(json.dumps(openai(CASES[0])))
    found = purify(logs, logs.with_name("out")).summary
    assert found.trajectories > 100, "those before the damage"
    assert [each.partition(" ")[0] for each in found.damaged] == [str(logs / "cut.jsonl.gz")]


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_finding_compressed_bomb_is_bounded(
    pack: Callable[[bytes], bytes], logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cleaner_rl.logs.containers.EXPANDED_BYTES", 1 << 20)
    line = json.dumps(openai(CASES[0])).encode() + b"\n"
    (logs / "lines.jsonl.gz").write_bytes(pack(line + (b" " * 9_999 + b"\n") * 6_000 + line))
    (logs / "line.jsonl.gz").write_bytes(pack(line + b" " * (60 << 20) + line))
    found = purify(logs, logs.with_name("out")).summary
    assert found.trajectories == 2, "those before the damage"
    told = sorted(found.damaged)
    assert [each.partition(" expands to too much")[0] for each in told] == [
        str(logs / "line.jsonl.gz"),
        str(logs / "lines.jsonl.gz"),
    ]


def test_a_session_that_breaks_off_in_its_last_line_is_read_up_to_it(tmp_path: Path) -> None:
    whole = (SAMPLES / "claude-code.jsonl").read_text()
    (tmp_path / "cut.jsonl").write_text(whole[:-40])
    found = purify(tmp_path / "cut.jsonl", tmp_path / "out", LogSettings(same=True, repair=None)).summary
    assert (found.trajectories, found.not_read, found.failed_turns) == (1, {}, 1)
    assert (tmp_path / "out/same/cut.jsonl").read_text().splitlines()[-1] == whole[:-40].splitlines()[-1]


@pytest.mark.parametrize("variant", [variant for variant, render in AGENTS.items() if "lines" in render(CASES[0])])
def test_a_damaged_session_goes_through_as_it_is_and_is_counted(variant: str, logs: Path) -> None:
    lines = [json.dumps(line) for line in AGENTS[variant](CASES[0])["lines"]]
    lines[3] = lines[3][:-9]
    (logs / "bad.jsonl").write_text("\n".join(lines) + "\n")
    (logs / "good.jsonl").write_text(json.dumps(openai(CASES[0])))
    found = purify(logs, logs.with_name("out"), SAME).summary
    assert found.not_read == {"a file with a line that is not valid JSON": 1}
    assert (logs.with_name("out") / "same/bad.jsonl").read_text().splitlines() == lines


@pytest.mark.parametrize("variant", RENDERED)
def test_a_damaged_record_is_counted_and_the_others_are_read(variant: str, logs: Path) -> None:
    lines = [json.dumps(RENDERED[variant](case)) for case in CASES[:3]]
    lines[1] = lines[1][:-9]
    (logs / "log.jsonl").write_text("\n".join(lines) + "\n")
    out = logs.with_name("out")
    assert purify(logs, out, SAME).summary.not_read == {"text that is not valid JSON": 1}
    assert sorted(len(each.turns) > 0 for each in read(out / "store")) == [False, True, True]
    assert (out / "same/log.jsonl").read_text().splitlines()[1] == lines[1]


def test_a_file_that_is_one_record_is_bounded(tmp_path: Path) -> None:
    path = write_file(tmp_path / "long.jsonl", AGENTS["claude-code"](CASES[0]))
    with path.open("a") as file:
        file.write(" " * FILE_BYTES)
    with pytest.raises(PurifyError, match="one record may have 134,217,728"):
        purify(path, tmp_path / "out")
    packed = tmp_path / "long.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    piece = Piece(str(packed), packed.name, Kind.JSONL, packing="gzip", one_record=True)
    with pytest.raises(PurifyError, match="134,217,728 bytes"):
        list(chunks_of(piece))


def test_lines_of_a_session_have_parents_that_are_there_after_a_repair(tmp_path: Path) -> None:
    path = write_file(tmp_path / "s.jsonl", AGENTS["claude-code"](CASES[2]))
    purify(path, tmp_path / "out", SAME)
    lines = values(tmp_path / "out/same/s.jsonl")
    there = {line.get("uuid") for line in lines}
    assert len(lines) < len(values(path))
    assert all(line.get("parentUuid") in there for line in lines)
    assert len({line["message"]["id"] for line in lines if line["type"] == "assistant"}) == 2, (
        "a response for each turn"
    )


def test_a_session_that_was_rewound_goes_through_as_it_is(tmp_path: Path) -> None:
    record = AGENTS["claude-code"](CASES[0])
    asked = next(line for line in record["lines"] if line["type"] == "user")
    branch = {**asked, "uuid": "other", "parentUuid": "u3"}
    record["lines"] += [branch, {**branch, "uuid": "another"}]
    write_file(tmp_path / "s.jsonl", record)
    with pytest.raises(PurifyError, match="1 a session with branches"):
        purify(tmp_path / "s.jsonl", tmp_path / "out")


def test_lines_of_a_subagent_are_no_turns_of_the_session() -> None:
    record = AGENTS["claude-code"](CASES[0])
    aside = [{**line, "isSidechain": True, "uuid": f"x{number}"} for number, line in enumerate(record["lines"][1:4])]
    together = {"lines": [*record["lines"][:6], *aside, *record["lines"][6:]]}
    form = log_format("claude-code")
    trajectory = form.read(together, 0, Reading())
    assert len(trajectory.turns) == len(CASES[0].steps)
    assert form.write(trajectory) == together
    alone = {"lines": [{**line, "isSidechain": True} for line in record["lines"]]}
    assert len(form.read(alone, 0, Reading()).turns) == len(CASES[0].steps)


def test_calls_of_one_response_are_one_turn_though_a_result_is_between_them() -> None:
    both = next(case for case in CASES if len(case.steps[0].calls) == 2)
    for variant in ("openhands", "openhands, version 0"):
        record = AGENTS[variant](both)
        trajectory = log_format("openhands").read(record, 0, Reading())
        assert [len(turn.calls) for turn in trajectory.turns] == [len(step.calls) for step in both.steps]
        assert [len(turn.results) for turn in trajectory.turns] == [len(step.calls) for step in both.steps]


def test_the_steps_of_swe_agent_follow_an_edit_of_its_history(tmp_path: Path) -> None:
    (tmp_path / "a.traj").write_text(json.dumps(AGENTS["swe-agent"](CASES[0])))
    purify(tmp_path / "a.traj", tmp_path / "out", SAME)
    record = values(tmp_path / "out/same/a.traj")
    said = [message for message in record["history"] if message["role"] == "assistant" and not message.get("is_demo")]
    assert len(record["trajectory"]) == len(said) == 2
    step = record["trajectory"][0]
    assert (step["thought"], step["response"], step["observation"]) == ("I add.", "I add.", "2")
    assert said[0]["action"] == step["action"]


FENCED = {
    "messages": [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "I add.\n\n```python\nprint(1 + )\n```"},
        {"role": "user", "content": f"Output:\n{UNREAD}"},
        {"role": "assistant", "content": "Now right.\n\n```python\nprint(1 + 1)\n```\n"},
        {"role": "user", "content": "Output:\n2"},
        {"role": "assistant", "content": "Thus:\n\n```python\nprint(2)\n```"},
        {"role": "user", "content": "Thank you. Is there another way?"},
        {"role": "assistant", "content": "No."},
    ]
}


def test_fenced_programs_are_calls_only_where_the_reply_is_their_result(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(FENCED))
    found = purify(tmp_path / "a.jsonl", tmp_path / "out", SAME).summary
    assert found.edits == {"graft": 1}
    (record,) = values(tmp_path / "out/same/a.jsonl")
    assert record["messages"][1]["content"] == "I add.\n\n```python\nprint(1 + 1)\n```"
    assert [message["role"] for message in record["messages"]] == [
        *("user", "assistant", "user", "assistant", "user", "assistant")
    ]
    (row,) = rows(tmp_path / "out")
    assert [message["role"] for message in row["messages"]][:3] == ["user", "assistant", "tool"]
    assert row["messages"][1]["tool_calls"][0]["function"]["name"] == "python"
    assert row["messages"][4]["role"] == "user", "a person's words stay a person's"
