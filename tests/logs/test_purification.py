"""`logs.purify` as a function: its arguments, its callbacks, its result and its errors."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.logs import (
    LogError,
    LogSettings,
    Progress,
    PurifiedLog,
    PurifyError,
    PurifySummary,
    SftKind,
    Stage,
    WorkerKilledError,
    purify,
)
from cleaner_rl.logs.jobs import OtherRunError
from cleaner_rl.logs.ray_jobs import RayError
from cleaner_rl.purify import PurifyScope, Reason
from cleaner_rl.trajectory.store import read
from tests.logs.cases import CASES
from tests.logs.rendering import openai


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(openai(case)) + "\n" for case in CASES))
    return path


@dataclass(frozen=True)
class Undoes:
    """A check of one's own: no repair is kept."""

    marked: str = "mine"

    def options(self) -> dict[str, Any]:
        return {"marked": self.marked}

    def __call__(self, cleaned: Sequence[PurifiedLog[Any]], summary: PurifySummary, /) -> list[PurifiedLog[Any]]:
        summary.replayed["looked at"] += len(cleaned)
        return [each.undone(Reason.UNPROVEN) for each in cleaned]


def dies(cleaned: Sequence[PurifiedLog[Any]], summary: PurifySummary, /) -> list[PurifiedLog[Any]]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def test_a_path_or_several_and_a_result_that_says_it_all(log: Path, tmp_path: Path) -> None:
    one = purify(log, tmp_path / "one")
    several = purify([str(log), log], str(tmp_path / "several"))
    assert one.summary == several.summary
    files = [{"path": str(log), "size": log.stat().st_size, "format": "openai"}]
    secrets = {"scanner": "detect-secrets 1.5.0", "redacted": False, "found": {}}
    about = {"secrets": secrets, "files": files, "skipped_files": [], "out": str(tmp_path / "one")}
    assert one.to_json() == {**one.summary.to_json(), **about}
    assert f"20 trajectories, 7 of them repaired; all written to {tmp_path}/one\n" in one.as_text()
    (tmp_path / "notes.txt").write_text("hello")
    skipped = purify(tmp_path, tmp_path / "all").skipped
    assert any("notes.txt" in each for each in skipped)


def test_settings_take_plain_words_and_refuse_nonsense() -> None:
    settings = LogSettings(scope="successful", sft="jsonl")  # type: ignore[arg-type]
    assert (settings.scope, settings.sft) == (PurifyScope.SUCCESSFUL, SftKind.JSONL)
    with pytest.raises(ValueError, match="at least 2 attempts"):
        LogSettings(roc=1)
    with pytest.raises(ValueError, match="at least 1 byte"):
        LogSettings(piece_bytes=0)


def test_progress_counts_each_stage_to_its_end(log: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    purify(log, tmp_path / "out", LogSettings(roc=2, piece_bytes=5_000), progress=seen.append)
    assert list(dict.fromkeys(each.stage for each in seen)) == [Stage.FINDING, Stage.CHOOSING, Stage.PURIFYING]
    for stage in (Stage.CHOOSING, Stage.PURIFYING):
        counts = [each.done for each in seen if each.stage is stage]
        (total,) = {each.total for each in seen if each.stage is stage}
        assert total is not None
        assert total > 1
        assert counts == list(range(total + 1))


def test_a_check_of_one_s_own_decides_and_belongs_to_the_plan(log: Path, tmp_path: Path) -> None:
    result = purify(log, tmp_path / "out", check=Undoes())
    assert result.summary.replayed == {"looked at": 20}
    assert (result.summary.edited, result.summary.left_alone["unproven"]) == (0, 9)
    assert not any(each.edits for each in read(tmp_path / "out/store"))
    with pytest.raises(OtherRunError, match="--marked was mine, is yours"):
        purify(log, tmp_path / "out", check=Undoes("yours"))
    with pytest.raises(OtherRunError, match="--marked was mine, is not given; --replay was on, is off"):
        purify(log, tmp_path / "out")


def test_a_worker_that_is_killed_costs_no_more_than_its_unit(log: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkerKilledError, match="perhaps because memory ran out"):
        purify(log, tmp_path / "out", jobs=2, check=dies)
    assert not [*(tmp_path / "out").glob("units/*")]


def test_every_error_of_its_own_is_a_purify_error(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(issubclass(each, PurifyError) for each in (LogError, OtherRunError, RayError, WorkerKilledError))
    with pytest.raises(LogError, match="there is nothing at"):
        purify(tmp_path / "none", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayError, match="Ray is not installed here"):
        purify(log, tmp_path / "out", on_ray=True)


def test_the_package_knows_no_command_line() -> None:
    folder = Path(sys.modules["cleaner_rl.logs"].__path__[0])
    replay = folder.parent / "replay"
    assert not [each for each in (*folder.rglob("*.py"), *replay.rglob("*.py")) if "import click" in each.read_text()]


def test_the_store_says_why_each_failed_turn_was_left_alone(log: Path, tmp_path: Path) -> None:
    summary = purify(log, tmp_path / "out").summary
    reasons: Counter[str] = Counter()
    for found in read(tmp_path / "out/store"):
        trajectory: Any = found
        entries = (trajectory.info.log or {}).get("left_alone", [])
        assert {each["turn"] for each in entries} == {
            place for place, turn in enumerate(trajectory.turns) if turn.failed
        }
        assert all(each["why"] for each in entries)
        reasons.update(each["reason"] for each in entries)
    assert reasons == summary.left_alone
    assert reasons
    # Purified once more with less asked of a repair, it has the reasons of that run.
    purify(tmp_path / "out/store", tmp_path / "again", LogSettings(scope=PurifyScope.SUCCESSFUL))
    again = [each for found in read(tmp_path / "again/store") for each in (found.info.log or {}).get("left_alone", [])]
    assert {each["reason"] for each in again} <= {*reasons, "unsuccessful"}
    assert "unsuccessful" in {each["reason"] for each in again}
