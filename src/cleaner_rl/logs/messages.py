"""Turns chat messages into a trajectory, and back, for all logs of messages.

A turn is an assistant's message with all that follows it up to the next one. Its *reasoning* is what the message says,
its *action* are its calls, and its *observation* is what followed: results, and whatever a person or a system put in.

Calls are in a field (`tool_calls`, in the shapes of OpenAI, Inspect, verifiers and ATIF, or `function_call`, as
OpenAI had it first), in parts of the content (Anthropic's `tool_use`), or in the text itself, as `<tool_call>` blocks.
Fenced Python is a call if a tool's message follows it.
Results are messages of the role `tool`, a step's own `observation`, `tool_result` parts, or `<tool_response>` blocks in
a user's message.

Limits: a conversation with calls in two of these places can't be grafted; it is passed through as it is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from cleaner_rl.logs.calls import LoggedTools, beside_results, text_results
from cleaner_rl.logs.frames import (
    ACTION,
    OBSERVATION,
    PROMPT,
    REASONING,
    Blank,
    Frame,
    Message,
    Path,
    SpanText,
    frame,
    graft,
)
from cleaner_rl.logs.judging import judge_call
from cleaner_rl.logs.parts import CHAT_PARTS, Found, Parts, leaves
from cleaner_rl.tools import ToolCall, ToolResult
from cleaner_rl.trajectory import RepairKind, TextSpan, Trajectory, Turn

CALL_FIELDS = ("tool_calls", "function_call")
ACTION_FIELDS = (*CALL_FIELDS, "observation")
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
NOTE = "note"
"""The name of a note that a repair may take out with the turn that it is in; any other one ends what it can reach."""
OPENING = re.compile(r"<tool_call>|<function=")
FENCED = "fenced"
_json = json.JSONEncoder(ensure_ascii=False).encode  # made once: `json.dumps` would make one for each call


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the messages of a source are written: the names of their fields and of their speakers.

    Examples:
        >>> from cleaner_rl.logs import Dialect
        >>> dialect = Dialect(role="who", content="says", assistants=("bot",), tools=("machine",), users=("person",))
        >>> dialect.openai_role("machine")
        'tool'
    """

    role: str = "role"
    """The field that names the speaker."""
    content: str = "content"
    """The field with what the speaker says."""
    assistants: tuple[str, ...] = ("assistant", "agent")
    """Names of the model whose turns these are."""
    tools: tuple[str, ...] = ("tool", "function", "ipython")
    """Names of speakers whose messages are results of calls."""
    users: tuple[str, ...] = ("user",)
    """Names of the person or program that gives the task."""
    systems: tuple[str, ...] = ("system",)
    """Names of the speaker of the system prompt."""
    no_error_means_success: bool = False
    """Whether a result without an error is a success. Tools that run programs are excepted: their errors are output."""
    sampling_fields: tuple[str, ...] = ("id", "logprobs", "metrics", "usage")
    """Fields that describe the sampling of a message. They aren't true of a graft, and are left out of it."""
    action_fields: tuple[str, ...] = ()
    """Fields that belong to a message's calls, beside those with the calls. A graft has the correction's."""
    outcomes: tuple[str, ...] = ()
    """Fields of a result's message that hold objects with more fields on how the call ended."""
    parts: Parts = CHAT_PARTS
    """How the parts of a content are read."""
    notes: tuple[str, ...] = ()
    """Names of what is between the messages and nobody says. It is kept, and left out of chats."""

    def openai_role(self, speaker: str) -> str:
        """Return OpenAI's name for a speaker; a name that is not known stays as it is."""
        for role, names in (
            ("assistant", self.assistants),
            ("tool", self.tools),
            ("user", self.users),
            ("system", self.systems),
        ):
            if speaker in names:
                return role
        return speaker


class Unreadable(Exception):  # noqa: N818 - it ends no run: the record is passed through as it is
    """A record can't be read as turns, or a trajectory can't be written as a chat; the message says why."""


class Heard(NamedTuple):
    """One result as logged."""

    call_id: object
    text: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """Messages as turns, and what it takes to write them again."""

    prompt: TextSpan
    turns: tuple[Turn[TextSpan], ...]
    kept: dict[str, Any]
    """The frames, as JSON."""


