"""The report's tables: counts by tool name and by file, and the most frequent errors."""

from __future__ import annotations

import json
from pathlib import Path

from cleaner_rl.logs import LogSettings, PurifySummary, purify
from tests.logs.cases import CASES
from tests.logs.rendering import openai


def test_the_tables_add_up_and_are_written(tmp_path: Path) -> None:
    for number, cases in enumerate((CASES[:10], CASES[10:])):
        lines = "".join(json.dumps(openai(case)) + "\n" for case in cases)
        (tmp_path / f"{number}.jsonl").write_text(lines)
    logs = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    summary = purify(logs, tmp_path / "out", LogSettings(sft="jsonl", piece_bytes=2000)).summary  # type: ignore[arg-type]
    kinds = summary.tools.values()
    for named in (summary.tables.tools, summary.tables.files):
        assert sum(each.calls for each in named.values()) == sum(each.calls for each in kinds)
        assert sum(each.failed for each in named.values()) == sum(each.failed for each in kinds) > 0
        assert sum(each.repaired for each in named.values()) == sum(each.repaired for each in kinds) > 0
        assert sum(each.unsure for each in named.values()) == sum(each.unsure for each in kinds)
        assert sum(each.no_result for each in named.values()) == sum(each.no_result for each in kinds)
    assert set(summary.tables.files) == {str(each) for each in logs}
    assert summary.tables.errors.total() == sum(each.failed for each in kinds)
    assert summary.tables.errors["python: NameError: name 'y' is not defined"] > 0

    rows = [
        json.loads(line) for part in (tmp_path / "out/sft").glob("*.jsonl") for line in part.read_text().splitlines()
    ]
    taught = [
        (len(each.get("tool_calls", ())), mask)
        for row in rows
        for each, mask in zip(row["messages"], row["loss_mask"], strict=True)
        if each["role"] == "assistant"
    ]
    python = summary.tables.tools
    assert sum(each.trained for each in python.values()) >= sum(calls for calls, mask in taught if mask) > 0
    assert sum(each.masked for each in python.values()) >= sum(calls for calls, mask in taught if not mask) > 0
    assert sum(each.tokens for each in summary.tables.files.values()) > 0

    assert PurifySummary.from_json(json.loads(json.dumps(summary.to_json()))).tables == summary.tables
    report = (tmp_path / "out/report.md").read_text()
    assert "| Tool | calls | failed | no result | unsure | repaired | masked | trained | trained tokens |" in report
    assert "NameError: name 'y' is not defined" in report
    assert f"| {logs[0]} |" in report
