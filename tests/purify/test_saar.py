from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cleaner_rl.purify import (
    Draft,
    OnUnrepaired,
    PurifyConfig,
    RepairBudget,
    RepairConfig,
    RepairOutcome,
    RepairResult,
    SampleRequest,
    repair,
)
from cleaner_rl.purify.saar import PARTIAL
from cleaner_rl.tools import Status, ToolResult, ToolSet, call_format, python_tool
from cleaner_rl.trajectory import (
    Edit,
    RepairKind,
    RepairMode,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    read_text,
    sampled_turns,
)
from tests.builders import (
    AMPLE,
    FAULT,
    OK,
    SEEDS,
    ScriptedModel,
    ScriptedTool,
    answered,
    as_text,
    drafted,
    error,
    failed,
    observed,
    observed_text,
    trajectory,
    worked,
    written,
)
from tests.generators import hermes_call

POLICY = PurifyConfig()


def mend(
    turn: Turn[TokenSpan],
    script: Sequence[Turn[TokenSpan] | Draft[TokenSpan]],
    results: dict[str, ToolResult] | None = None,
    *,
    history: Trajectory[TokenSpan] | None = None,
    config: PurifyConfig = POLICY,
    budget: RepairBudget = AMPLE,
) -> tuple[RepairResult[TokenSpan], ScriptedModel, ScriptedTool]:
    model, tool = ScriptedModel(script), ScriptedTool(results or {})
    history = trajectory() if history is None else history
    repaired = asyncio.run(
        repair(history, turn, sample=model.sample, execute=tool.execute, config=config, budget=budget, seeds=SEEDS)
    )
    return repaired, model, tool


def edit_of(turn: Turn[TokenSpan]) -> Edit[TokenSpan]:
    assert turn.edit is not None
    return turn.edit


SLIP = failed("print(1 + y)", "I add. ")
FIX = drafted(written("print(1 + 1)", "The name y is not defined. \n"), level=-1.5)
OTHER = drafted(written("import math\nfor i in range(3): math.sqrt(i)", "Another way. \n"), level=-2.5)


def test_alike_code_is_grafted_onto_the_original_reasoning() -> None:
    repaired, _, _ = mend(SLIP, [FIX])
    assert repaired.verdict is RepairOutcome.REPAIRED
    assert repaired.lookahead == len(FIX)
    (turn,) = repaired.turns
    assert turn.reasoning == SLIP.reasoning
    assert turn.action == FIX.action
    assert turn.observation is not None
    assert turn.results == (OK,)
    assert turn.calls == FIX.calls
    assert turn.verified
    assert turn.attempt == 0
    edit = edit_of(turn)
    assert (edit.mode, edit.kind, edit.measure) == (RepairMode.SAAR, RepairKind.GRAFT, "difflib")
    assert edit.similarity == pytest.approx(2 * 12 / 26)
    assert edit.original[0] == SLIP
    assert edit.original[1] == replace(observed(FIX, OK), attempt=1)
    assert edit.refusal == ""


def test_unlike_code_replaces_the_reasoning_too() -> None:
    repaired, _, _ = mend(SLIP, [OTHER])
    (turn,) = repaired.turns
    assert turn.reasoning == OTHER.reasoning
    assert turn.action == OTHER.action
    assert edit_of(turn).kind is RepairKind.REPLACE
    assert edit_of(turn).similarity is not None
    assert (edit_of(turn).similarity or 1) < 0.5


def test_s10_the_threshold_is_the_policys_and_decides_at_or_above() -> None:
    similarity = edit_of(mend(SLIP, [FIX])[0].turns[0]).similarity
    assert similarity is not None
    for threshold, expected in (
        (similarity, "graft"),
        (similarity + 1e-9, "replace"),
        (0.0, "graft"),
        (1.01, "replace"),
    ):
        config = PurifyConfig(repair=RepairConfig(threshold=threshold))
        assert edit_of(mend(SLIP, [FIX], config=config)[0].turns[0]).kind == expected


def test_similarity_is_measured_as_the_policy_says() -> None:
    config = PurifyConfig(repair=RepairConfig(measure="tokens"))
    edit = edit_of(mend(SLIP, [FIX], config=config)[0].turns[0])
    assert edit.measure == "tokens"
    assert edit.similarity == pytest.approx(2 * 5 / 12)


