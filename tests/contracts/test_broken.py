"""Plug-ins that are broken on purpose: every test of every contract fails for one that breaks just what it is about."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cleaner_rl.contracts.call_formats import CallFormatContract
from cleaner_rl.contracts.engines import EngineContract
from cleaner_rl.contracts.graders import GraderContract
from cleaner_rl.contracts.log_adapters import LogAdapterContract
from cleaner_rl.contracts.tools import ToolContract
from cleaner_rl.contracts.trainers import Rollout, Trained, TrainerContract
from cleaner_rl.logs.formats.codex import CodexFormat
from cleaner_rl.logs.formats.openai import OpenAIFormat
from cleaner_rl.resample import advantages
from cleaner_rl.rollout import Completion, EngineFaultError, Finish
from cleaner_rl.tasks import Grade, Outcome, Task
from cleaner_rl.tools import ParsedText, Status, ToolCall, ToolResult, ToolSet, ToolSpec, call_format, derive_seed
from cleaner_rl.trajectory import Scores
from tests.contracts.test_ours import TestHermes as Hermes
from tests.contracts.test_ours import TestRows as Rows
from tests.logs.agents import AGENTS
from tests.logs.cases import CASES
from tests.logs.rendering import RENDERED
from tests.rollout.scripted import logprobs_of
from tests.tasks.builders import task


def fails(contract: object, about: str) -> bool:
    """Whether the test of a contract that is about this fails, in words."""
    (name,) = (name for name in _tests(type(contract)) if about in name)
    try:
        getattr(contract, name)()
    except AssertionError as error:
        return bool(str(error))
    return False


def _tests(contract: type) -> list[str]:
    return [name for name in dir(contract) if name.startswith("test_")]


# Call formats: Hermes, with one thing broken.

Parse = Callable[[str, ToolSet], ParsedText]
HERMES: Parse = call_format("hermes").parse


def _calls(change: Callable[[ToolCall], ToolCall]) -> Parse:
    def parse(text: str, tools: ToolSet) -> ParsedText:
        parsed = HERMES(text, tools)
        return replace(parsed, calls=tuple(map(change, parsed.calls)))

    return parse


def _raises(text: str, tools: ToolSet) -> ParsedText:
    if text.count("<tool_call>") > text.count("</tool_call>"):
        raise ValueError("no closing tag")
    return HERMES(text, tools)


FORMATS: dict[str, tuple[Parse, str]] = {
    "places": (_calls(lambda call: replace(call, end=call.end - 1)), "reads_what_a_model_writes"),
    "order": (lambda t, s: replace(HERMES(t, s), calls=HERMES(t, s).calls[::-1]), "keep_their_order"),
    "words": (
        lambda t, s: HERMES(t, s) if "<tool" in t else ParsedText((s.read("python", {}, 0, len(t)),), len(t)),
        "words",
    ),
    "thoughts": (lambda t, s: HERMES(t.replace("</think>", "........"), s), "only_thought_about"),
    "half": (_calls(lambda call: replace(call, problem=None)), "breaks_off_never_runs"),
    "silent": (
        lambda t, s: replace(HERMES(t, s), calls=tuple(c for c in HERMES(t, s).calls if not c.problem)),
        "tells_the_model",
    ),
    "raises": (_raises, "model_may_write_raises"),
}


@pytest.mark.parametrize("broken", FORMATS)
def test_a_broken_call_format(broken: str) -> None:
    class Broken(Hermes):
        def make(self) -> Any:
            return self

        def parse(self, text: str, tools: ToolSet) -> ParsedText:
            return FORMATS[broken][0](text, tools)

    assert fails(Broken(), FORMATS[broken][1])


COUNT = itertools.count()

# Graders: of a letter, with one thing broken.


def _letter(task: Task, text: str) -> Grade:
    if task.truth not in ("A", "B"):
        return Grade(Outcome.FAULT, None, "No letter.")
    return Grade(Outcome.RIGHT if text == task.truth else Outcome.WRONG, text, "Compared.")


def _strict(task: Task, text: str) -> Grade:
    if not text.isascii():
        raise UnicodeError
    return _letter(task, text)


GRADED: dict[str, tuple[Callable[[Task, str], Any], str]] = {
    "all": (lambda task, text: replace(_letter(task, text), outcome=Outcome.WRONG), "told_apart"),
    "mute": (lambda task, text: replace(_letter(task, text), reason=""), "reason_in_words"),
    "raises": (_strict, "junk_is_never_right"),
    "blames": (lambda task, text: replace(_letter(task, text), outcome=Outcome.WRONG), "cannot_judge"),
    "moody": (lambda task, text: replace(_letter(task, text), extracted=str(next(COUNT))), "same_grade"),
}


@pytest.mark.parametrize("broken", GRADED)
def test_a_broken_grader(broken: str) -> None:
    class Broken(GraderContract):
        def make(self) -> Any:
            return self

        async def grade(self, task: Task, text: str) -> Any:
            return GRADED[broken][0](task, text)

        def right(self) -> Sequence[tuple[Task, str]]:
            return [(task("mine", "A"), "A")]

        def wrong(self) -> Sequence[tuple[Task, str]]:
            return [(task("mine", "A"), "B")]

        def unreadable(self) -> Sequence[Task]:
            return [task("mine", "Z")]

    assert fails(Broken(), GRADED[broken][1])


# Log adapters: OpenAI's, with one thing broken.


class Grabs(OpenAIFormat):
    def detects(self, record: object) -> bool:
        return isinstance(record, dict)


class Forgets(OpenAIFormat):
    def write(self, trajectory: Any) -> Any:
        return {"messages": super().write(trajectory)["messages"]}


class SaysNothing(OpenAIFormat):
    def read(self, *arguments: Any) -> Any:
        return replace(super().read(*arguments), turns=())

    def write(self, trajectory: Any) -> Any:
        return None


class WritesRaw(OpenAIFormat):
    """Of an edited trajectory it writes the messages of the first half."""

    def write(self, trajectory: Any) -> Any:
        record = super().write(trajectory)
        return {**record, "messages": record["messages"][:3]} if trajectory.edits else record


class LosesTurns(OpenAIFormat):
    def chat(self, trajectory: Any) -> Any:
        chat = super().chat(trajectory)
        return replace(chat, turns=[None for _ in chat.turns])


class LeavesText(OpenAIFormat):
    """Its rows have each call as JSON text."""

    def chat(self, trajectory: Any) -> Any:
        chat = super().chat(trajectory)
        for message in chat.messages:
            if "tool_calls" in message:
                message["tool_calls"] = list(map(json.dumps, message["tool_calls"]))
        return chat


class SaysItsCalls(OpenAIFormat):
    """Its rows have the calls in the words of the model."""

    def chat(self, trajectory: Any) -> Any:
        chat = super().chat(trajectory)
        for message in chat.messages:
            message["content"] += json.dumps(message.pop("tool_calls", ""))
        return chat


class Renames(OpenAIFormat):
    def chat(self, trajectory: Any) -> Any:
        chat = super().chat(trajectory)
        names = {"tool": "machine"}
        for message in chat.messages:
            message["role"] = names.get(message["role"], message["role"])
        return chat


class Trusts(OpenAIFormat):
    def read(self, record: Any, *arguments: Any) -> Any:
        for message in record["messages"]:
            message.get("content", "").strip()
        return super().read(record, *arguments)


class Tidies(CodexFormat):
    """It leaves out the line that a file breaks off in."""

    def write(self, trajectory: Any) -> Any:
        return {name: value for name, value in super().write(trajectory).items() if name != "torn"}


ADAPTERS: dict[str, tuple[type[OpenAIFormat | CodexFormat], str]] = {
    "grabs": (Grabs, "own_records_and_no_others"),
    "forgets": (Forgets, "field_for_field"),
    "says nothing": (SaysNothing, "are_its_turns"),
    "writes raw": (WritesRaw, "read_again_and_undone"),
    "loses turns": (LosesTurns, "can_be_trained_on"),
    "renames": (Renames, "can_be_trained_on"),
    "leaves text": (LeavesText, "calls_of_a_row_are_calls"),
    "says its calls": (SaysItsCalls, "calls_of_a_row_are_calls"),
    "trusts": (Trusts, "nothing_worse"),
    "tidies": (Tidies, "may_break_off"),
}


@pytest.mark.parametrize("broken", ADAPTERS)
def test_a_broken_log_adapter(broken: str) -> None:
    class Broken(LogAdapterContract):
        def make(self) -> Any:
            return ADAPTERS[broken][0]()

        def records(self) -> Sequence[dict[str, Any]]:
            render = AGENTS["codex"] if broken == "tidies" else RENDERED["openai"]
            return [render(case) for case in CASES[:4]]

    assert fails(Broken(), ADAPTERS[broken][1])


# Tools: a register that holds a number, with one thing broken.


class Register:
    stateful, limits = True, None
    shared = 0

    def __init__(self) -> None:
        self.value = self.before = 0

    @asynccontextmanager
    async def open(self, key: object) -> AsyncIterator[Any]:
        yield type(self)()

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        self.before = self.value
        return [call.refusal or await self.one(call.arguments.get("set", "")) for call in calls]

    async def one(self, value: object) -> ToolResult:
        if value == "slow":
            await asyncio.sleep(60)
        if value == "wrong":
            return ToolResult(Status.ERROR, explanation="That is no number.")
        self.value = int(str(value or self.value))
        return ToolResult(Status.OK, str(self.value))

    async def rollback(self) -> None:
        self.value = self.before


class Unordered(Register):
    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        return (await super().run(calls))[::-1]


class Mute(Register):
    async def one(self, value: object) -> ToolResult:
        return replace(await super().one(value), explanation="", output="")


class Counts(Register):
    async def one(self, value: object) -> ToolResult:
        found = await super().one(value)
        return replace(found, output=f"{found.output} after {next(COUNT)} ms")


class NeverBack(Register):
    async def rollback(self) -> None:
        pass


class Shares(Register):
    @asynccontextmanager
    async def open(self, key: object) -> AsyncIterator[Any]:
        yield self


class Stays(Register):
    @asynccontextmanager
    async def open(self, key: object) -> AsyncIterator[Any]:
        try:
            yield type(self)()
        except asyncio.CancelledError:
            await asyncio.sleep(5)
            raise


TOOLS: dict[str, tuple[type[Register], str]] = {
    "unordered": (Unordered, "answered_in_its_order"),
    "mute": (Mute, "says_what_is_wrong"),
    "counts": (Counts, "give_the_same"),
    "never back": (NeverBack, "goes_back"),
    "shares": (Shares, "do_not_see_each_other"),
    "stays": (Stays, "leaves_at_once"),
}


class Registers(ToolContract):
    works, fails, writes, reads, slow = {}, {"set": "wrong"}, {"set": 7}, {}, {"set": "slow"}

    def __init__(self, kind: type[Register]) -> None:
        self.kind = kind

    def make(self) -> Any:
        return self.kind()

    def spec(self) -> ToolSpec:
        return ToolSpec("register")


@pytest.mark.parametrize("broken", TOOLS)
def test_a_broken_tool(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.contracts.tools.LEAVING", 0.5)
    assert fails(Registers(TOOLS[broken][0]), TOOLS[broken][1])


def test_the_register_itself_is_whole() -> None:
    assert not any(fails(Registers(Register), name) for name in _tests(ToolContract))


# Engines: one that draws each token by its prompt and its seed, with one thing broken.


class Draws:
    """Ten tokens, each with its own log-prob after all before it."""

    longest = 100

    async def sample(
        self, prompt: Any, *, max_tokens: int, seed: int, sampling: Any, stop_ids: Any, request: str
    ) -> Completion:
        if len(prompt) > self.longest:
            raise EngineFaultError("the prompt is too long")
        await asyncio.sleep(0)
        ids: list[int] = []
        while len(ids) < max_tokens and not (ids and ids[-1] in stop_ids):
            ids.append(derive_seed(seed, *map(int, prompt), *ids) % 10)
        found = np.array(ids, np.int32)
        finish = Finish.STOP if ids[-1] in stop_ids else Finish.LENGTH
        return Completion(found, logprobs_of(prompt, found), finish)

    async def score(self, prefix: Any, suffix: Any, *, request: str) -> Scores:
        return Scores(logprobs_of(prefix, suffix))


class OneMore(Draws):
    async def sample(self, prompt: Any, *, max_tokens: int, **others: Any) -> Completion:
        return await super().sample(prompt, max_tokens=max_tokens + 1, **others)


class NoLogprobs(Draws):
    async def sample(self, *arguments: Any, **others: Any) -> Completion:
        return replace(await super().sample(*arguments, **others), logprobs_T=None)


class DropsStop(Draws):
    async def sample(self, *arguments: Any, **others: Any) -> Completion:
        found = await super().sample(*arguments, **others)
        return replace(found, ids_T=found.ids_T[:-1]) if found.finish is Finish.STOP else found


class NeverStops(Draws):
    async def sample(self, *arguments: Any, stop_ids: Any, **others: Any) -> Completion:
        return await super().sample(*arguments, stop_ids=(), **others)


class NoSeed(Draws):
    async def sample(self, *arguments: Any, seed: int, **others: Any) -> Completion:
        return await super().sample(*arguments, seed=next(COUNT), **others)


class OneSeed(Draws):
    async def sample(self, *arguments: Any, seed: int, **others: Any) -> Completion:
        return await super().sample(*arguments, seed=1, **others)


class ScoresElsewhere(Draws):
    async def score(self, prefix: Any, suffix: Any, *, request: str) -> Scores:
        return await super().score(prefix[1:], suffix, request=request)


class Mixes(Draws):
    """Requests that come together are answered after the last one's prompt."""

    last: Any = None

    async def sample(self, prompt: Any, **others: Any) -> Completion:
        self.last = prompt
        await asyncio.sleep(0)
        return await super().sample(self.last, **others)