@dataclass(slots=True)
class Reader:
    """Reads the messages of one record."""

    tools: LoggedTools
    dialect: Dialect = Dialect()
    form: str | None = None
    """The call format of calls in text; None: Hermes or XML, whichever the record has."""
    by_words: bool = True
    """Whether words of a result may say how its call ended; see `judge_call`."""
    judged: Counter[str] = field(default_factory=Counter)

    def read(self, before: Sequence[Message], messages: Sequence[Message]) -> ReadMessages:
        """Return messages as turns. `before` and the messages up to the first of the model are the prompt."""
        first = next((index for index, each in enumerate(messages) if self._speaks(each)), len(messages))
        prompt = SpanText(PROMPT)
        frames = [self._plain(message, prompt) for message in (*before, *messages[:first])]
        groups: list[list[Message]] = []
        for message in messages[first:]:
            if self._speaks(message):
                groups.append([message])
            else:
                groups[-1].append(message)
        form = self._form(groups)
        turns, kept = [], []
        spoken = []
        for number, group in enumerate(groups):
            talk = form == FENCED and self.form is None and not self._is_answered(group)
            turn, group_frames, others = self._turn(group, None if talk else form)
            turns.append(turn)
            kept.append([each.to_json() for each in group_frames])
            if others:
                spoken.append(number)
        return ReadMessages(
            TextSpan(prompt.text),
            tuple(turns),
            {
                "prompt": [each.to_json() for each in frames],
                "turns": kept,
                "spoken": spoken,
                "judged": dict(self.judged),
            },
        )

    def _speaks(self, message: Message) -> bool:
        return message.get(self.dialect.role) in self.dialect.assistants

    def _form(self, groups: Sequence[Sequence[Message]]) -> str | None:
        """Return the format of calls in text; None if calls are in fields, or there are none."""
        in_fields = any(group[0].get(name) for group in groups for name in CALL_FIELDS)
        contents = [group[0].get(self.dialect.content) for group in groups]
        in_parts = any(next(self.dialect.parts.calls(content, ()), None) is not None for content in contents)
        if in_fields and in_parts:
            raise Unreadable("calls are in fields and in parts")
        texts = [text for text in contents if isinstance(text, str)]
        if self.form is None:
            texts = [text for text in texts if OPENING.search(text)]
        form = self.tools.text_form(texts, self.form)
        if form is not None and (in_fields or in_parts):
            raise Unreadable(f"calls are in {'fields' if in_fields else 'parts'} and in text")
        if form is None and self.form is None and not in_fields and not in_parts:
            # Fenced Python is talk, unless a tool answers it.
            answered = [group[0].get(self.dialect.content) for group in groups if self._is_answered(group)]
            form = self.tools.text_form([text for text in answered if isinstance(text, str)], FENCED)
        return form

    def _is_answered(self, group: Sequence[Message]) -> bool:
        """Return whether a message of a tool follows the model's."""
        return any(message.get(self.dialect.role) in self.dialect.tools for message in group[1:])

    def _turn(self, group: Sequence[Message], form: str | None) -> tuple[Turn[TextSpan], list[Frame], bool]:
        """Return a turn, its frames, and whether somebody else spoke in it."""
        said = group[0]
        reasoning, action, observation = SpanText(REASONING), SpanText(ACTION), SpanText(OBSERVATION)
        blanks = [
            Blank((name,), (reasoning.add_apart(said[name]),))
            for name in REASONING_FIELDS
            if isinstance(said.get(name), str)
        ]
        calls: list[ToolCall] = []
        ids: list[object] = []
        content = said.get(self.dialect.content)
        found = self.tools.text_calls(content, form) if form is not None and isinstance(content, str) else ()
        if found and isinstance(content, str):
            cut = found[0].start
            start = reasoning.add_apart(content[:cut])[1]
            action.add(content[cut:])
            # To their ends, so that a graft fills it with the correction's calls, however long they are.
            blanks.append(Blank((self.dialect.content,), ((REASONING, start, None), (ACTION, 0, None))))
            calls = [replace(call, start=call.start - cut, end=call.end - cut) for call in found]
            ids = [None] * len(calls)
        else:
            blanks += [Blank(path, (reasoning.add_apart(text),)) for path, text in self._texts(said)]
            for path, call_id, name, arguments in called(said, self.dialect):
                blank, call = self._call(path, name, arguments, action)
                blanks += blank
                calls.append(call)
                ids.append(call_id)
        heard: list[Heard] = []
        blanks += self._own_results(said, observation, heard)
        frames = [frame(said, blanks)]
        others = False
        for message in group[1:]:
            answer, spoke = self._answer(message, observation, heard, bool(found))
            frames.append(answer)
            others = others or spoke
        turn = Turn(
            TextSpan(reasoning.text),
            TextSpan(action.text) if calls else None,
            TextSpan(observation.text) if observation.length or len(group) > 1 else None,
            tuple(calls),
            self._results(calls, ids, heard),
        )
        return turn, frames, others

    def _call(self, path: Path, name: str, arguments: object, action: SpanText) -> tuple[list[Blank], ToolCall]:
        """Add a call in a field to the action's text, as Hermes writes it, and return it."""
        if action.length:
            action.glue("\n")
        start = action.length
        action.glue(f'<tool_call>{{"name": {_json(name)}, "arguments": ')
        blanks = []
        if isinstance(arguments, str):
            blanks.append(Blank(path, (action.add(arguments),)))
        elif isinstance(arguments, dict):
            blanks.append(Blank(path, (action.add(_json(arguments)),)))
        action.glue("}</tool_call>")
        return blanks, self.tools.call(name, arguments, start, action.length)

    def _own_results(self, said: Message, observation: SpanText, heard: list[Heard]) -> list[Blank]:
        """Add the results that a step holds itself."""
        blanks = self._result_parts(said, observation, heard) if self.dialect.parts.answered else []
        kept = said.get("observation")
        results = kept.get("results") if isinstance(kept, dict) else None
        for index, result in enumerate(results if isinstance(results, list) else []):
            where = ("observation", "results", index, "content")
            texts = list(leaves(result.get("content"), where)) if isinstance(result, dict) else []
            blanks += _response(texts, observation)
            if isinstance(result, dict):
                extra = result.get("extra")
                fields = {**result, **(extra if isinstance(extra, dict) else {})}
                heard.append(Heard(result.get("source_call_id"), _joined(texts), fields))
        return blanks

    def _answer(self, message: Message, observation: SpanText, heard: list[Heard], in_text: bool) -> tuple[Frame, bool]:
        """Return the frame of a message that follows, and whether somebody speaks in it besides results."""
        known = len(heard)
        texts = list(self._texts(message))
        blanks = self._result_parts(message, observation, heard)
        if len(heard) > known:
            return frame(message, blanks + (self._words(message, observation) if texts else [])), bool(texts)
        if message.get(self.dialect.role) in self.dialect.tools:
            fields = message
            for name in self.dialect.outcomes:
                fields = fields | message[name] if isinstance(message.get(name), dict) else fields
            heard.append(Heard(message.get("tool_call_id"), _joined(texts), fields))
            return frame(message, _response(texts, observation)), False
        if in_text and message.get(self.dialect.role) in self.dialect.users:
            heard += [Heard(None, result, {}) for _, text in texts for result in text_results(text)]
        if message.get(self.dialect.role) == NOTE:
            return frame(message, ()), False
        spoke = len(heard) == known or any(beside_results(text).strip() for _, text in texts)
        return self._plain(message, observation), spoke

    def _result_parts(self, message: Message, observation: SpanText, heard: list[Heard]) -> list[Blank]:
        """Add the results in a message's parts."""
        blanks = []
        content = self.dialect.content
        for told in self.dialect.parts.results(message.get(content), (content,)):
            blanks += _response(told.texts, observation)
            heard.append(Heard(told.call_id, _joined(told.texts), told.fields))
        return blanks

    def _plain(self, message: Message, span: SpanText) -> Frame:
        return frame(message, self._words(message, span))

    def _words(self, message: Message, span: SpanText) -> list[Blank]:
        if message.get(self.dialect.role) in self.dialect.notes:
            return []
        span.glue(f"{message.get(self.dialect.role, '')}: ")
        blanks = [Blank(path, (span.add_apart(text),)) for path, text in self._texts(message)]
        span.glue("\n")
        return blanks

    def _texts(self, message: Message) -> Iterator[tuple[Path, str]]:
        return self.dialect.parts.texts(message.get(self.dialect.content), (self.dialect.content,))

    def _results(
        self, calls: Sequence[ToolCall], ids: Sequence[object], heard: Sequence[Heard]
    ) -> tuple[ToolResult, ...]:
        """Return one result for each call, or none at all if one of them is unsure."""
        if not calls:
            return ()
        matched = _matched(ids, heard)
        judged = [None] * len(calls) if matched is None else list(map(self._result, calls, matched))
        results = [each for each in judged if each is not None]
        return tuple(results) if len(results) == len(calls) else ()

    def _result(self, call: ToolCall, heard: Heard) -> ToolResult | None:
        found = judge_call(
            call,
            heard.text,
            heard.fields,
            no_error_means_success=self.dialect.no_error_means_success,
            by_words=self.by_words,
        )
        self.judged[found.by] += 1
        return found.result