def test_s2_a_fault_is_never_repaired_and_nothing_is_sampled() -> None:
    turn = failed(result=FAULT)
    repaired, model, tool = mend(turn, [])
    assert repaired == RepairResult(RepairOutcome.FAULT, (turn,), 0)
    assert not model.requests
    assert not tool.executed
    mixed = observed(drafted(written("a") + "\n" + written("b", "")), error(), FAULT)
    assert mend(mixed, [])[0].verdict is RepairOutcome.FAULT


def test_s2_a_fault_during_the_lookahead_ends_the_rollout_as_unusable() -> None:
    repaired, model, _ = mend(SLIP, [FIX, FIX], {"print(1 + 1)": FAULT})
    assert repaired.verdict is RepairOutcome.FAULT
    assert len(model.requests) == 1
    (turn,) = repaired.turns
    assert not edit_of(turn).commits
    assert edit_of(turn).refusal == ""
    assert edit_of(turn).original[1].faulty
    assert repaired.lookahead == len(FIX)


def test_s3_a_malformed_call_is_repaired_like_any_failure() -> None:
    broken = drafted("I open a block. \n```python\nprint(1 + 1)")
    refusal = broken.calls[0].refusal
    assert refusal is not None
    repaired, _, _ = mend(observed(broken, refusal), [FIX])
    assert repaired.verdict is RepairOutcome.REPAIRED
    assert edit_of(repaired.turns[0]).kind is RepairKind.GRAFT


def test_a_malformed_attempt_gets_feedback_and_the_next_one_sees_it() -> None:
    broken = drafted("Again. \n```python\nprint(1 + 1)")
    repaired, model, _ = mend(SLIP, [broken, FIX])
    assert repaired.verdict is RepairOutcome.REPAIRED
    seen = model.requests[1].context.turns[-1]
    assert seen.results[0].status is Status.MALFORMED
    assert "no closing ```" in model.requests[1].context.text


def test_s5_siblings_keep_their_own_results_and_all_must_be_ok() -> None:
    two = drafted(written("a = 1") + "\n" + written("b = oops", ""))
    half = drafted(written("a = 1") + "\n" + written("b = ops", ""))
    whole = drafted(written("a = 1") + "\n" + written("b = 2", ""))
    turn = observed(two, OK, error())
    assert turn.failed
    repaired, model, _ = mend(turn, [half, whole], {"b = ops": error()})
    assert [result.status for result in model.requests[1].context.turns[-1].results] == [Status.OK, Status.ERROR]
    assert [result.status for result in repaired.turns[0].results] == [Status.OK, Status.OK]
    assert edit_of(repaired.turns[0]).original[0].results[0] == OK
    assert edit_of(repaired.turns[0]).similarity == pytest.approx(
        2 * len("a = 1\n\nb = \n") / (len("a = 1\n\nb = oops\n") + len("a = 1\n\nb = 2\n"))
    )


def test_s5_what_a_sibling_said_is_not_lost_with_the_failure_beside_it() -> None:
    said = ToolResult(Status.OK, output="5617\n")
    turn = observed(drafted(written("print(41 * 137)") + "\n" + written("print(root(5617))", "")), said, error())
    half = drafted(written("print(sqrt(5617))"))
    repaired, model, _ = mend(turn, [half, half, half])
    assert repaired.verdict is RepairOutcome.UNREPAIRED
    assert edit_of(repaired.turns[0]).refusal == PARTIAL
    assert model.requests[1].context.turns[-1].verified, "the next attempt sees what this one gave"
    for code in ("print(41 * 137)", "x = 41 * 137\nprint(x)"):
        whole = drafted(written(code) + "\n" + written("print(sqrt(5617))", ""))
        repaired, _, _ = mend(turn, [half, whole], {code: said})
        assert repaired.verdict is RepairOutcome.REPAIRED
        assert repaired.turns[0].results[0].output == "5617\n"


def test_s5_what_an_earlier_attempt_printed_is_not_lost_either() -> None:
    said = ToolResult(Status.OK, output="5617\n")
    first = drafted(written("print(41 * 137)") + "\n" + written("print(root(5617))", ""))
    second = drafted(written("print(sqrt(5617))"))
    whole = drafted(written("print(41 * 137)") + "\n" + written("print(sqrt(5617))", ""))
    results = {"print(41 * 137)": said, "print(root(5617))": error()}
    repaired, _, _ = mend(SLIP, [first, second, second], results)
    assert edit_of(repaired.turns[0]).refusal == PARTIAL
    repaired, _, _ = mend(SLIP, [first, second, whole], results)
    assert repaired.verdict is RepairOutcome.REPAIRED


