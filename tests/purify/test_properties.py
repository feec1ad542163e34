"""What holds of every purified trajectory: for each kind of vocabulary, live and in hindsight, whatever was sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.purify import (
    Draft,
    OnUnrepaired,
    PurifyConfig,
    RepairBudget,
    RepairConfig,
    RepairOutcome,
    SampleRequest,
    hindsight,
    repair,
    rescore,
)
from cleaner_rl.tools import Status, ToolResult, ToolSet, call_format, feedback, python_tool
from cleaner_rl.trajectory import (
    Ids,
    Key,
    Scores,
    Seeds,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    Vocabulary,
    read_text,
    read_tokens,
    sampled_turns,
    token_span,
    undo,
)
from tests.builders import error
from tests.generators import BYTES, STRADDLING, TOKENIZERS, hermes_call, texts

TOOLS = ToolSet(python_tool())
HERMES = call_format("hermes")
TIMEOUT = ToolResult(Status.TIMEOUT)
RESULTS = [ToolResult(Status.OK, "1\n"), ToolResult(Status.OK), error(), error("ValueError", "bad value"), TIMEOUT]
CODES = ["print(1)", "print(1 + y)", "import math\nprint(math.pi)", "x = 'é🙂'", "for i in range(3):\n    print(i)"]
PLAIN = st.sampled_from(["", "I think. ", "é ", "The error was mine.\n", "🙂<", " <tool", "x"])


def encode(name: str, text: str) -> tuple[list[int], Vocabulary]:
    if name in TOKENIZERS:
        tokenizer, vocabulary = TOKENIZERS[name]()
        return list(tokenizer.encode(text, add_special_tokens=False).ids), vocabulary
    vocabulary = STRADDLING if name == "straddling" else BYTES
    return list(_greedy(text.encode(), vocabulary)), vocabulary


def _greedy(data: bytes, vocabulary: Vocabulary) -> Iterator[int]:
    """The longest token first: it straddles whatever it can."""
    tokens = sorted((token, token_id) for token_id, token in enumerate(vocabulary._tokens) if token)
    tokens.sort(key=lambda item: -len(item[0]))
    while data:
        token, token_id = next(item for item in tokens if data.startswith(item[0]))
        yield token_id
        data = data[len(token) :]


@dataclass(frozen=True)
class Step:
    """What a model writes in one turn, and what its calls give."""

    reasoning: str
    codes: tuple[str, ...]
    results: tuple[ToolResult, ...]
    cut: bool = False

    @property
    def text(self) -> str:
        text = self.reasoning + "\n".join(map(hermes_call, self.codes))
        return text[: -len("</tool_call>")] if self.cut and self.codes else text


@st.composite
def steps(draw: st.DrawFn, min_calls: int = 0) -> Step:
    codes = tuple(draw(st.lists(st.sampled_from(CODES), min_size=min_calls, max_size=2)))
    results = tuple(draw(st.sampled_from(RESULTS)) for _ in codes)
    return Step(draw(PLAIN) + draw(texts()).replace("<tool_call>", ""), codes, results, draw(st.booleans()))


class World:
    """Turns steps into token turns by one vocabulary, with log-probs that never repeat."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._count = 0

    def drafted(self, step: Step) -> Turn[TokenSpan]:
        ids, vocabulary = encode(self.name, step.text)
        logprobs = [-(self._count + index) / 4096 for index in range(len(ids))]
        self._count += len(ids)
        return read_tokens(token_span("", ids, logprobs, version=1), vocabulary, HERMES, TOOLS)

    def observed(self, turn: Turn[TokenSpan], step: Step) -> Turn[TokenSpan]:
        if not turn.calls:
            return turn
        results = tuple(call.refusal or result for call, result in zip(turn.calls, step.results, strict=True))
        words = "<|im_end|>\n" + "\n".join(map(feedback, results)) + "\n"
        return replace(turn, results=results, observation=token_span(words, encode(self.name, words)[0]))

    def prompt(self) -> Trajectory[TokenSpan]:
        words = "Question? é\n"
        return Trajectory(token_span(words, encode(self.name, words)[0]), (), Key("run", 1, "task", 0))


