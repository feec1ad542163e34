from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.tools import Status
from cleaner_rl.trajectory import (
    AnyTrajectory,
    RepairKind,
    RolloutInfo,
    first_attempt_tally,
    logprob_gap,
    residual_tally,
)
from cleaner_rl.trajectory.store import read
from cleaner_rl.view.lines import COLUMNS, lines_of, table_of
from cleaner_rl.view.summary import STATUS_BITS, summarise
from tests.generators import any_trajectories
from tests.profile import examples
from tests.view.stores import broken, clean, grafted, moved, replaced, write


def test_a_graft_a_replacement_a_clean_and_a_broken_one() -> None:
    lines = [summarise(each) for each in (grafted(), replaced(), clean(), broken())]
    assert [(line.grafts, line.replacements, line.failed, line.first_failed) for line in lines] == [
        (1, 0, 0, 1),
        (0, 1, 0, 1),
        (0, 0, 0, 0),
        (0, 0, 2, 2),
    ]
    assert [(line.repaired_turns, line.failed_turns) for line in lines] == [(1, 1), (1, 1), (0, 0), (0, 2)]
    assert lines[3].statuses == STATUS_BITS[Status.ERROR] | STATUS_BITS[Status.TIMEOUT]
    assert lines[0].answer == "The answer is 2."
    assert lines[0].prompt == "What is 1+1?\n"


def test_a_status_under_an_edit_is_found_too() -> None:
    assert summarise(grafted()).statuses == STATUS_BITS[Status.ERROR] | STATUS_BITS[Status.OK]


def test_the_gap_is_the_mean_of_the_edits() -> None:
    assert summarise(grafted()).logprob_gap is None
    found = moved(0.25, 0.75)
    assert [logprob_gap(turn) for turn in found.turns] == [0.25, 0.75, None]
    assert summarise(found).logprob_gap == 0.5


def test_what_resampling_said() -> None:
    told = summarise(replace(clean(), info=RolloutInfo(verdict={"kept": False, "why": "not drawn"})))
    assert told.kept is False
    assert told.verdict == '{"kept": false, "why": "not drawn"}'
    assert summarise(replace(clean(), info=RolloutInfo(verdict={"kept": "yes"}))).kept is None


def test_a_rescue_names_where_it_began() -> None:
    told = summarise(replace(clean(), info=RolloutInfo(rescued={"of": 2, "turn": 1})))
    assert (told.rescue_of, told.rescue_turn) == (2, 1)
    assert summarise(clean()).rescue_of is None
    assert summarise(replace(clean(), info=RolloutInfo(rescued={"of": 2**64, "turn": "1"}))).rescue_of is None


def test_columns_give_titles_and_sources_too(tmp_path: Path) -> None:
    told = [
        RolloutInfo(messages=[{"role": "user", "content": "Add them."}]),
        RolloutInfo(log={"source": {"file": "a.jsonl", "line": 2, "id": None}}),
        RolloutInfo(other={"messages": "mine", "log": "mine"}),
        RolloutInfo(rescued={"of": 2, "turn": 1}),
    ]
    (file,) = write(tmp_path, [replace(clean(number), info=info) for number, info in enumerate(told)]).rglob(
        "*.parquet"
    )
    lines = lines_of(file)
    assert lines.to_pylist() == table_of(summarise(each) for each in read(file)).to_pylist()
    assert lines["title"].to_pylist() == ["Add them.", *["What is 1+1?"] * 3]
    assert lines["source"].to_pylist() == [None, "a.jsonl:2", None, None]
    assert lines["rescue_of"].to_pylist() == [None, None, None, 2]


@given(any_trajectories)
@settings(deadline=None, max_examples=examples(50))
def test_a_line_says_what_the_trajectory_says(trajectory: AnyTrajectory) -> None:
    line = summarise(trajectory)
    assert (line.turns, line.length) == (len(trajectory.turns), len(trajectory))
    assert (line.failed, line.calls) == (residual_tally(trajectory).failed, residual_tally(trajectory).calls)
    first = first_attempt_tally(trajectory)
    assert (line.first_failed, line.first_calls) == (first.failed, first.calls)
    kinds = [edit.kind for _, edit in trajectory.edits]
    assert [line.grafts, line.replacements, line.uncorrected] == [kinds.count(kind) for kind in RepairKind]
    assert 0 <= line.repaired_turns <= line.failed_turns


@given(st.lists(any_trajectories, min_size=1, max_size=4))
@settings(deadline=None, max_examples=examples(40))
def test_columns_give_the_same_lines_as_trajectories(trajectories: list[AnyTrajectory]) -> None:
    with TemporaryDirectory() as folder:
        for file in write(Path(folder), trajectories).rglob("*.parquet"):
            lines = lines_of(file)
            wanted = table_of(summarise(trajectory) for trajectory in read(file))
            for name in COLUMNS.names:
                found, expected = lines[name].to_pylist(), wanted[name].to_pylist()
                assert (
                    found == pytest.approx(expected, nan_ok=True)
                    if name in ("logprob_gap", "reward")
                    else found == expected
                )


def test_a_kept_store_with_the_former_name_of_the_verdict_is_read() -> None:
    (file,) = (Path(__file__).parents[1] / "trajectory/data/version-3").rglob("phase=evaluation/*/*.parquet")
    assert lines_of(file)["kept"].to_pylist() == [True]
    assert lines_of(file).to_pylist() == table_of(summarise(each) for each in read(file)).to_pylist()


def test_edits_of_edits_are_mended_by_the_outermost(tmp_path: Path) -> None:
    inner = grafted().turns[0]
    assert inner.edit is not None
    outer = replace(inner, edit=replace(inner.edit, original=(inner, inner.edit.original[0])))
    moved = replace(inner, action=inner.action and replace(inner.action, rescored=inner.action.sampled))
    told = replace(clean(), info=RolloutInfo(verdict={"kept": True, "why": "drawn"}, other={"mine": [1]}))
    deep = replace(grafted(), turns=(moved, outer, *broken().turns))
    (file,) = write(tmp_path, [told, deep, broken()]).rglob("*.parquet")
    assert lines_of(file).to_pylist() == table_of(summarise(each) for each in read(file)).to_pylist()
    assert lines_of(file)["repaired_turns"].to_pylist() == [0, 3, 0]
    assert lines_of(file)["logprob_gap"].to_pylist() == [None, 0.0, None]