def test_s5_a_call_that_printed_nothing_must_run_again() -> None:
    quiet = ToolResult(Status.OK)
    turn = observed(drafted(written("a = 1") + "\n" + written("print(a + y)", "")), quiet, error())
    alone = drafted(written("print(2)"))
    repaired, _, _ = mend(turn, [alone, alone, alone])
    assert edit_of(repaired.turns[0]).refusal == PARTIAL
    both = drafted(written("a = 1") + "\n" + written("print(a + 1)", ""))
    repaired, _, _ = mend(turn, [alone, drafted(both.text + "\n" + written("print(2)", ""))], {"a = 1": quiet})
    assert repaired.verdict is RepairOutcome.REPAIRED


def test_s6_nothing_is_committed_before_it_ran_and_every_attempt_sees_all_failures() -> None:
    history = trajectory(worked())
    frozen = history.text
    second = drafted(written("print(1 + z)", "Second. \n"))
    third = drafted(written("print(1 + w)", "Third. \n"))
    failures = {"print(1 + z)": error(message="name 'z'"), "print(1 + w)": error(message="name 'w'")}
    repaired, model, tool = mend(SLIP, [second, third, FIX], failures, history=history)
    assert history.text == frozen
    contexts = [request.context for request in model.requests]
    assert [len(context.turns) for context in contexts] == [2, 3, 4]
    assert all(context.turns[:1] == history.turns for context in contexts)
    assert contexts[2].turns[1:] == (SLIP, *edit_of(repaired.turns[0]).original[1:3])
    for words in ("name 'y'", "name 'z'", "name 'w'"):
        assert words in contexts[2].text
    assert [turn.code for turn in tool.executed] == ["print(1 + z)\n", "print(1 + w)\n", "print(1 + 1)\n"]
    assert repaired.verdict is RepairOutcome.REPAIRED
    assert [turn.attempt for turn in edit_of(repaired.turns[0]).original] == [0, 1, 2, 3]


def test_s7_the_json_around_a_program_is_not_compared() -> None:
    def hermes(code: str) -> Turn[TextSpan]:
        return read_text(hermes_call(code), call_format("hermes"), ToolSet(python_tool()))

    async def sample(request: SampleRequest[TextSpan]) -> Draft[TextSpan]:
        return Draft(hermes("import os"))

    async def execute(turn: Turn[TextSpan]) -> Turn[TextSpan]:
        return observed_text(turn, OK)

    history, slip = Trajectory(TextSpan("?")), observed_text(hermes("print(1+1)"), error())
    repaired = repair(history, slip, sample=sample, execute=execute, config=POLICY, budget=AMPLE, seeds=SEEDS)
    edit = asyncio.run(repaired).turns[0].edit
    assert edit is not None
    assert edit.similarity == pytest.approx(0.316, abs=1e-3)
    assert edit.kind is RepairKind.REPLACE


def test_s9_similarity_is_of_the_original_and_the_verified_correction() -> None:
    detour = drafted(written("import math\nfor i in range(3): math.sqrt(i)"))
    near = drafted(written("import math\nfor i in range(4): math.sqrt(i)"))
    repaired, _, _ = mend(SLIP, [detour, near], {detour.code.strip(): error()})
    assert edit_of(repaired.turns[0]).kind is RepairKind.REPLACE
    back, _, _ = mend(SLIP, [detour, FIX], {detour.code.strip(): error()})
    assert edit_of(back.turns[0]).kind is RepairKind.GRAFT


FAILING = [drafted(written(f"print({name})")) for name in "abc"]
ALL_FAIL = {f"print({name})": error(message=f"name '{name}'") for name in "abc"}


def test_s11_when_all_attempts_fail_the_true_history_is_kept_with_nothing_invented() -> None:
    repaired, model, _ = mend(SLIP, FAILING, ALL_FAIL)
    assert repaired.verdict is RepairOutcome.UNREPAIRED
    assert len(model.requests) == 3
    assert [turn.attempt for turn in repaired.turns] == [0, 1, 2, 3]
    kept = replace(trajectory(), turns=repaired.turns)
    shown = SLIP.text + (SLIP.observation.text if SLIP.observation else "")
    assert kept.text.startswith(trajectory().text + shown)
    assert all(turn.failed for turn in repaired.turns)
    assert [sampled.turn.code for sampled in sampled_turns(kept)] == [
        "print(1 + y)\n",
        "print(a)\n",
        "print(b)\n",
        "print(c)\n",
    ]
    assert not any(placed.moved for placed in kept.placed())
    assert edit_of(repaired.turns[0]).refusal == "no attempt was verified"
    assert all(turn.edit is None for turn in repaired.turns[1:])