WORLDS = st.sampled_from([*TOKENIZERS, "straddling", "bytes"]).map(World)


def vocabulary_of(world: World) -> Vocabulary:
    return encode(world.name, "")[1]


def check_aligned(world: World, trajectory: Trajectory[TokenSpan]) -> None:
    ids, mask, logprobs = trajectory.ids(), trajectory.loss_mask(), trajectory.logprobs()
    behaviour = trajectory.behaviour_logprobs()
    assert len(ids) == len(mask) == len(logprobs) == len(behaviour) == len(trajectory)
    assert vocabulary_of(world).decode(ids).text == trajectory.text
    assert not logprobs[~mask].any()
    assert not behaviour[~mask].any()
    start = 0
    for placed in trajectory.placed():
        part = slice(start, start := start + len(placed.span))
        assert ids[part].tolist() == placed.span.ids.tolist()
        assert mask[part].all() == placed.owner.sampled or not len(placed.span)
        if placed.owner.sampled and not placed.moved:
            assert logprobs[part].tobytes() == behaviour[part].tobytes()
        if placed.owner.sampled and placed.moved and placed.span.rescored is None:
            assert np.isnan(logprobs[part]).all()


def as_text(trajectory: Trajectory[TokenSpan]) -> Trajectory[TextSpan]:
    """The same raw trajectory, read again from its text."""
    turns = []
    for turn in trajectory.turns:
        read = read_text(turn.text, HERMES, TOOLS)
        observation = None if turn.observation is None else TextSpan(turn.observation.text)
        turns.append(replace(read, observation=observation, results=turn.results))
    return Trajectory(TextSpan(trajectory.prompt.text), tuple(turns), trajectory.key)


async def score(prefix: Ids, suffix: Ids) -> Scores:
    """A made-up model: a token's log-prob depends on all before it."""
    whole = np.concatenate([prefix, suffix])
    return Scores((-(np.cumsum(whole) % 997) / 64).astype(np.float32)[len(prefix) :], version=2)


def check_rescored(trajectory: Trajectory[TokenSpan]) -> Trajectory[TokenSpan]:
    scored = asyncio.run(rescore(trajectory, score))
    ids, logprobs, start = scored.ids(), scored.logprobs(), 0
    assert not np.isnan(logprobs).any()
    truth = asyncio.run(score(ids[:0], ids)).logprobs
    for placed in scored.placed():
        part = slice(start, start := start + len(placed.span))
        if placed.moved:
            assert logprobs[part].tobytes() == truth[part].tobytes()
    assert scored.behaviour_logprobs().tobytes() == trajectory.behaviour_logprobs().tobytes()
    return scored


THRESHOLDS = st.sampled_from([0.0, 0.5, 0.8, 1.1])


@settings(deadline=None)
@given(WORLDS, st.lists(steps(), max_size=6), THRESHOLDS, st.randoms(use_true_random=False))
def test_hindsight(world: World, script: list[Step], threshold: float, order: object) -> None:
    rollout = replace(world.prompt(), turns=tuple(world.observed(world.drafted(step), step) for step in script))
    config = RepairConfig(threshold=threshold)
    purified = hindsight(rollout, config)
    clean = purified.trajectory
    check_aligned(world, clean)
    # A fully repaired trajectory holds no failure, and what is left alone is all that failed.
    assert [each.turn for each in purified.left_alone] == [i for i, turn in enumerate(clean.turns) if turn.failed]
    assert sum(len(edit.original) - 1 for _, edit in clean.edits) == len(rollout.turns) - len(clean.turns)
    # The same on text: the text of the splice is the splice of the texts. Only where reasoning ends inside a token,
    # the token belongs to the action; then the two differ by those characters and nothing else.
    text = hindsight(as_text(rollout), config).trajectory
    assert [edit.kind for _, edit in text.edits] == [edit.kind for _, edit in clean.edits]
    assert [edit.similarity for _, edit in text.edits] == [edit.similarity for _, edit in clean.edits]
    for (index, edit), turn in zip(clean.edits, (clean.turns[i] for i, _ in clean.edits), strict=True):
        kept = edit.original[0] if edit.kind == "graft" else edit.original[-1]
        assert edit.original[-1].action is not None
        assert turn.text == kept.reasoning.text + edit.original[-1].action.text
        assert clean.turns[index] is turn
    # Undo is exact, in any order, before and after re-scoring.
    for version in (clean, check_rescored(clean)):
        undone = version
        while undone.edits:
            undone = undo(undone, order.choice(undone.edits)[0])  # type: ignore[attr-defined]
        assert undone == rollout
        assert [piece.turn for piece in sampled_turns(version)] == list(rollout.turns)
        assert [piece.context for piece in sampled_turns(version)] == [
            rollout.turns[:i] for i in range(len(rollout.turns))
        ]
    assert hindsight(rollout, config) == purified


