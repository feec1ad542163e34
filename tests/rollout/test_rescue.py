"""A group in which every rollout is wrong gets a right one: a failed call repaired, and what follows from there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.purify import OnUnrepaired, PurifyConfig, ReplayVerdict, replay
from cleaner_rl.rollout import (
    Completion,
    Purifier,
    RescueConfig,
    RescueTry,
    RolloutBudget,
    RolloutRunner,
    Sampling,
    SessionToolEnv,
    TokenModel,
    calls_of,
    open_runner,
)
from cleaner_rl.rollout.model import RescoringRefusedError
from cleaner_rl.trajectory import Ids, RepairMode, Scores, Seeds, TokenSpan, Trajectory
from cleaner_sandbox import SessionRequest
from tests.evaluate.standins import RIGHT, WRONG, Rule, RuleEngine, runner, tasks
from tests.rollout.scripted import call, logprobs_of

(TASK,) = tasks(1)
SAMPLES = 2
AMPLE = RescueConfig(share=2.0)
"""For groups as small as these."""
RESCUE = Seeds(0, TASK.id, SAMPLES)
Group = list[Trajectory[TokenSpan]]


@dataclass
class ExactEngine(RuleEngine):
    """It has log-probs that depend on all tokens before."""

    async def sample(self, prompt_T: Ids, **options: Any) -> Completion:
        made = await super().sample(prompt_T, **options)
        return replace(made, logprobs_T=logprobs_of(prompt_T, made.ids_T))

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        return Scores(logprobs_of(prefix_T, suffix_T))


def since_asked(context: str) -> str:
    return context.rpartition("<|im_start|>user\nHow many")[2]


def gives_up(corrects: Callable[[int], bool], then: str = RIGHT) -> Rule:
    """The first call fails. The model then answers wrongly, but calls again where `corrects` says so of the seed."""

    def rule(context: str, seed: int) -> str:
        said = since_asked(context)
        if "<tool_response>" not in said:
            return call("print(unknown)")
        if "NameError" in said:
            return call("print(3)") if corrects(seed) else WRONG
        return then

    return rule


def in_lookahead(attempt: int, turn: int = 0) -> Callable[[int], bool]:
    """Whether a request is this attempt of the rescue."""
    return RESCUE.request(turn, attempt).__eq__


def group(
    rule: Rule,
    config: RescueConfig | None = AMPLE,
    change: Callable[[RolloutRunner[TokenSpan]], RolloutRunner[TokenSpan]] = lambda made: made,
) -> Group:
    async def go() -> Group:
        async with runner(ExactEngine(rule)) as made:
            return await replace(change(made), rescue=config).run_group(TASK, SAMPLES)

    return asyncio.run(go())


def test_a_group_that_is_all_wrong_gets_a_right_rollout() -> None:
    *wrong, rescued = group(gives_up(in_lookahead(2)))
    assert [each.success for each in wrong] == [False] * SAMPLES
    assert (rescued.success, rescued.reward, rescued.key.rollout) == (True, 1.0, SAMPLES)
    repaired, answer = rescued.turns
    assert (repaired.code.strip(), answer.text.removesuffix("<|im_end|>")) == ("print(3)", RIGHT)
    assert repaired.edit is not None
    failed, gave_up, _ = repaired.edit.original
    assert failed.results[0].exception is not None
    assert failed.results[0].exception.type == "NameError"
    assert WRONG in gave_up.text
    assert rescued.info.rescued is not None
    source = wrong[rescued.info.rescued["of"]]
    assert (rescued.info.rescued["turn"], failed.text) == (0, source.turns[0].text)


def test_every_token_of_a_rescue_has_the_log_prob_of_its_present_context() -> None:
    *_, rescued = group(gives_up(in_lookahead(1)))
    ids, place = rescued.ids(), 0
    for placed in rescued.placed():
        end = place + len(placed.span)
        if placed.owner.sampled:
            np.testing.assert_array_equal(rescued.logprobs()[place:end], logprobs_of(ids[:place], ids[place:end]))
        place = end


def test_only_what_a_rescue_samples_is_counted() -> None:
    *_, rescued = group(gives_up(in_lookahead(2)))
    repaired, answer = rescued.turns
    assert repaired.edit is not None
    attempts = repaired.edit.original[1:]
    spans = [span for turn in (*attempts, answer) for span in (turn.reasoning, turn.action) if span is not None]
    assert rescued.info.sampled == sum(map(len, spans))


def attempt(
    rule: Rule,
    config: RescueConfig | None = AMPLE,
    change: Callable[[RolloutRunner[TokenSpan]], RolloutRunner[TokenSpan]] = lambda made: made,
) -> tuple[Group, RescueTry[TokenSpan] | None]:
    """The group, and what its rescue sampled."""

    async def go() -> tuple[Group, RescueTry[TokenSpan] | None]:
        async with runner(ExactEngine(rule)) as made:
            one = replace(change(made), rescue=config)
            drawn = await replace(one, rescue=None).run_group(TASK, SAMPLES)
            return drawn, await one.try_rescue(TASK, drawn)

    return asyncio.run(go())


def one_is_right(context: str, seed: int) -> str:
    """The first rollout has the answer at once; the other's call fails."""
    return RIGHT if seed == Seeds(0, TASK.id, 0).request(0) else gives_up(lambda seed: False)(context, seed)