class Deaf(Draws):
    async def sample(self, *arguments: Any, **others: Any) -> Completion:
        try:
            return await super().sample(*arguments, **others)
        except asyncio.CancelledError:
            return await super().sample(*arguments, **others)


class TooShort(Draws):
    """It cuts prompts that are too long."""

    async def sample(self, prompt: Any, **others: Any) -> Completion:
        return await super().sample(prompt[-self.longest :], **others)


ENGINES: dict[str, tuple[type[Draws], str]] = {
    "one more": (OneMore, "and_no_more"),
    "no log-probs": (NoLogprobs, "and_no_more"),
    "drops the stop token": (DropsStop, "stop_token_ends"),
    "never stops": (NeverStops, "stop_token_ends"),
    "no seed": (NoSeed, "a_seed_decides"),
    "one seed": (OneSeed, "a_seed_decides"),
    "scores elsewhere": (ScoresElsewhere, "scores_are_the_logprobs"),
    "mixes": (Mixes, "keep_to_their_own"),
    "deaf": (Deaf, "that_is_cancelled"),
    "too short": (TooShort, "cannot_do"),
}


class Engines(EngineContract):
    prompts, too_long = ((1, 2, 3), (4, 5), (6,)), range(101)

    def __init__(self, kind: type[Draws]) -> None:
        self.kind = kind

    def make(self) -> Any:
        return self.kind()