UNREPAIRED = st.sampled_from(OnUnrepaired)


@settings(deadline=None)
@given(
    WORLDS, st.lists(st.tuples(steps(), st.lists(steps(), min_size=3, max_size=3)), max_size=4), THRESHOLDS, UNREPAIRED
)
def test_live(
    world: World, script: list[tuple[Step, list[Step]]], threshold: float, on_unrepaired: OnUnrepaired
) -> None:
    config = PurifyConfig(repair=RepairConfig(threshold=threshold), on_unrepaired=on_unrepaired)
    once = rolled_out(World(world.name), script, config)
    assert rolled_out(World(world.name), script, config) == once, "the same seed gives the same bytes"
    clean, sampled, verdicts = once
    check_aligned(world, clean)
    check_rescored(clean)
    if set(verdicts) <= {RepairOutcome.REPAIRED}:
        assert not any(turn.failed for turn in clean.turns)
    # Everything that was sampled is there, once, in order, each in the context it was sampled in.
    pieces = list(sampled_turns(clean))
    assert [piece.turn.text for piece in pieces] == [turn.text for _, turn in sampled]
    prompt = clean.prompt.text
    for piece, (context, _) in zip(pieces, sampled, strict=True):
        assert replace(clean, turns=piece.context).text == context
        assert context.startswith(prompt)


Rolled = tuple[Trajectory[TokenSpan], list[tuple[str, Turn[TokenSpan]]], list[RepairOutcome]]


def rolled_out(world: World, script: list[tuple[Step, list[Step]]], config: PurifyConfig) -> Rolled:
    """A rollout by the script, repaired live; also each sampled turn with the text before it, and each verdict."""
    history = world.prompt()
    sampled: list[tuple[str, Turn[TokenSpan]]] = []
    verdicts: list[RepairOutcome] = []
    for step, corrections in script:
        turn = world.observed(world.drafted(step), step)
        sampled.append((history.text, turn))
        turns: tuple[Turn[TokenSpan], ...] = (turn,)
        if turn.failed:
            attempted: list[Step] = []

            async def sample(
                request: SampleRequest[TokenSpan], drafts: list[Step] = corrections, done: list[Step] = attempted
            ) -> Draft[TokenSpan]:
                draft = drafts[request.attempt - 1]
                done.append(draft)
                sampled.append((request.context.text, world.drafted(draft)))
                return Draft(sampled[-1][1])

            async def execute(turn: Turn[TokenSpan], done: list[Step] = attempted) -> Turn[TokenSpan]:
                return world.observed(turn, done[-1])

            budget = RepairBudget(100_000, 100_000, 100_000)
            seeds = Seeds(1, "task", 0)
            repaired = asyncio.run(
                repair(history, turn, sample=sample, execute=execute, config=config, budget=budget, seeds=seeds)
            )
            turns = repaired.turns
            verdicts.append(repaired.verdict)
        history = replace(history, turns=history.turns + turns)
    return history, sampled, verdicts


@pytest.mark.parametrize("name", [*TOKENIZERS, "straddling", "bytes"])
def test_the_made_vocabularies_do_what_they_are_for(name: str) -> None:
    ids, vocabulary = encode(name, "é. <tool_call>{}</tool_call>")
    assert vocabulary.decode(np.array(ids, np.int32)).text == "é. <tool_call>{}</tool_call>"
