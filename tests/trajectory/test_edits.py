"""Raw is never lost: what was sampled comes back in order and in its context, and hindsight is undone bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.trajectory import (
    Edit,
    RepairKind,
    RepairMode,
    Scores,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    cut_before_repairs,
    sampled_turns,
    undo,
    without_rescoring,
)
from cleaner_rl.trajectory.edits import Sampled
from tests.generators import text_spans, token_spans, turns
from tests.profile import examples

SPANS = token_spans(rescored=False)


def said(text: str, feedback: str | None = "feedback", edit: Edit[TextSpan] | None = None) -> Turn[TextSpan]:
    return Turn(TextSpan(text), TextSpan("act"), None if feedback is None else TextSpan(feedback), edit=edit)


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[Trajectory[TokenSpan], list[Sampled[TokenSpan]]]:
    """A rollout repaired live here and there, and the diary of its sampling."""
    history: list[Turn[TokenSpan]] = []
    diary: list[Sampled[TokenSpan]] = []
    for _ in range(draw(st.integers(0, 4))):
        original = [draw(turns(SPANS, max_attempt=0))]
        lookahead = list(history)
        diary.append(Sampled(tuple(lookahead), original[0]))
        standing = original[0]
        for attempt in range(draw(st.integers(0, 2))):
            if original[-1].observation is not None:
                lookahead.append(original[-1])
            original.append(replace(draw(turns(SPANS)), attempt=attempt + 1))
            diary.append(Sampled(tuple(lookahead), original[-1]))
        if len(original) > 1:
            kind = draw(st.sampled_from(RepairKind))
            if kind is not RepairKind.NONE:
                standing = replace(original[-1], attempt=0)
            if kind is RepairKind.GRAFT:
                standing = replace(standing, reasoning=original[0].reasoning)
            standing = replace(standing, edit=Edit(RepairMode.SAAR, kind, tuple(original), 0.5))
        history.append(standing)
    return Trajectory(draw(SPANS), tuple(history)), diary


def collapsed(trajectory: Trajectory[TokenSpan], start: int, end: int, graft: bool) -> Trajectory[TokenSpan]:
    """Turns start:end as one, edited in hindsight, and all that moved re-scored."""
    trajectory = without_rescoring(trajectory)
    original = trajectory.turns[start:end]
    edit = Edit(RepairMode.HINDSIGHT, RepairKind.GRAFT if graft else RepairKind.REPLACE, original)
    made = replace(original[-1], reasoning=original[0 if graft else -1].reasoning, edit=edit)
    later = tuple(each.with_spans(rescored) for each in trajectory.turns[end:])
    return replace(trajectory, turns=(*trajectory.turns[:start], made.with_spans(rescored), *later))


def rescored(span: TokenSpan) -> TokenSpan:
    return replace(span, rescored=Scores(np.full(len(span), -9.0, np.float32), 1))


@st.composite
def hindsight(draw: st.DrawFn, trajectory: Trajectory[TokenSpan]) -> Trajectory[TokenSpan]:
    """Edited in hindsight in some places, some of them inside of others."""
    for _ in range(draw(st.integers(0, 3)) if trajectory.turns else 0):
        start = draw(st.integers(0, len(trajectory.turns) - 1))
        end = draw(st.integers(start + 1, len(trajectory.turns)))
        trajectory = collapsed(trajectory, start, end, draw(st.booleans()))
    return trajectory


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_raw_is_the_diary_of_sampling(data: st.DataObject) -> None:
    trajectory, diary = data.draw(rollouts())
    assert list(sampled_turns(trajectory)) == diary
    after_hindsight = without_rescoring(data.draw(hindsight(trajectory)))
    assert list(sampled_turns(after_hindsight)) == diary


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_undo_in_any_order_gives_the_original_back(data: st.DataObject) -> None:
    original, _ = data.draw(rollouts())
    trajectory = data.draw(hindsight(original))
    while places := [index for index, edit in trajectory.edits if edit.mode is RepairMode.HINDSIGHT]:
        trajectory = undo(trajectory, data.draw(st.sampled_from(places)))
    assert trajectory == original


def test_undo_shares_what_it_does_not_change() -> None:
    turns = (
        said("a"),
        said("c", edit=Edit(RepairMode.HINDSIGHT, RepairKind.REPLACE, (said("b"), said("c")))),
        said("d"),
    )
    trajectory = Trajectory(TextSpan("p"), turns)
    undone = undo(trajectory, 1)
    assert [each.reasoning.text for each in undone.turns] == ["a", "b", "c", "d"]
    assert undone.turns[0] is turns[0]
    assert undone.turns[3] is turns[2]


@pytest.mark.parametrize("edit", [None, Edit(RepairMode.SAAR, RepairKind.GRAFT, (said("x"),))])
def test_only_hindsight_can_be_undone(edit: Edit[TextSpan] | None) -> None:
    with pytest.raises(ValueError, match="`sampled_turns`"):
        undo(Trajectory(TextSpan("p"), (said("a", edit=edit),)), 0)


def test_an_attempt_without_a_call_is_in_nobodys_context() -> None:
    failed, silent, right = said("failed"), Turn(TextSpan("I give up"), attempt=1), said("right")
    before, after = said("before"), said("after")
    repaired = replace(right, edit=Edit(RepairMode.SAAR, RepairKind.REPLACE, (failed, silent, right)))
    assert list(sampled_turns(Trajectory(TextSpan("p"), (before, repaired, after)))) == [
        Sampled((), before),
        Sampled((before,), failed),
        Sampled((before, failed), silent),
        Sampled((before, failed), right),
        Sampled((before, repaired), after),
    ]


def test_the_raw_beginning_ends_with_the_first_repaired_failure() -> None:
    kept = replace(said("kept"), edit=Edit(RepairMode.SAAR, RepairKind.NONE, (said("kept"), said("x"))))
    repaired = replace(said("right"), edit=Edit(RepairMode.SAAR, RepairKind.GRAFT, (said("wrong"), said("right"))))
    trajectory = Trajectory(TextSpan("p"), (kept, repaired, said("later")))
    assert cut_before_repairs(trajectory) == replace(trajectory, turns=(kept, said("wrong")))
    on_unrepaired = replace(trajectory, turns=(kept, said("later")))
    assert cut_before_repairs(on_unrepaired) is on_unrepaired


@settings(max_examples=20, deadline=None)
@given(st.lists(turns(text_spans), max_size=3))
def test_text_has_no_scores_to_drop(some: list[Turn[TextSpan]]) -> None:
    trajectory = Trajectory(TextSpan("p"), tuple(some))
    assert without_rescoring(trajectory).turns == trajectory.turns
    assert all(new is old for new, old in zip(without_rescoring(trajectory).turns, trajectory.turns, strict=True))
