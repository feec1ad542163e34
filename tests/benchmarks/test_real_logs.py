"""What is counted of real logs: each call once, each label at its call, the set-aside sources apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import real_logs


def _call(command: str, result: str, code: int) -> list[dict[str, Any]]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    said = {"role": "assistant", "content": "", "tool_calls": [{"id": command, "function": function}]}
    return [said, {"role": "tool", "tool_call_id": command, "content": result, "exit_code": code}]


def _label(what: str, observation: str, label: str) -> dict[str, Any]:
    place = {"source": "raw/some/log.jsonl", "call": 0, "tool_verdict": "ok"}
    return {**place, "what": "result", "code": what, "observation": observation, "label": label}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    record = {"messages": [{"role": "user", "content": "Go."}, *_call("make", "no", 2), *_call("ls", "a\nb", 0)]}
    for name in ("some", "tau-bench"):
        (tmp_path / "raw" / name).mkdir(parents=True)
        (tmp_path / "raw" / name / "log.jsonl").write_text(f"{json.dumps(record)}\n" * 2)
    (tmp_path / "raw" / "some" / "other.jsonl").write_text('{"nothing": "known"}\n')
    labels = [_label("make", "<tool_response>\nno\n</tool_response>", "failed"), _label("ls", "a b", "ok")]
    labels.append(_label("cat", "this is nowhere", "failed"))
    (tmp_path / "labels.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in labels))
    return tmp_path


def test_calls_count_once_and_labels_are_found_by_what_they_quote(folder: Path) -> None:
    found = real_logs.measure(folder)
    some = found["sources"]["some"]
    assert {name: some[name] for name in ("files", "recognised", "results", "judged_failed", "rows")} == {
        "files": 2,
        "recognised": 1,
        "results": 2,
        "judged_failed": 1,
        "rows": 1,  # the same conversation twice is one row
    }
    assert (some["failures_labelled"], some["seen"], some["unmatched"], some["ok_labelled"]) == (2, 1, 1, 1)
    assert some["ok_judged_failed"] == 0


def test_sources_that_were_set_aside_are_summed_apart(folder: Path) -> None:
    found = real_logs.measure(folder)
    assert found["sources"].keys() == {"some", "tau-bench (set aside)"}
    assert (found["tuned"]["results"], found["set_aside"]["results"], found["results"]) == (2, 2, 4)


def test_the_interval_is_clopper_and_pearsons() -> None:
    assert real_logs.interval(8, 123) == [2.8, 12.4]
    assert real_logs.interval(0, 30) == [0.0, 11.6]