@pytest.mark.parametrize(
    ("rule", "config"),
    [
        (one_is_right, AMPLE),
        (lambda context, seed: WRONG, AMPLE),
        (gives_up(in_lookahead(1)), None),
    ],
    ids=["one is right", "no call failed", "off"],
)
def test_nothing_is_tried_where_there_is_nothing_to_rescue(rule: Rule, config: RescueConfig | None) -> None:
    assert attempt(rule, config)[1] is None


@pytest.mark.parametrize(
    ("rule", "sampled"),
    [
        (gives_up(lambda seed: False), [WRONG, WRONG, WRONG]),
        (gives_up(in_lookahead(4)), [WRONG, WRONG, WRONG]),
        (gives_up(in_lookahead(2), then=WRONG), [WRONG, call("print(3)"), WRONG]),
    ],
    ids=["no correction", "a correction too late", "wrong all the same"],
)
def test_a_rescue_in_vain_gives_no_rollout_and_its_tokens_are_counted(rule: Rule, sampled: list[str]) -> None:
    drawn, made = attempt(rule)
    assert made is not None
    assert made.rescued is None
    lengths = {turn.text.removesuffix("<|im_end|>"): len(turn) for each in drawn for turn in each.turns}
    *_, kept = group(gives_up(in_lookahead(1)))
    corrected = kept.turns[0].reasoning, kept.turns[0].action
    lengths[call("print(3)")] = sum(len(span) for span in corrected if span is not None)
    assert made.tokens == sum(lengths[text] for text in sampled)


@settings(deadline=None, max_examples=20)
@given(share=st.floats(0.01, 4.0), correct=st.integers(1, 4), then=st.sampled_from([RIGHT, WRONG]))
def test_a_rescue_samples_at_most_its_share_of_what_its_group_sampled(share: float, correct: int, then: str) -> None:
    drawn, made = attempt(gives_up(in_lookahead(correct), then), RescueConfig(share=share))
    assert made is not None
    assert made.tokens <= share * sum(each.info.sampled or 0 for each in drawn)
    assert made.rescued is None or made.rescued.info.sampled == made.tokens


def test_without_rescue_a_group_is_as_it_was() -> None:
    rule = gives_up(in_lookahead(1))
    without, with_it = group(rule, None), group(rule)
    assert [each.ids().tolist() for each in without] == [each.ids().tolist() for each in with_it[:SAMPLES]]
    assert [each.info.sampled for each in without] == [each.info.sampled for each in with_it[:SAMPLES]]