def test_s11_a_failed_repair_does_not_switch_repair_off() -> None:
    first, _, _ = mend(SLIP, FAILING, ALL_FAIL)
    history = replace(trajectory(), turns=first.turns)
    assert mend(SLIP, [FIX], history=history)[0].verdict is RepairOutcome.REPAIRED


def test_keep_first_keeps_the_failure_alone_and_the_attempts_in_the_ledger() -> None:
    repaired, _, _ = mend(SLIP, FAILING, ALL_FAIL, config=PurifyConfig(on_unrepaired=OnUnrepaired.KEEP_FIRST))
    assert repaired.verdict is RepairOutcome.UNREPAIRED
    (turn,) = repaired.turns
    assert replace(turn, edit=None) == SLIP
    edit = edit_of(turn)
    assert (edit.mode, edit.kind) == (RepairMode.SAAR, RepairKind.NONE)
    assert not edit.commits
    assert edit.similarity is None
    assert [each.attempt for each in edit.original] == [0, 1, 2, 3]
    assert repaired.lookahead == sum(map(len, FAILING))


def test_drop_marks_the_rollout_for_dropping() -> None:
    repaired, _, _ = mend(SLIP, FAILING, ALL_FAIL, config=PurifyConfig(on_unrepaired=OnUnrepaired.DROP))
    assert repaired.verdict is RepairOutcome.DROPPED
    assert len(repaired.turns) == 1
    assert edit_of(repaired.turns[0]).refusal == "no attempt was verified"


def test_s12_an_answer_without_a_call_is_a_failed_attempt_and_the_lookahead_goes_on() -> None:
    repaired, model, tool = mend(SLIP, [answered("It is 2."), FIX])
    assert repaired.verdict is RepairOutcome.REPAIRED
    assert model.requests[1].context == model.requests[0].context
    assert model.requests[1].seed != model.requests[0].seed
    assert len(tool.executed) == 1
    original = edit_of(repaired.turns[0]).original
    assert [turn.text for turn in original][1] == "It is 2."


def test_s12_side_branches_stay_with_the_turn_they_branched_from() -> None:
    repaired, _, _ = mend(SLIP, [answered("One."), FAILING[0], answered("Two.")], ALL_FAIL)
    assert [turn.attempt for turn in repaired.turns] == [0, 2]
    assert [turn.text for turn in edit_of(repaired.turns[0]).original[1:]] == ["One."]
    assert [turn.text for turn in edit_of(repaired.turns[1]).original[1:]] == ["Two."]
    history = replace(trajectory(), turns=repaired.turns)
    pieces = list(sampled_turns(history))
    assert [piece.turn.attempt for piece in pieces] == [0, 1, 2, 3]
    assert [len(piece.context) for piece in pieces] == [0, 1, 1, 2]


def test_an_attempt_that_was_cut_off_is_not_run() -> None:
    repaired, model, tool = mend(SLIP, [Draft(FIX, complete=False), OTHER])
    assert [turn.code for turn in tool.executed] == [OTHER.code]
    assert model.requests[1].context == model.requests[0].context
    assert repaired.verdict is RepairOutcome.REPAIRED


def test_s13_a_repair_is_one_whole_turn_whatever_number_of_attempts_it_took() -> None:
    repaired, _, _ = mend(SLIP, [*FAILING[:2], FIX], ALL_FAIL)
    assert len(repaired.turns) == 1
    assert repaired.turns[0].observation is not None
    assert len(repaired.turns[0].results) == len(repaired.turns[0].calls) == 1


def test_s14_no_attempt_is_sampled_without_room_in_the_context() -> None:
    after_failure = len(trajectory(SLIP))
    exact = RepairBudget(lookahead=10_000, context=after_failure, response=10_000)
    repaired, model, _ = mend(SLIP, [FIX], budget=exact)
    assert not model.requests
    assert repaired.verdict is RepairOutcome.UNREPAIRED
    assert repaired.lookahead == 0
    assert edit_of(repaired.turns[0]).refusal == "no room for another attempt"
    _, model, _ = mend(SLIP, [FIX], budget=replace(exact, context=after_failure + 1))
    assert model.requests[0].max_length == 1


