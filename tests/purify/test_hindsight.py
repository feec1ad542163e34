from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner_rl.purify import LeftAlone, PurifyConfig, PurifyScope, Reason, RepairConfig, hindsight, purify
from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory import (
    Edit,
    RepairKind,
    RepairMode,
    Scores,
    StopReason,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    sampled_turns,
    undo,
    without_rescoring,
)
from tests.builders import (
    FAULT,
    OK,
    answered,
    as_text,
    drafted,
    error,
    failed,
    observed,
    trajectory,
    worked,
    written,
)

POLICY = RepairConfig()
SLIP = failed("print(1 + y)", "I add. ")
FIX = worked("print(1 + 1)", "Now right. ")
OTHER = worked("import math\nfor i in range(3): math.sqrt(i)", "Another way. ")


def edit_of(turn: Turn[TokenSpan]) -> Edit[TokenSpan]:
    assert turn.edit is not None
    return turn.edit


def test_a_mended_failure_is_collapsed_onto_its_correction() -> None:
    rollout = trajectory(SLIP, FIX, answered())
    purified = hindsight(rollout, POLICY)
    assert purified.left_alone == ()
    graft, last = purified.trajectory.turns
    assert (graft.reasoning, graft.action, graft.observation) == (SLIP.reasoning, FIX.action, FIX.observation)
    assert edit_of(graft).mode is RepairMode.HINDSIGHT
    assert edit_of(graft).kind is RepairKind.GRAFT
    assert edit_of(graft).original == (SLIP, FIX)
    assert last == rollout.turns[2]
    assert not any(turn.failed for turn in purified.trajectory.turns)


def test_an_unlike_correction_replaces_the_reasoning_too() -> None:
    replaced = hindsight(trajectory(SLIP, OTHER), POLICY).trajectory.turns[0]
    assert replaced.reasoning == OTHER.reasoning
    assert edit_of(replaced).kind is RepairKind.REPLACE


def test_a_chain_of_failures_is_compared_by_its_first_and_kept_whole() -> None:
    second = failed("for i in range(3): math.sqrt(i)", "Hm. ")
    purified = hindsight(trajectory(worked(), SLIP, second, FIX, OTHER), POLICY)
    assert len(purified.trajectory.turns) == 3
    chain = edit_of(purified.trajectory.turns[1])
    assert chain.original == (SLIP, second, FIX)
    assert chain.kind is RepairKind.GRAFT
    assert purified.trajectory.turns[1].reasoning == SLIP.reasoning
    assert [turn.edit is None for turn in purified.trajectory.turns] == [True, False, True]


def test_two_chains_are_two_edits_and_undo_gives_the_original_back_in_any_order() -> None:
    rollout = trajectory(SLIP, FIX, worked(), SLIP, SLIP, OTHER, answered())
    clean = hindsight(rollout, POLICY).trajectory
    assert [index for index, _ in clean.edits] == [0, 2]
    assert undo(undo(clean, 2), 0) == rollout
    assert undo(undo(clean, 0), 3) == rollout
    assert [piece.turn for piece in sampled_turns(clean)] == list(rollout.turns)
    assert [len(piece.context) for piece in sampled_turns(clean)] == list(range(7))


def test_what_nobody_mended_stays_as_it_is() -> None:
    rollout = trajectory(SLIP, SLIP, answered())
    purified = hindsight(rollout, POLICY)
    assert purified.trajectory == rollout
    assert purified.left_alone == (LeftAlone(0, Reason.UNCORRECTED), LeftAlone(1, Reason.UNCORRECTED))
    assert hindsight(trajectory(worked(), SLIP), POLICY).left_alone == (LeftAlone(1, Reason.UNCORRECTED),)
    unrun = drafted(written("print(3)"))
    assert hindsight(trajectory(SLIP, unrun), POLICY).left_alone == (LeftAlone(0, Reason.UNCORRECTED),)


def two(first: str, second: str, *results: ToolResult) -> Turn[TokenSpan]:
    return observed(drafted(written(first) + "\n" + written(second, "")), *results)


def test_what_worked_in_a_failed_turn_is_not_lost() -> None:
    half = two("a = 1", "b = y", OK, error())
    alone = hindsight(trajectory(half, worked("b = 2")), POLICY)
    assert alone.left_alone == (LeftAlone(0, Reason.PARTIAL),)
    assert len(alone.trajectory.turns) == 2
    redone = hindsight(trajectory(half, two("a = 1", "b = 2", OK, OK)), POLICY)
    assert redone.left_alone == ()
    assert len(redone.trajectory.turns) == 1


def test_later_failures_of_a_chain_are_collapsed_even_if_the_first_must_stay() -> None:
    half = two("a = 1", "b = y", OK, error())
    purified = hindsight(trajectory(worked(), half, failed("b = z"), worked("b = 2")), POLICY)
    assert len(purified.trajectory.turns) == 3
    assert purified.left_alone == (LeftAlone(1, Reason.PARTIAL),)
    assert edit_of(purified.trajectory.turns[2]).original[0] == failed("b = z")