def written(trajectory: Trajectory[TextSpan], dialect: Dialect) -> tuple[list[Message], list[list[Message]]]:
    """Return the messages of the prompt, and those of each turn as it is now."""
    kept: Any = trajectory.info.log
    frames = [[Frame.from_json(each) for each in group] for group in kept["turns"]]
    numbers = count()

    def group_of(turn: Turn[TextSpan]) -> list[Frame]:
        # Turns are numbered as they were sampled: under an edit stand the turns that it replaced.
        if turn.edit is None or not turn.edit.commits:
            return frames[next(numbers)]
        groups = [group_of(each) for each in turn.edit.original]
        if turn.edit.kind is RepairKind.REPLACE:
            return groups[-1]
        failed, correction = groups[0][0], groups[-1][0]
        grafted = graft(failed, correction, (*ACTION_FIELDS, *dialect.action_fields), dialect.sampling_fields)
        grafted = dialect.parts.grafted(grafted, correction, dialect.content)
        return [grafted, *groups[-1][1:]]

    prompt = [Frame.from_json(each).fill({PROMPT: trajectory.prompt.text}) for each in kept["prompt"]]
    groups = []
    for turn in trajectory.turns:
        texts = {
            REASONING: turn.reasoning.text,
            ACTION: "" if turn.action is None else turn.action.text,
            OBSERVATION: "" if turn.observation is None else turn.observation.text,
        }
        groups.append([each.fill(texts) for each in group_of(turn)])
    return prompt, groups


