"""`verl`: what verl writes to `trainer.rollout_data_dir`, one file per step with `input`, `output`, `score`, `step`, …

`output` is the whole response as decoded text, without special tokens: turns are cut out of it where a tool's response
is between an assistant's texts, as the ChatML templates of Qwen, Hermes and SmolLM2 write it. Put together again
they are that text, character for character.

verl sorts a step by `uid` ("sample_rollout_output"): its first part is the task, the second the rollout. Without one,
attempts with the same `input` are attempts at one task.

Limits: other templates' responses aren't found; such an output is one turn with calls of which nobody knows the
results, and stays as it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from cleaner_rl.logs.calls import text_results
from cleaner_rl.logs.formats.base import Conversation, Reading, Record, key_of, log_of, outcome_of
from cleaner_rl.logs.judging import judge_call
from cleaner_rl.logs.messages import Unreadable
from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory import Key, RolloutInfo, TextSpan, Trajectory, Turn

# Borders only: an expression for all that lies between two of them would look for the end from each beginning anew.
IM_END, IM_START = r"(?:<\|im_end\|>)?", r"(?:<\|im_start\|>)?"
RESULTS = re.compile(rf"{IM_END}\n{IM_START}(?:user|tool)\n<tool_response>\n")
RESULTS_END = re.compile(r"\n</tool_response>")
WORDS = re.compile(rf"{IM_END}\n{IM_START}user\n(?!<tool_response>)")
OBSERVATION_END = re.compile(rf"{IM_END}\n?{IM_START}assistant\n|{IM_END}\n?\Z")
PROMPT = re.compile(rf"(?:{IM_START}system\n(?P<system>.*?){IM_END}\n)?{IM_START}user\n", re.DOTALL)
PROMPT_END = re.compile(rf"{IM_END}\n{IM_START}assistant\n(?P<begun>(?:<think>\n(?:\n</think>\n\n)?)?)\Z")
ROLLOUT_DIGITS = 18
"""A longer number can't be stored."""
ROLE = re.compile(rf"\A{IM_START}system$|^{IM_START}(?:user|assistant)$", re.MULTILINE)


class Observed(NamedTuple):
    """A part of an output that the model didn't say."""

    start: int
    end: int
    words: str
    """What a user said behind the results, with the template's own words before it."""


class VerlFormat:
    """Reads and writes records with the text of an input and of an output."""

    name = "verl"

    def detects(self, record: object) -> bool:
        """Return whether a record has the fields that every dump has."""
        if not isinstance(record, dict) or not {"score", "step"} <= set(record):
            return False
        return isinstance(record.get("input"), str) and isinstance(record.get("output"), str)

    def read(self, record: Record, number: int, reading: Reading) -> Trajectory[TextSpan]:
        """Return the trajectory of a record, with the parts of its output as turns."""
        if not self.detects(record):
            raise Unreadable("a record whose input and output are not texts")
        judged: Counter[str] = Counter()
        output = record["output"]
        form = reading.tools.text_form([output], reading.call_format)
        turns: list[Turn[TextSpan]] = []
        spoken = []
        position = 0
        for found in observations(output):
            if found.words:
                spoken.append(len(turns))
            observed = output[found.start : found.end]
            turns.append(_turn(output[position : found.start], observed, form, reading, judged))
            position = found.end
        if position < len(output) or not turns:
            turns.append(_turn(output[position:], None, form, reading, judged))
        reward, success = outcome_of(record)
        rest = {**record, "input": None, "output": None}
        log = {"format": self.name, "record": rest, "spoken": spoken, "judged": dict(judged)}
        key = _key(record, number, reading)
        return Trajectory(TextSpan(record["input"]), tuple(turns), key, reward, success, info=RolloutInfo(log=log))

    def write(self, trajectory: Trajectory[TextSpan]) -> Record:
        """Return the record with the text of the turns."""
        output = "".join(span.text for turn in trajectory.turns for span in turn.spans())
        return {**log_of(trajectory)["record"], "input": trajectory.prompt.text, "output": output}

    def chat(self, trajectory: Trajectory[TextSpan]) -> Conversation:
        """Return the parts as messages. The roles that are left of the template say who speaks."""
        system, user, begun = prompt_parts(trajectory.prompt.text)
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": user})
        chat = Conversation(messages, [None] * len(messages))
        for number, turn in enumerate(trajectory.turns):
            chat.add({"role": "assistant", "content": turn.text if number else begun + turn.text}, number)
            observed = "" if turn.observation is None else turn.observation.text
            for result in text_results(observed):
                chat.add({"role": "tool", "content": result})
            for found in observations(observed):
                if spoken := found.words.rpartition("user\n")[2]:
                    chat.add({"role": "user", "content": spoken})
        return chat


def observations(output: str) -> Iterator[Observed]:
    """Yield what is between the assistant's texts, in one pass over the text."""
    position = 0
    while (opening := RESULTS.search(output, position)) is not None:
        found = _observed(output, opening)
        if found is None:
            return  # nothing behind it ends an observation, be it this one or a later one
        yield found
        position = found.end


def prompt_parts(prompt: str) -> tuple[str | None, str, str]:
    """Return the system prompt, the user's message, and the text that the template begins the answer with.

    All of it is the user's if it is of no template. Raises `Unreadable` if it is of another one, or somebody else
    speaks in it.
    """
    start, end = PROMPT.match(prompt), PROMPT_END.search(prompt)
    parts: tuple[str | None, str, str] = None, prompt, ""
    if start is not None and end is not None and end.start() >= start.end():
        parts = start["system"], prompt[start.end() : end.start()], end["begun"]
    if ROLE.search(parts[1]):
        raise Unreadable("a prompt with an unknown template")
    return parts


def _observed(output: str, opening: re.Match[str]) -> Observed | None:
    for results in RESULTS_END.finditer(output, opening.end()):
        words = WORDS.match(output, results.end())
        end = (
            OBSERVATION_END.match(output, results.end())
            if words is None
            else OBSERVATION_END.search(output, words.end())
        )
        if end is not None:
            return Observed(opening.start(), end.end(), output[results.end() : end.start()])
    return None


def _turn(text: str, observed: str | None, form: str | None, reading: Reading, judged: Counter[str]) -> Turn[TextSpan]:
    calls = () if form is None else reading.tools.text_calls(text, form)
    observation = None if observed is None else TextSpan(observed)
    if not calls:
        return Turn(TextSpan(text), None, observation)
    cut = calls[0].start
    placed = tuple(replace(call, start=call.start - cut, end=call.end - cut) for call in calls)
    responses = [] if observed is None else list(text_results(observed))
    known: list[ToolResult] = []
    for call, response in zip(calls, responses if len(responses) == len(calls) else (), strict=False):
        found = judge_call(call, response, {})
        judged[found.by] += 1
        if found.result is not None:
            known.append(found.result)
    results = tuple(known) if len(known) == len(calls) else ()
    return Turn(TextSpan(text[:cut]), TextSpan(text[cut:]), observation, placed, results)


def _key(record: Record, number: int, reading: Reading) -> Key:
    key = key_of(record, number, reading, record["input"])
    uid = record.get("uid")
    parts = uid.rsplit("_", 2) if isinstance(uid, str) else []
    if len(parts) == 3 and parts[1].isdecimal():
        if len(parts[1]) > ROLLOUT_DIGITS:
            raise OverflowError  # as for any other number that can't be stored
        return replace(key, task=parts[0], rollout=int(parts[1]))
    return replace(key, task=key_of({}, number, reading, record["input"]).task)