@pytest.mark.parametrize("broken", ENGINES)
def test_a_broken_engine(broken: str) -> None:
    assert fails(Engines(ENGINES[broken][0]), ENGINES[broken][1])


def test_the_engine_that_draws_is_whole() -> None:
    assert not any(fails(Engines(Draws), name) for name in _tests(EngineContract))


# Trainers: our rows, with one thing broken.

Group = Sequence[Rollout]


def _shifted(row: Trained) -> Trained:
    return replace(row, mask=[*row.mask[1:], 0])


def _as_sampled(group: Group, rows: list[Trained]) -> list[Trained]:
    """Rows with the log-probs at which moved tokens were sampled."""
    sampled = {tuple(each.ids().tolist()): each.behaviour_logprobs()[len(each.prompt) :] for each in group}
    return [replace(row, logprobs=sampled[tuple(row.ids)].tolist()) for row in rows]


def _wrong_at_faults(group: Group, rows: list[Trained]) -> list[Trained]:
    """Advantages as if a fault were a wrong answer."""
    low = min((row.advantage for row in rows), default=0.0)
    absent = len(group) - len(rows)
    mean = (sum(row.advantage for row in rows) + low * absent) / len(group)
    return [replace(row, advantage=row.advantage - mean) for row in rows]


def _rewarded_as_solved(group: Group, rows: list[Trained]) -> list[Trained]:
    """Advantages of the answers alone."""
    found = advantages([1.0 if each.success else -1.0 for each in group])
    return [replace(row, advantage=each) for row, each in zip(rows, found, strict=True)]