def test_a_refused_failure_and_those_before_it_stay_with_the_reason_that_was_given() -> None:
    asked = []

    def refusal(failures: range, failed: int) -> Reason | None:
        asked.append((list(failures), failed))
        return Reason.UNPROVEN if failed == 2 else None

    first, second, third = (failed(f"print({name})") for name in "xyz")
    purified = hindsight(trajectory(worked(), first, second, third, FIX, SLIP, FIX), POLICY, refusal)
    assert asked == [([1, 2, 3], 3), ([1, 2, 3], 2), ([5], 5)]
    assert purified.left_alone == (LeftAlone(1, Reason.UNPROVEN), LeftAlone(2, Reason.UNPROVEN))
    assert [edit_of(each).original[0] for each in purified.trajectory.turns[3:]] == [third, SLIP]


def test_s2_a_trajectory_with_a_fault_is_not_touched() -> None:
    for rollout in (
        replace(trajectory(SLIP, FIX), stop_reason=StopReason.FAULT),
        replace(trajectory(SLIP, FIX), stop_reason=StopReason.DROPPED),
        trajectory(SLIP, FIX, failed(result=FAULT)),
    ):
        purified = hindsight(rollout, POLICY)
        assert purified.trajectory is rollout
        assert purified.left_alone == (LeftAlone(0, Reason.UNUSABLE),)


def test_a_fault_is_no_correction() -> None:
    assert not hindsight(trajectory(SLIP, observed(drafted(written("x")), FAULT)), POLICY).trajectory.edits


def test_s24_stale_reasoning_is_noted_in_the_correction_and_in_later_turns() -> None:
    confession = worked("import math\nmath.sqrt(4)", "My mistake: y is missing. ")
    later = answered("As the NameError showed, the answer is 2.")
    clean = hindsight(trajectory(SLIP, confession, later), POLICY).trajectory
    assert edit_of(clean.turns[0]).stale == ("My mistake", "NameError")
    before = worked(reasoning="A NameError is not to be expected. ")
    grafted = hindsight(trajectory(before, SLIP, FIX, later), POLICY).trajectory
    assert edit_of(grafted.turns[1]).stale == ("NameError",)
    assert edit_of(hindsight(trajectory(before, SLIP, FIX), POLICY).trajectory.turns[1]).stale == ()
    assert edit_of(hindsight(trajectory(SLIP, FIX, answered()), POLICY).trajectory.turns[0]).stale == ()
    strict = RepairConfig(refuse_stale=True)
    refused = hindsight(trajectory(SLIP, confession), strict)
    assert refused.left_alone == (LeftAlone(0, Reason.STALE),)
    assert len(refused.trajectory.turns) == 2
    assert hindsight(trajectory(SLIP, FIX), strict).left_alone == ()


def test_a_re_scored_trajectory_is_refused_until_its_scores_are_dropped() -> None:
    assert FIX.action is not None
    assert FIX.action.sampled is not None
    scored = replace(FIX, action=replace(FIX.action, rescored=Scores(FIX.action.sampled.logprobs)))
    rollout = trajectory(SLIP, scored)
    with pytest.raises(ValueError, match="`without_rescoring`"):
        hindsight(rollout, POLICY)
    assert undo(hindsight(without_rescoring(rollout), POLICY).trajectory, 0) == trajectory(SLIP, FIX)


def test_hindsight_twice_changes_nothing_more() -> None:
    once = hindsight(trajectory(SLIP, FIX, SLIP, OTHER, answered()), POLICY)
    assert hindsight(once.trajectory, POLICY) == once


def test_text_and_tokens_are_purified_alike() -> None:
    turns = (SLIP, FIX, SLIP, SLIP, OTHER, answered("The NameError is gone."))
    text = Trajectory(TextSpan("What is 1+1?\n"), tuple(map(as_text, turns)))
    purified, tokens = hindsight(text, POLICY), hindsight(trajectory(*turns), POLICY)
    assert purified.trajectory.text == tokens.trajectory.text
    assert [(i, e.kind, e.similarity, e.stale) for i, e in purified.trajectory.edits] == [
        (i, e.kind, e.similarity, e.stale) for i, e in tokens.trajectory.edits
    ]


def test_s19_failures_can_be_left_raw() -> None:
    rollout = trajectory(SLIP, FIX, answered())
    only, every = PurifyConfig(), PurifyConfig(scope=PurifyScope.ALL)
    wrong, right = replace(rollout, success=False), replace(rollout, success=True)
    assert purify(wrong, only, RepairMode.HINDSIGHT) == wrong
    assert len(purify(right, only, RepairMode.HINDSIGHT).turns) == 2
    for graded in (wrong, right, rollout):
        assert len(purify(graded, every, RepairMode.HINDSIGHT).turns) == 2
    with pytest.raises(ValueError, match="scope='successful'"):
        purify(rollout, only, RepairMode.HINDSIGHT)


def test_s19_a_failed_live_rollout_is_raw_up_to_its_first_failure() -> None:
    graft = hindsight(trajectory(SLIP, FIX), POLICY).trajectory.turns[0]
    live = replace(graft, edit=replace(edit_of(graft), mode=RepairMode.SAAR))
    kept = replace(SLIP, edit=Edit(RepairMode.SAAR, RepairKind.NONE, (SLIP,)))
    rollout = trajectory(worked(), kept, live, answered(), success=False)
    only = PurifyConfig(scope=PurifyScope.SUCCESSFUL)
    assert purify(rollout, only, RepairMode.SAAR).turns == (worked(), kept, SLIP)
    assert purify(replace(rollout, success=True), only, RepairMode.SAAR).turns == rollout.turns
    assert purify(rollout, PurifyConfig(), RepairMode.SAAR) is rollout