def test_s14_each_attempt_is_told_what_is_left_of_the_smaller_budget() -> None:
    budget = RepairBudget(lookahead=len(FAILING[0]) + 50, context=100_000, response=100_000)
    _, model, _ = mend(SLIP, FAILING, ALL_FAIL, budget=budget)
    assert [request.max_length for request in model.requests[:2]] == [len(FAILING[0]) + 50, 50]
    tight = len(trajectory(SLIP)) + 200
    _, model, _ = mend(SLIP, [FIX], budget=RepairBudget(lookahead=100_000, context=tight, response=100_000))
    assert model.requests[0].max_length == 200


def test_the_lookahead_stops_when_its_budget_is_spent() -> None:
    budget = RepairBudget(lookahead=len(FAILING[0]), context=100_000, response=100_000)
    repaired, model, _ = mend(SLIP, FAILING, ALL_FAIL, budget=budget)
    assert len(model.requests) == 1
    assert repaired.lookahead == len(FAILING[0])


def test_only_committed_tokens_count_against_the_response() -> None:
    size = len(mend(SLIP, [*FAILING[:2], FIX], ALL_FAIL)[0].turns[0])
    tight = replace(AMPLE, response=size)
    assert mend(SLIP, [*FAILING[:2], FIX], ALL_FAIL, budget=tight)[0].verdict is RepairOutcome.REPAIRED
    over, _, _ = mend(SLIP, [*FAILING[:2], FIX], ALL_FAIL, budget=replace(AMPLE, response=size - 1))
    assert over.verdict is RepairOutcome.UNREPAIRED
    assert len(over.turns) == 1, "the attempts would not fit either, so the failure stands alone"
    assert edit_of(over.turns[0]).refusal == "the correction is longer than what is left of the response"


def test_kept_attempts_fit_the_response_exactly_or_not_at_all() -> None:
    size = sum(map(len, mend(SLIP, FAILING, ALL_FAIL)[0].turns))
    assert len(mend(SLIP, FAILING, ALL_FAIL, budget=replace(AMPLE, response=size))[0].turns) == 4
    assert len(mend(SLIP, FAILING, ALL_FAIL, budget=replace(AMPLE, response=size - 1))[0].turns) == 1


def test_s15_moved_tokens_have_no_log_prob_until_they_are_re_scored() -> None:
    for fix, moved_reasoning in ((FIX, False), (OTHER, True)):
        turn = mend(SLIP, [fix])[0].turns[0]
        clean = trajectory(turn, answered())
        ids, mask, logprobs = clean.ids(), clean.loss_mask(), clean.logprobs()
        assert len(ids) == len(mask) == len(logprobs) == len(clean)
        start = len(clean.prompt)
        cut = start + len(turn.reasoning)
        end = cut + len(turn.action or b"")
        assert np.isnan(logprobs[start:cut]).all() == moved_reasoning
        assert np.isnan(logprobs[cut:end]).all()
        assert not np.isnan(logprobs[end:]).any()
        behaviour = clean.behaviour_logprobs()
        assert not np.isnan(behaviour).any()
        assert fix.action is not None
        assert fix.action.sampled is not None
        assert behaviour[cut:end].tobytes() == fix.action.sampled.logprobs.tobytes()


def test_s22_repairs_leave_no_task_behind() -> None:
    async def many() -> set[asyncio.Task[object]]:
        for _ in range(100):
            model, tool = ScriptedModel([*FAILING[:2], FIX]), ScriptedTool(ALL_FAIL)
            await repair(
                trajectory(),
                SLIP,
                sample=model.sample,
                execute=tool.execute,
                config=POLICY,
                budget=AMPLE,
                seeds=SEEDS,
            )
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(many()) == set()


def test_s23_the_splice_keeps_every_token_between_turns() -> None:
    turn = mend(SLIP, [FIX])[0].turns[0]
    before, after = worked(), answered()
    clean = trajectory(before, turn, after)
    pieces = [clean.prompt, *before.spans(), *turn.spans(), *after.spans()]
    assert clean.ids().tolist() == [token for span in pieces for token in span.ids.tolist()]
    assert bytes(clean.ids().tolist()).decode() == clean.text


