"""The toy environment: mistakes are real ones, splits never meet, lessons are what a rollout would hold."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models import TEMPLATE
from benchmarks.toy import library
from benchmarks.toy.demonstrations import Demonstration, demonstrations
from benchmarks.toy.library import FOLDS, MAPS, OPERATIONS, SUFFIXES, called
from benchmarks.toy.mistakes import DEMONSTRATED, Kind, Program, call, kind_of, malformed
from benchmarks.toy.model import Lessons, encode, vocabulary
from benchmarks.toy.questions import TEST, TRAIN, Question, questions, split_of, task
from benchmarks.toy.regimes import REGIMES
from benchmarks.toy.sandboxes import toy_tool_envs
from cleaner_rl.purify import code_similarity
from cleaner_rl.rollout import ChatRenderer
from cleaner_rl.tasks import ToolKind
from cleaner_rl.tools import Status, ToolResult, ToolSet, call_format, feedback
from cleaner_rl.trajectory import Key

NAMES = dict.fromkeys(OPERATIONS, "of")
MISTAKES = REGIMES["mistakes"]
ASKED = [Question((7, 3, 12, 5), (change.stem, fold.stem)) for change in MAPS for fold in FOLDS]
ASKED = [each for each in ASKED if each.steps() is not None]


def in_sandbox(folder: Path, rows: Sequence[Sequence[str]]) -> list[list[ToolResult]]:
    """The results of each row's calls, every row in a session of its own; the library is the one of `NAMES`."""
    tools = ToolSet(MISTAKES.prompt.tool)

    async def run() -> list[list[ToolResult]]:
        async with toy_tool_envs(folder, [NAMES], ToolKind.SESSION, hint=True) as (tool_env,):
            found = []
            for row in rows:
                async with tool_env.open(Key("test", 0, "", 0)) as tool_session:
                    calls = [each for words in row for each in call_format("hermes").parse(words, tools).calls]
                    found.append([(await tool_session.run([each]))[0] for each in calls])
            return found

    return asyncio.run(run())


def test_questions_are_the_same_for_a_seed_and_never_meet_across_splits() -> None:
    train, again = (list(islice(questions(3, TRAIN, changes=1, stepwise=0.3), 400)) for _ in range(2))
    test = list(islice(questions(3, TEST, changes=1, stepwise=0.3), 400))
    assert train == again
    assert len(set(train)) == len(set(test)) == 400
    assert {split_of(each) for each in train} == {TRAIN}
    assert {(each.numbers, each.stems) for each in train}.isdisjoint((each.numbers, each.stems) for each in test)


@pytest.mark.parametrize(
    ("stems", "answer"),
    [
        (("droplow", "total"), 24),
        (("square", "spread"), 135),
        (("odds", "double", "ends"), 24),
        (("sort", "gap"), 9),
        (("once", "middle"), 7),
    ],
)
def test_answers_by_hand(stems: tuple[str, ...], answer: int) -> None:
    question = Question((7, 3, 12, 5), stems)
    assert question.answer == answer
    assert task(question, "x").truth == str(answer)


def test_a_task_says_what_is_asked() -> None:
    question = Question((7, 3, 12), ("droplow", "total"), stepwise=True)
    assert question.text == "Take 7 3 12. Drop the lowest, then show the list, then give the total."


@given(st.integers(0, 20), st.integers())
def test_drift_moves_exactly_so_many_names(count: int, seed: int) -> None:
    names = library.random_names(random.Random(seed))
    moved = library.changed(names, count, random.Random(seed + 1))
    assert sum(names[stem] != moved[stem] for stem in OPERATIONS) == count
    assert set(moved.values()) <= set(SUFFIXES)


def test_strange_libraries_give_every_function_every_suffix_as_often() -> None:
    strangers = REGIMES["drift"].strangers()
    for stem in OPERATIONS:
        assert sorted(names[stem] for names in strangers) == sorted(SUFFIXES * 2)


def test_right_programs_print_the_answer(site: Path) -> None:
    rows = [[call(Program(each, NAMES).right())] for each in ASKED]
    found = [(results[0].output, feedback(results[0])) for results in in_sandbox(site, rows)]
    assert found == [(f"{each.answer}\n", f"{each.answer}") for each in ASKED]


def test_every_mistake_is_of_its_kind_in_the_real_sandbox(site: Path) -> None:
    question = Question((7, 3, 12, 5), ("droplow", "last"))
    rows: list[list[str]] = []
    kinds: list[Kind] = []
    for kind in DEMONSTRATED:
        if kind in (Kind.STATE, Kind.MALFORMED):
            continue
        program = Program(question, NAMES)
        for far in (0.0, 1.0):
            rows += [[call(program.wrong(kind, random.Random(seed), far))] for seed in range(4)]
            kinds += [kind] * 4
    rows += [[malformed(Program(question, NAMES).right(), random.Random(seed))] for seed in range(20)]
    kinds += [Kind.MALFORMED] * 20
    found = in_sandbox(site, rows)
    assert [kind_of(results[0], earlier=False) for results in found] == kinds