TRAINERS: dict[str, tuple[Callable[[Group, list[Trained]], list[Trained]], str]] = {
    "mask shifted by one": (lambda _, rows: [_shifted(row) for row in rows], "ids_and_masks"),
    "no log-probs": (
        lambda _, rows: [replace(row, logprobs=[0.0] * len(row.mask)) for row in rows],
        "logprobs_are_those",
    ),
    "not re-scored": (_as_sampled, "moved_tokens"),
    "not divided": (lambda _, rows: [replace(row, advantage=2 * row.advantage) for row in rows], "advantages_compare"),
    "rewarded as solved": (_rewarded_as_solved, "survives_their_repair"),
    "fault as a wrong answer": (_wrong_at_faults, "a_fault_is"),
    "one row short": (lambda _, rows: rows[1:], "every_usable_rollout"),
}


@pytest.mark.parametrize("broken", TRAINERS)
def test_a_broken_adapter_to_a_trainer(broken: str) -> None:
    change, about = TRAINERS[broken]

    class Broken(Rows):
        def train(self, groups: Sequence[Group]) -> Sequence[Sequence[Trained]]:
            return [change(group, list(rows)) for group, rows in zip(groups, super().train(groups), strict=True)]

    assert fails(Broken(), about)


CONTRACTS: list[tuple[type, Mapping[str, tuple[Any, str]]]] = [
    (CallFormatContract, FORMATS),
    (GraderContract, GRADED),
    (LogAdapterContract, ADAPTERS),
    (ToolContract, TOOLS),
    (EngineContract, ENGINES),
    (TrainerContract, TRAINERS),
]


@pytest.mark.parametrize(("contract", "broken"), CONTRACTS, ids=[contract.__name__ for contract, _ in CONTRACTS])
def test_each_test_of_a_contract_has_something_that_fails_it(
    contract: type, broken: Mapping[str, tuple[Any, str]]
) -> None:
    about = [name for _, name in broken.values()]
    assert [name for name in _tests(contract) if not any(each in name for each in about)] == []