def test_a_rescue_samples_no_more_than_its_share() -> None:
    rule = gives_up(in_lookahead(1))
    *wrong, rescued = group(rule)
    needed, sampled = rescued.info.sampled, sum(each.info.sampled or 0 for each in wrong)
    assert needed is not None
    assert len(group(rule, RescueConfig(share=(needed - 0.5) / sampled))) == SAMPLES
    assert len(group(rule, RescueConfig(share=(needed + 0.5) / sampled))) == SAMPLES + 1


def stateful(made: RolloutRunner[TokenSpan]) -> RolloutRunner[TokenSpan]:
    node = made.tool_env._sandbox  # type: ignore[attr-defined]
    return replace(made, tool_env=SessionToolEnv(node, SessionRequest("bare")))


def after(first: str) -> Rule:
    """The first call works and leaves something, the second fails, and its correction needs what the first left."""

    def rule(context: str, seed: int) -> str:
        said = since_asked(context)
        results = said.count("<tool_response>")
        if results < 2:
            return call(first) if not results else call("print(unknown)")
        if "NameError" in said:
            return call("print(x)") if in_lookahead(1, turn=1)(seed) else WRONG
        return RIGHT

    return rule


def test_a_rescue_in_a_session_begins_with_the_state_before_the_failure_and_replays() -> None:
    async def go() -> tuple[Group, ReplayVerdict]:
        async with runner(ExactEngine(after("x = 3\nprint(x)"))) as made:
            stayed = replace(stateful(made), rescue=AMPLE)
            found = await stayed.run_group(TASK, SAMPLES)
            return found, (await replay(found[-1], lambda: calls_of(stayed.tool_env, found[-1].key))).verdict

    (*_, rescued), verdict = asyncio.run(go())
    assert [turn.code.strip() for turn in rescued.turns] == ["x = 3\nprint(x)", "print(x)", ""]
    assert rescued.info.rescued is not None
    assert (rescued.success, rescued.info.rescued["turn"], verdict) == (True, 1, ReplayVerdict.SAME)


def test_calls_that_give_something_else_when_they_run_again_end_a_rescue() -> None:
    rule = after("import time\nx = 3\nprint(time.time_ns())")
    assert attempt(rule, AMPLE, stateful)[1] == RescueTry(0, None)


def test_what_a_repair_of_the_wrong_rollout_sampled_is_not_the_rescues() -> None:
    """With SAAR on, each rollout has looked ahead in vain before the rescue does."""
    saar = Purifier(RepairMode.SAAR, PurifyConfig(attempts=1, on_unrepaired=OnUnrepaired.KEEP_FIRST))
    *wrong, rescued = group(gives_up(in_lookahead(1)), change=lambda made: replace(made, purifier=saar))
    assert all(each.edits for each in wrong)
    repaired, answer = rescued.turns
    assert repaired.edit is not None
    assert len(repaired.edit.original) == 2
    spans = [span for turn in (repaired.edit.original[1], answer) for span in (turn.reasoning, turn.action)]
    assert rescued.info.sampled == sum(len(span) for span in spans if span is not None)


def test_a_failure_in_the_last_turn_is_no_start() -> None:
    budget = RolloutBudget(turns=2, tokens=4_000)
    rule = after("x = 3\nprint(x)")
    assert len(group(rule, change=lambda made: replace(stateful(made), budget=budget))) == SAMPLES


def test_a_rescue_that_could_not_be_rescored_is_refused_at_once() -> None:
    async def go() -> None:
        async with runner(ExactEngine(gives_up(in_lookahead(1)))) as made:
            assert isinstance(made.model, TokenModel)
            model = made.model.served_by(made.model.engine, Sampling(temperature=0.7), made.model.window)
            node = made.tool_env._sandbox  # type: ignore[attr-defined]
            async with open_runner(model, made.prompt, node, graders=made.graders, rescue=AMPLE):
                pass

    with pytest.raises(RescoringRefusedError):
        asyncio.run(go())


def test_a_rescue_without_attempts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one attempt"):
        RescueConfig(attempts=0)