@pytest.mark.parametrize("how", ["named", "lost"])
def test_a_cell_that_runs_well_can_spoil_the_next_and_the_mend_knows_how(site: Path, how: str) -> None:
    question = Question((7, 3, 12, 5), ("droplow", "last"), stepwise=True)
    first, second = Program(question, NAMES, 0), Program(question, NAMES, 1, how)
    spoilt, naive, repaired = first.spoiling(how), second.wrong(Kind.STATE, random.Random(0), 0.0), second.right()
    ((before, failed, after),) = in_sandbox(site, [[call(spoilt), call(naive), call(repaired)]])
    assert before.status is Status.OK
    assert kind_of(failed, earlier=True) is Kind.STATE
    assert after.output == "5\n"


def test_a_name_is_only_taken_from_the_hint_that_gives_it(site: Path) -> None:
    made = asyncio.run(demonstrations(REGIMES["drift"], 60, 0, TRAIN, site))
    taken = 0
    for each in made:
        for result, turn in zip(each.results, each.turns[1:], strict=True):
            if turn.startswith("Use "):
                name = turn.removeprefix("Use ").partition(".")[0]
                assert result.endswith(f"; use {name}")
                taken += 1
    assert taken > 20


def test_a_hint_names_the_right_function(site: Path) -> None:
    ((failed,),) = in_sandbox(site, [[call("import kit\nkit.total_up([1])")]])
    assert failed.exception is not None
    assert failed.exception.message == "no kit.total_up; use total_of"
    assert failed.exception.line == 2


def test_slips_are_near_their_mend_and_wrong_approaches_far_from_it() -> None:
    near: list[float] = []
    far: list[float] = []
    for question in ASKED:
        program = Program(question, NAMES)
        for kind in (Kind.TYPE, Kind.VALUE, Kind.IMPORT, Kind.ATTRIBUTE, Kind.TIMEOUT):
            for share, found in ((0.0, near), (1.0, far)):
                wrong = program.wrong(kind, random.Random(0), share)
                found.append(code_similarity(wrong, program.right()).value)
    assert min(near) >= 0.5
    assert sum(each < 0.5 for each in far) > 0.9 * len(far)


@pytest.fixture(scope="module")
def shown(site: Path) -> list[Demonstration]:
    return asyncio.run(demonstrations(MISTAKES, 40, 0, TRAIN, site))


def test_demonstrations_are_the_same_for_a_seed_and_end_with_an_answer(shown: list[Demonstration], site: Path) -> None:
    again = asyncio.run(demonstrations(MISTAKES, 8, 0, TRAIN, site))
    assert again == shown[:8]
    assert [Demonstration.from_json(json.loads(json.dumps(each.to_json()))) for each in shown] == shown
    assert all(each.turns[-1] == f"\\boxed{{{each.question.answer}}}" for each in shown)
    assert all(len(each.results) == len(each.turns) - 1 for each in shown)
    roles = [message.role for message in shown[0].messages(MISTAKES)]
    assert roles[:2] == ["system", "user"]
    assert set(roles[2::2]) == {"assistant"}


@pytest.mark.parametrize("name", ["drift", "slips", "starved"])
def test_the_labs_regimes_can_be_demonstrated(site: Path, name: str) -> None:
    regime = REGIMES[name]
    made = asyncio.run(demonstrations(regime, 12, 0, TRAIN, site))
    assert len(made) == 12
    assert {each for one in made for each in one.question.stems} <= set(OPERATIONS)
    assert sum(regime.known[stem] != regime.current[stem] for stem in OPERATIONS) == regime.drifted


def test_lessons_are_the_ids_that_a_rollout_would_hold(shown: list[Demonstration]) -> None:
    tokenizer = vocabulary(shown, MISTAKES, Lessons())
    assert tokenizer.chat_template == TEMPLATE.read_text()
    chat = ChatRenderer(tokenizer, ToolSet(MISTAKES.prompt.tool))
    for each in shown:
        lesson = encode(each, MISTAKES, chat, tokenizer)
        said = chat.vocabulary.decode(lesson.ids[lesson.own].astype(np.int32)).text
        assert said == "".join(f"{turn}<|im_end|>" for turn in each.turns)
        messages = [{"role": one.role, "content": one.content} for one in each.messages(MISTAKES)]
        tool = MISTAKES.prompt.tool
        schema = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        rendered = tokenizer.apply_chat_template(
            messages, tools=[{"type": "function", "function": schema}], tokenize=False
        )
        assert chat.vocabulary.decode(lesson.ids.astype(np.int32)).text == rendered.removesuffix("\n")


def test_the_parts_of_a_name_can_be_tokens_of_their_own(shown: list[Demonstration]) -> None:
    text = "x=kit.turn_fast(x)\nprint(kit.gap_of(x)); use turn_list"
    together, apart = (vocabulary(shown, MISTAKES, Lessons(apart=each)).tokenize(text) for each in (False, True))
    assert {"turn", "_fast", "gap", "_of", "_list"} <= set(apart)
    assert "".join(together) == "".join(apart)
    assert "apart" not in Lessons().to_json()


def test_names_are_what_the_library_calls_them() -> None:
    assert called("total", {"total": "up"}) == "total_up"