def test_s24_talk_of_the_removed_error_is_reported_and_can_be_refused() -> None:
    confession = drafted(written("import math\nmath.sqrt(4)", "The error was that name 'y' is not defined. \n"))
    reported = mend(SLIP, [confession])[0]
    assert reported.verdict is RepairOutcome.REPAIRED
    assert edit_of(reported.turns[0]).stale == ("The error", "name 'y' is not defined")
    strict = PurifyConfig(repair=RepairConfig(refuse_stale=True))
    refused, model, _ = mend(SLIP, [confession, FIX], config=strict)
    assert refused.verdict is RepairOutcome.UNREPAIRED
    assert edit_of(refused.turns[0]).refusal == "the correction's reasoning mentions the error that it removes"
    assert len(model.requests) == 1, "what works is not thrown away for another try: it is kept as the true history"
    assert refused.turns[-1].verified
    assert mend(SLIP, [FIX], config=strict)[0].verdict is RepairOutcome.REPAIRED, "a graft keeps the original reasoning"
    talkative = drafted(written("print(1 + 1)", "The error was mine.\n"))
    assert edit_of(mend(SLIP, [talkative])[0].turns[0]).stale == (), "a graft doesn't adopt it"


def test_a_gate_has_the_last_word_and_a_replacement_is_tried_after_a_refused_graft() -> None:
    asked: list[RepairKind] = []

    async def only_replacements(candidate: Trajectory[TokenSpan]) -> Trajectory[TokenSpan] | None:
        edit = edit_of(candidate.turns[-1])
        asked.append(edit.kind)
        assert candidate.turns[:-1] == (worked(), worked())
        return candidate if edit.kind is RepairKind.REPLACE else None

    async def nothing(candidate: Trajectory[TokenSpan]) -> Trajectory[TokenSpan] | None:
        return None

    async def run(gate: object) -> RepairResult[TokenSpan]:
        model, tool = ScriptedModel([FIX]), ScriptedTool()
        return await repair(
            trajectory(worked(), worked()),
            SLIP,
            sample=model.sample,
            execute=tool.execute,
            config=POLICY,
            budget=AMPLE,
            seeds=SEEDS,
            gate=gate,  # type: ignore[arg-type]
        )

    repaired = asyncio.run(run(only_replacements))
    assert asked == [RepairKind.GRAFT, RepairKind.REPLACE]
    assert repaired.turns[0].reasoning == FIX.reasoning
    refused = asyncio.run(run(nothing))
    assert refused.verdict is RepairOutcome.UNREPAIRED
    assert edit_of(refused.turns[0]).refusal == "the gate refused the correction"


def test_requests_are_seeded_by_turn_and_attempt() -> None:
    _, model, _ = mend(SLIP, FAILING, ALL_FAIL, history=trajectory(worked(), worked()))
    assert [request.seed for request in model.requests] == [SEEDS.request(2, attempt) for attempt in (1, 2, 3)]
    assert [request.attempt for request in model.requests] == [1, 2, 3]


def test_text_trajectories_are_repaired_alike() -> None:
    async def sample(request: SampleRequest[TextSpan]) -> Draft[TextSpan]:
        return Draft(as_text(FIX))

    async def execute(turn: Turn[TextSpan]) -> Turn[TextSpan]:
        return observed_text(turn, OK)

    history = Trajectory(TextSpan("What is 1+1?\n"))
    repaired = asyncio.run(
        repair(history, as_text(SLIP), sample=sample, execute=execute, config=POLICY, budget=AMPLE, seeds=SEEDS)
    )
    token_turn = mend(SLIP, [FIX])[0].turns[0]
    assert repaired.turns[0].text == token_turn.text
    assert repaired.turns[0].edit is not None
    assert repaired.turns[0].edit.similarity == edit_of(token_turn).similarity


def test_what_sampling_raises_goes_through() -> None:
    async def broken(request: SampleRequest[TokenSpan]) -> Draft[TokenSpan]:
        raise ConnectionError("the engine is gone")

    tool = ScriptedTool()
    with pytest.raises(ConnectionError, match="the engine is gone"):
        asyncio.run(
            repair(trajectory(), SLIP, sample=broken, execute=tool.execute, config=POLICY, budget=AMPLE, seeds=SEEDS)
        )