def all_written(trajectory: Trajectory[TextSpan], dialect: Dialect) -> list[Message]:
    """Return all messages, in order."""
    prompt, groups = written(trajectory, dialect)
    return [*prompt, *(message for group in groups for message in group)]


def called(said: Message, dialect: Dialect) -> Iterator[Found]:
    """Yield calls in parts and in fields: where their arguments stand, their ids, names and arguments."""
    yield from dialect.parts.calls(said.get(dialect.content), (dialect.content,))
    calls = said.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else []):
        if not isinstance(call, dict):
            raise Unreadable("a tool call that is not an object")
        path: Path = ("tool_calls", index, "arguments")
        call_id = call.get("id", call.get("tool_call_id"))
        function = call.get("function")
        if isinstance(function, dict):
            yield ("tool_calls", index, "function", "arguments"), call_id, _name(function), function.get("arguments")
        elif isinstance(function, str):
            yield path, call_id, function, call.get("arguments")
        else:
            yield path, call_id, _name(call), call.get("arguments")
    function = said.get("function_call")
    if isinstance(function, dict):
        yield ("function_call", "arguments"), None, _name(function), function.get("arguments")


def _name(named: Mapping[str, Any]) -> str:
    name = named.get("name", named.get("function_name"))
    return name if isinstance(name, str) else ""


def _response(texts: Sequence[tuple[Path, str]], observation: SpanText) -> list[Blank]:
    observation.glue("<tool_response>\n")
    blanks = [Blank(path, (observation.add_apart(text),)) for path, text in texts]
    observation.glue("\n</tool_response>\n")
    return blanks


def _joined(texts: Sequence[tuple[Path, str]]) -> str:
    return "\n".join(text for _, text in texts)


def _matched(ids: Sequence[object], heard: Sequence[Heard]) -> list[Heard] | None:
    """Return the result of each call, by ids if all have one, else by order; None if they don't pair up."""
    if len(heard) != len(ids):
        return None
    by_id = {each.call_id: each for each in heard if isinstance(each.call_id, str)}
    if len(by_id) == len(ids) and all(call_id in by_id for call_id in ids if isinstance(call_id, str)):
        named = [by_id[call_id] for call_id in ids if isinstance(call_id, str)]
        if len(named) == len(ids):
            return named
    return list(heard) if not by_id or not any(isinstance(call_id, str) for call_id in ids) else None
