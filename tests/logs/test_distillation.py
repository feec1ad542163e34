"""Rows for self-distillation: each is a repair, with the context and the correction of the repaired trajectory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.logs import LogSettings, distillation_rows, preview, purify, read_record
from cleaner_rl.logs.formats import Reading, detect
from cleaner_rl.logs.purified import purify_log
from cleaner_rl.logs.sft import sft_rows
from cleaner_rl.purify import RepairConfig
from cleaner_rl.trajectory import Edit, RepairKind, RepairMode, RolloutInfo, Trajectory, undo
from cleaner_rl.trajectory.store import ParquetWriter, read
from tests.builders import answered, drafted, failed, trajectory, unread, worked, written
from tests.logs.cases import CASES
from tests.logs.rendering import RENDERED, openai

ASKED = RolloutInfo(messages=[{"role": "user", "content": "What is 1+1?"}])


def chat(found: Trajectory[Any]) -> list[Any]:
    (row,) = sft_rows(found)
    messages: list[Any] = row["messages"]
    return messages


def begins(messages: list[Any], with_these: list[Any]) -> bool:
    return messages[: len(with_these)] == with_these


@pytest.mark.parametrize("variant", RENDERED)
def test_a_row_of_a_log_is_a_repair_as_the_repaired_and_the_raw_log_have_it(variant: str) -> None:
    repairs = 0
    for case in CASES:
        record = RENDERED[variant](case)
        form = detect(record)
        assert form is not None
        repaired = purify_log(read_record(record, form, 0, Reading()), RepairConfig()).trajectory
        rows = distillation_rows(repaired)
        assert len(rows) == len(repaired.edits), case.name
        repairs += len(rows)
        for row, (index, _) in zip(rows, repaired.edits, strict=True):
            assert row["turn"] == index
            assert begins(chat(repaired), [*row["messages"], row["correction"]])
            removed = [row["failed"], *row["feedback"], *row["further"]]
            assert begins(chat(undo(repaired, index)), [*row["messages"], *removed])
            assert row["feedback"]
            assert all(message["role"] != "assistant" for message in row["feedback"])
            assert row["failed"] != row["correction"]
    assert repairs == 8


def test_a_row_of_a_lookahead_has_every_attempt_that_the_correction_was_sampled_after() -> None:
    first, silent, second = failed("print(y)"), answered("I give up."), failed("print(z)")
    correction = worked("print(2)")
    edit = Edit(RepairMode.SAAR, RepairKind.REPLACE, (first, silent, second, correction))
    uncorrected = replace(failed(), edit=Edit(RepairMode.SAAR, RepairKind.NONE, (failed(),)))
    made = replace(trajectory(worked(), replace(correction, edit=edit), uncorrected, answered()), info=ASKED)

    (row,) = distillation_rows(made)

    assert (row["mode"], row["kind"], row["turn"]) == ("saar", "replace", 1)
    assert begins(chat(made), [*row["messages"], row["correction"]])
    assert row["failed"]["content"] == first.text
    assert [message["role"] for message in row["feedback"]] == ["tool"]
    assert [message["role"] for message in row["further"]] == ["assistant", "tool"]
    assert row["further"][0]["content"] == second.text


def test_what_was_not_repaired_or_has_no_messages_makes_no_row() -> None:
    plain = replace(trajectory(failed(), answered()), info=ASKED)
    assert distillation_rows(plain) == []
    edit = Edit(RepairMode.HINDSIGHT, RepairKind.GRAFT, (failed(), worked()))
    assert distillation_rows(trajectory(replace(worked(), edit=edit))) == []
    assert distillation_rows(replace(trajectory(replace(worked(), edit=edit)), info=ASKED))
    unverified = replace(drafted(written("print(2)")), edit=edit)
    assert distillation_rows(replace(trajectory(unverified), info=ASKED)) == []


def test_the_command_writes_rows_of_logs_in_both_kinds_of_files(tmp_path: Path) -> None:
    source = tmp_path / "log.jsonl"
    source.write_text("".join(json.dumps(openai(case)) + "\n" for case in CASES))
    command = ["purify", str(source), "--no-replay", "--json", "--distill"]

    told = CliRunner().invoke(main, [*command, "jsonl", "--out", str(tmp_path / "lines")], catch_exceptions=False)
    CliRunner().invoke(main, [*command, "parquet", "--out", str(tmp_path / "columns")], catch_exceptions=False)

    rows = [json.loads(line) for line in (tmp_path / "lines/distill/part-000000.jsonl").read_text().splitlines()]
    assert json.loads(told.stdout)["distill_rows"] == len(rows) == 8
    (part,) = (tmp_path / "columns/distill").rglob("*.parquet")
    assert [opened(narrow(row)) for row in pq.read_table(part).to_pylist()] == [narrow(row) for row in rows]
    stored = list(read(tmp_path / "lines/store"))
    assert [json.loads(json.dumps(row)) for each in stored for row in distillation_rows(each)] == rows
    assert preview(source, LogSettings(distill="jsonl")).summary.distill_rows == 8  # type: ignore[arg-type]
    assert "repair rows  8" in purify(source, tmp_path / "lines", LogSettings(distill="jsonl")).as_text()  # type: ignore[arg-type]


def test_a_store_gives_the_repairs_that_it_has_and_those_that_hindsight_finds(tmp_path: Path) -> None:
    edit = Edit(RepairMode.SAAR, RepairKind.GRAFT, (failed(), worked()))
    repaired = replace(trajectory(replace(worked(), edit=edit), answered()), info=ASKED, success=True)
    raw = replace(trajectory(unread(), worked("print(1 + 1)"), answered()), info=ASKED)
    with ParquetWriter(tmp_path / "store") as writer:
        writer.write(repaired)
        writer.write(raw)

    purify(tmp_path / "store", tmp_path / "out", LogSettings(distill="jsonl"))  # type: ignore[arg-type]

    rows = [json.loads(line) for line in (tmp_path / "out/distill/part-000000.jsonl").read_text().splitlines()]
    assert sorted(row["mode"] for row in rows) == ["hindsight", "saar"]
    assert {row["success"] for row in rows} == {True, None}


def narrow(value: Any) -> Any:
    """Without what is null, which a column has for every field that another row has."""
    if isinstance(value, dict):
        return {name: narrow(each) for name, each in value.items() if each is not None}
    return [narrow(each) for each in value] if isinstance(value, list) else value


def opened(row: dict[str, Any]) -> dict[str, Any]:
    """With what is text of JSON in a column as objects again."""
    for message in (*row["messages"], row["failed"], *row["feedback"], *row.get("further", ()), row["correction"]):
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return {**row, "tools": json.loads(row["tools"])} if "tools" in row else row
