"""What a trainer gets is derived from the spans, aligned, and honest about what it doesn't know."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings

from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import (
    AnyTrajectory,
    Edit,
    Key,
    Owner,
    RepairKind,
    RepairMode,
    Scores,
    StopReason,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    token_span,
)
from tests.generators import any_trajectories, token_trajectories
from tests.profile import examples

CALL = ToolCall("python", {"code": "1"}, "1", 0, 1)


def turn(first_id: int, status: Status = Status.OK, edit: Edit[TokenSpan] | None = None) -> Turn[TokenSpan]:
    """Reasoning of two tokens, an action of one, an observation of one."""
    return Turn(
        token_span("r", [first_id, first_id + 1], [-0.1, -0.2]),
        token_span("a", [first_id + 2], [-0.3]),
        token_span("o", [first_id + 3]),
        (CALL,),
        (ToolResult(status),),
        edit=edit,
    )


def edited(mode: RepairMode, kind: RepairKind) -> Trajectory[TokenSpan]:
    """One turn, an edited one, and one after it."""
    edit = Edit(mode, kind, (turn(90, Status.ERROR), turn(94)))
    return Trajectory(token_span("p", [1]), (turn(10), turn(20, edit=edit), turn(30)))


@settings(max_examples=examples(40), deadline=None)
@given(token_trajectories)
def test_ids_mask_and_logprobs_are_aligned(trajectory: Trajectory[TokenSpan]) -> None:
    ids, mask, logprobs = trajectory.ids(), trajectory.loss_mask(), trajectory.logprobs()
    behaviour = trajectory.behaviour_logprobs()
    assert len(ids) == len(mask) == len(logprobs) == len(behaviour) == len(trajectory)
    assert [str(array.dtype) for array in (ids, mask, logprobs, behaviour)] == ["int32", "bool", "float32", "float32"]
    position = 0
    for owner, span, _, moved in trajectory.placed():
        part = slice(position, position + len(span))
        position += len(span)
        assert ids[part].tobytes() == span.ids.tobytes()
        assert (mask[part] == (owner in (Owner.REASONING, Owner.ACTION))).all()
        if owner in (Owner.REASONING, Owner.ACTION):
            known = None if span.sampled is None else span.sampled.logprobs
            assert np.isnan(behaviour[part]).all() if known is None else behaviour[part].tobytes() == known.tobytes()
            clean = span.rescored.logprobs if span.rescored is not None else None if moved else known
            assert np.isnan(logprobs[part]).all() if clean is None else logprobs[part].tobytes() == clean.tobytes()
        elif span.rescored is None:
            assert (logprobs[part] == 0).all()
            assert (behaviour[part] == 0).all()


@settings(max_examples=examples(40), deadline=None)
@given(any_trajectories)
def test_text_and_length_are_those_of_the_spans(trajectory: AnyTrajectory) -> None:
    spans = [trajectory.prompt, *(span for each in trajectory.turns for span in each.spans())]
    assert [placed.span for placed in trajectory.placed()] == spans
    assert trajectory.text == "".join(span.text for span in spans)
    assert len(trajectory) == sum(map(len, spans))
    assert all(trajectory.turns[index].edit is edit for index, edit in trajectory.edits)
    assert len(trajectory.edits) == sum(each.edit is not None for each in trajectory.turns)


@pytest.mark.parametrize(
    ("mode", "kind", "moved"),
    [
        (RepairMode.SAAR, RepairKind.GRAFT, [(1, Owner.ACTION)]),
        (RepairMode.SAAR, RepairKind.REPLACE, [(1, Owner.REASONING), (1, Owner.ACTION)]),
        (RepairMode.SAAR, RepairKind.NONE, []),
        (RepairMode.HINDSIGHT, RepairKind.GRAFT, [(1, Owner.ACTION), (2, Owner.REASONING), (2, Owner.ACTION)]),
        (
            RepairMode.HINDSIGHT,
            RepairKind.REPLACE,
            [(1, Owner.REASONING), (1, Owner.ACTION), (2, Owner.REASONING), (2, Owner.ACTION)],
        ),
        (RepairMode.HINDSIGHT, RepairKind.NONE, []),
    ],
)
def test_what_an_edit_moved(mode: RepairMode, kind: RepairKind, moved: list[tuple[int, Owner]]) -> None:
    trajectory = edited(mode, kind)
    assert [(placed.turn, placed.owner) for placed in trajectory.placed() if placed.moved] == moved
    unknown = np.concatenate([np.full(len(placed.span), placed.moved) for placed in trajectory.placed()])
    assert (np.isnan(trajectory.logprobs()) == unknown).all()
    assert not np.isnan(trajectory.behaviour_logprobs()).any()


def test_s15_a_grafted_span_has_the_logprobs_of_its_own_context_or_none() -> None:
    trajectory = edited(RepairMode.SAAR, RepairKind.GRAFT)
    assert np.isnan(trajectory.logprobs()[7])
    assert trajectory.behaviour_logprobs()[7] == np.float32(-0.3)
    grafted = trajectory.turns[1]
    assert grafted.action is not None
    action = replace(grafted.action, rescored=Scores(np.array([-2.5], np.float32)))
    turns = (trajectory.turns[0], replace(grafted, action=action), trajectory.turns[2])
    rescored = replace(trajectory, turns=turns)
    assert rescored.logprobs()[7] == np.float32(-2.5)
    assert rescored.behaviour_logprobs()[7] == np.float32(-0.3)


def test_a_text_trajectory_has_no_tokens() -> None:
    trajectory = Trajectory(TextSpan("p"), (Turn(TextSpan("r")),))
    # Each ignore is needed, or `mypy --strict` complains: so to ask a text trajectory for tokens is a type error.
    with pytest.raises(TypeError, match="encode"):
        trajectory.ids()  # type: ignore[misc]
    with pytest.raises(TypeError, match="encode"):
        trajectory.loss_mask()  # type: ignore[misc]
    with pytest.raises(TypeError, match="encode"):
        trajectory.logprobs()  # type: ignore[misc]
    with pytest.raises(TypeError, match="encode"):
        trajectory.behaviour_logprobs()  # type: ignore[misc]


def test_a_trajectory_is_usable_unless_it_broke_or_was_dropped() -> None:
    trajectory = Trajectory(token_span("p", [1]), (turn(1), turn(5, Status.ERROR)))
    assert trajectory.usable
    assert replace(trajectory, stop_reason=StopReason.ANSWERED).usable
    assert not replace(trajectory, stop_reason=StopReason.FAULT).usable
    assert not replace(trajectory, stop_reason=StopReason.DROPPED).usable
    assert not replace(trajectory, turns=(turn(1, Status.FAULT),)).usable


def test_what_a_turn_says_of_itself() -> None:
    ok, failed, faulty = turn(1), turn(1, Status.TIMEOUT), turn(1, Status.FAULT)
    assert [(each.failed, each.faulty, each.verified) for each in (ok, failed, faulty, Turn(ok.reasoning))] == [
        (False, False, True),
        (True, False, False),
        (False, True, False),
        (False, False, False),
    ]
    several = replace(
        ok, calls=(CALL, replace(CALL, code="2")), results=(ToolResult(Status.OK), ToolResult(Status.ERROR))
    )
    assert (several.failed, several.verified, several.code) == (True, False, "1\n2")
    assert (ok.text, len(ok), Turn(ok.reasoning).text) == ("ra", 4, "r")


def test_values_cannot_change() -> None:
    trajectory = Trajectory(token_span("p", [1, 2]), key=Key("run"))
    with pytest.raises(FrozenInstanceError):
        trajectory.reward = 1.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        trajectory.prompt.ids[0] = 5


def test_a_span_has_as_many_logprobs_as_tokens() -> None:
    with pytest.raises(ValueError, match=r"2 tokens .* 1 log-probs"):
        token_span("ab", [1, 2], [-0.5])
    with pytest.raises(ValueError, match=r"1 tokens .* 2 log-probs"):
        replace(token_span("a", [1]), rescored=Scores(np.zeros(2, np.float32)))


def test_spans_are_equal_bit_for_bit() -> None:
    span = token_span("a", [1], [float("nan")], version=2)
    same = token_span("a", [1], [float("nan")], version=2)
    assert span == same
    assert hash(span) == hash(same)
    others = [
        token_span("b", [1], [float("nan")], version=2),
        token_span("a", [2], [float("nan")], version=2),
        token_span("a", [1], [-0.0], version=2),
        token_span("a", [1], [float("nan")], version=3),
        token_span("a", [1]),
        replace(span, rescored=span.sampled),
    ]
    assert all(span != other for other in others)
    assert token_span("a", [1], [0.0]) != token_span("a", [1], [-0.0])
    assert span != "a"
    assert span.sampled != "a"
    assert replace(span, rescored=span.sampled).without_rescoring() == span
    assert TextSpan("a").without_rescoring() == TextSpan("a")
    assert not TextSpan("a").is_rescored
