from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from cleaner_rl.purify import RepairConfig, gap_gate, hindsight, refuse_wide_gaps, rescore
from cleaner_rl.trajectory import (
    Edit,
    Floats,
    Ids,
    RepairKind,
    RepairMode,
    Scores,
    TokenSpan,
    Trajectory,
    Turn,
    logprob_gap,
    token_span,
    undo,
)
from tests.builders import answered, failed, trajectory, worked

SLIP = failed("print(1 + y)", "I add. ")
FIX = worked("print(1 + 1)", "Now right. ", level=-1.5)
OTHER = worked("import math\nfor i in range(3): math.sqrt(i)", "Another way. ")


def truth(ids: Ids) -> Floats:
    """A made-up model: the log-prob of a token depends on it and on all before it."""
    return (-(np.cumsum(ids) % 97) / 16 - ids / 1024).astype(np.float32)


class Scorer:
    """Scores with `truth`, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    async def score(self, prefix: Ids, suffix: Ids) -> Scores:
        self.asked.append((len(prefix), len(suffix)))
        await asyncio.sleep(0)
        return Scores(truth(np.concatenate([prefix, suffix]))[len(prefix) :], version=5)


def live(failure: Turn[TokenSpan], correction: Turn[TokenSpan], kind: RepairKind) -> Turn[TokenSpan]:
    reasoning = failure.reasoning if kind is RepairKind.GRAFT else correction.reasoning
    edit = Edit(RepairMode.SAAR, kind, (failure, correction), 0.5, "difflib")
    return replace(correction, reasoning=reasoning, edit=edit)


def check_moved(scored: Trajectory[TokenSpan]) -> None:
    """Every moved token has its true log-prob, every other sampled one its own."""
    expected, found, start = truth(scored.ids()), scored.logprobs(), 0
    for placed in scored.placed():
        end = start + len(placed.span)
        if placed.owner.sampled and placed.moved:
            assert found[start:end].tobytes() == expected[start:end].tobytes()
        elif placed.owner.sampled:
            assert placed.span.rescored is None
            assert not np.isnan(found[start:end]).any()
        start = end


def test_s15_a_live_graft_asks_for_its_action_alone() -> None:
    graft = live(SLIP, FIX, RepairKind.GRAFT)
    rollout = trajectory(worked(), graft, worked(), answered())
    scorer = Scorer()
    scored = asyncio.run(rescore(rollout, scorer.score))
    before = len(trajectory(worked())) + len(graft.reasoning)
    assert graft.action is not None
    assert scorer.asked == [(before, len(graft.action))]
    check_moved(scored)
    action = scored.turns[1].action
    assert action is not None
    assert action.rescored is not None
    assert action.rescored.version == 5
    assert action.sampled == graft.action.sampled, "the lookahead's own log-probs are kept"
    assert replace(scored, turns=rollout.turns) == rollout


def test_s15_a_replaced_first_turn_keeps_the_arrays_in_step() -> None:
    replaced = live(SLIP, OTHER, RepairKind.REPLACE)
    rollout = trajectory(replaced, answered())
    scorer = Scorer()
    scored = asyncio.run(rescore(rollout, scorer.score))
    assert scorer.asked == [(len(rollout.prompt), len(replaced.text))]
    check_moved(scored)
    assert len(scored.ids()) == len(scored.logprobs()) == len(scored.loss_mask())


def test_separate_live_edits_are_separate_short_requests() -> None:
    graft = live(SLIP, FIX, RepairKind.GRAFT)
    rollout = trajectory(graft, worked(), graft, graft)
    scorer = Scorer()
    check_moved(asyncio.run(rescore(rollout, scorer.score)))
    assert graft.action is not None
    assert [length for _, length in scorer.asked] == [len(graft.action)] * 3


def test_hindsight_asks_once_from_the_first_moved_to_the_last_sampled_token() -> None:
    clean = hindsight(trajectory(worked(), SLIP, FIX, worked(), SLIP, OTHER), RepairConfig()).trajectory
    scorer = Scorer()
    check_moved(asyncio.run(rescore(clean, scorer.score)))
    start = len(trajectory(worked(), replace(clean.turns[1], action=None, observation=None)))
    last = clean.turns[-1].observation
    assert last is not None
    assert scorer.asked == [(start, len(clean) - len(last) - start)]


def test_nothing_moved_asks_for_nothing_and_nothing_is_asked_twice() -> None:
    scorer = Scorer()
    rollout = trajectory(SLIP, FIX, answered())
    assert asyncio.run(rescore(rollout, scorer.score)) is rollout
    clean = asyncio.run(rescore(hindsight(rollout, RepairConfig()).trajectory, scorer.score))
    assert len(scorer.asked) == 1
    assert asyncio.run(rescore(clean, scorer.score)) is clean
    assert len(scorer.asked) == 1


def test_undo_after_re_scoring_gives_the_sampled_log_probs_back() -> None:
    rollout = trajectory(SLIP, FIX, worked(), answered())
    clean = asyncio.run(rescore(hindsight(rollout, RepairConfig()).trajectory, Scorer().score))
    assert undo(clean, 0) == rollout


def test_an_empty_moved_span_needs_no_request() -> None:
    bare = replace(OTHER, reasoning=token_span("", [], []))
    clean = hindsight(trajectory(SLIP, bare), RepairConfig()).trajectory
    scored = asyncio.run(rescore(clean, Scorer().score))
    assert logprob_gap(scored.turns[0]) is not None
    check_moved(replace(scored, turns=(replace(scored.turns[0], reasoning=scored.turns[0].reasoning),)))


def test_a_wrong_number_of_log_probs_is_refused() -> None:
    async def short(prefix: Ids, suffix: Ids) -> Scores:
        return Scores(truth(suffix)[1:])

    clean = hindsight(trajectory(SLIP, FIX), RepairConfig()).trajectory
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(rescore(clean, short))
    action = clean.turns[0].action
    assert action is not None
    said = rf"\b{len(action)} tokens.* {len(action) - 1}\b"
    assert caught.group_contains(ValueError, match=said)


def test_s22_a_failing_scorer_leaves_no_task_behind() -> None:
    started = 0

    async def broken(prefix: Ids, suffix: Ids) -> Scores:
        nonlocal started
        started += 1
        if started == 2:
            raise ConnectionError
        await asyncio.Event().wait()
        raise AssertionError("never reached")

    graft = live(SLIP, FIX, RepairKind.GRAFT)

    async def main() -> int:
        with pytest.raises(ExceptionGroup) as caught:
            await rescore(trajectory(graft, worked(), graft), broken)
        assert caught.group_contains(ConnectionError)
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1


def test_the_gap_is_the_mean_log_prob_lost_by_moving() -> None:
    def constant(level: float) -> object:
        async def score(prefix: Ids, suffix: Ids) -> Scores:
            return Scores(np.full(len(suffix), level, np.float32))

        return score

    graft = live(SLIP, FIX, RepairKind.GRAFT)
    assert graft.action is not None
    assert graft.action.sampled is not None
    scored = asyncio.run(rescore(trajectory(graft), constant(-4.0)))  # type: ignore[arg-type]
    assert logprob_gap(scored.turns[0]) == pytest.approx(4.0 + graft.action.sampled.logprobs.mean())
    replaced = live(SLIP, OTHER, RepairKind.REPLACE)
    assert replaced.action is not None
    assert replaced.action.sampled is not None
    assert replaced.reasoning.sampled is not None
    sampled = np.concatenate([replaced.reasoning.sampled.logprobs, replaced.action.sampled.logprobs])
    scored = asyncio.run(rescore(trajectory(replaced), constant(-4.0)))  # type: ignore[arg-type]
    assert logprob_gap(scored.turns[0]) == pytest.approx(4.0 + sampled.mean())


def test_there_is_no_gap_without_an_edit_or_without_both_log_probs() -> None:
    graft = live(SLIP, FIX, RepairKind.GRAFT)
    assert logprob_gap(worked()) is None
    assert logprob_gap(graft) is None
    assert logprob_gap(replace(SLIP, edit=Edit(RepairMode.SAAR, RepairKind.NONE, (SLIP,)))) is None
    assert graft.action is not None
    unknown = replace(graft, action=replace(graft.action, sampled=None))
    scored = asyncio.run(rescore(trajectory(unknown), Scorer().score))
    assert logprob_gap(scored.turns[0]) is None


def test_the_gate_lets_in_up_to_its_gap_and_returns_the_scores() -> None:
    graft = live(SLIP, FIX, RepairKind.GRAFT)
    exact = logprob_gap(asyncio.run(rescore(trajectory(graft), Scorer().score)).turns[0])
    assert exact is not None
    let_in = asyncio.run(_gated(gap_gate(Scorer().score, exact), trajectory(graft)))
    assert let_in is not None
    assert logprob_gap(let_in.turns[-1]) == exact
    assert asyncio.run(_gated(gap_gate(Scorer().score, exact - 1e-6), trajectory(graft))) is None


async def _gated(gate: object, candidate: Trajectory[TokenSpan]) -> Trajectory[TokenSpan] | None:
    result: Trajectory[TokenSpan] | None = await gate(candidate)  # type: ignore[operator]
    return result


def test_the_gate_needs_the_lookaheads_log_probs() -> None:
    graft = live(SLIP, FIX, RepairKind.GRAFT)
    assert graft.action is not None
    unknown = replace(graft, action=replace(graft.action, sampled=None))
    with pytest.raises(ValueError, match="engine"):
        asyncio.run(_gated(gap_gate(Scorer().score, 1.0), trajectory(unknown)))


def test_edits_with_a_wide_gap_are_undone_and_the_rest_is_scored_again() -> None:
    rollout = trajectory(SLIP, FIX, worked(), SLIP, OTHER, answered())
    clean = hindsight(rollout, RepairConfig()).trajectory

    async def score(prefix: Ids, suffix: Ids) -> Scores:
        scores = np.full(len(suffix), -1.0, np.float32)
        # The second edit's program is much less likely than the first one's.
        place = bytes(suffix.tolist()).find(b"import math")
        if place >= 0:
            scores[place : place + 40] = -50.0
        return Scores(scores)

    kept = asyncio.run(refuse_wide_gaps(clean, score, 5.0))
    assert [index for index, _ in kept.edits] == [0]
    assert [turn.code for turn in kept.turns] == [turn.code for turn in rollout.turns[1:]]
    assert not np.isnan(kept.logprobs()).any()
    assert undo(kept, 0) == rollout
    none = asyncio.run(refuse_wide_gaps(clean, score, -99.0))
    assert none == rollout


def test_refusing_wide_gaps_leaves_live_edits_alone() -> None:
    rollout = trajectory(live(SLIP, FIX, RepairKind.GRAFT), answered())
    scored = asyncio.run(refuse_wide_gaps(rollout, Scorer().score, -99.0))
    assert len(scored.edits) == 1
