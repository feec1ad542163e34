"""`inspect`: samples of Inspect's `.eval` logs (a zip, see `containers`) and of its JSON logs.

A sample's `messages` are the conversation; calls are `{id, function, arguments}`, results messages of the role `tool`,
whose `error` says how the call ended. No error means success, except of tools that run programs: Inspect's `python`
and `bash` give what was printed, errors included, so their text is judged. `id` is the task, `epoch` the rollout, and
the first score the outcome.

Limits: `events`, which repeat the conversation in more detail, stay those of the original run. A text that Inspect
moved to `attachments` stays there, and a turn that needs it is unsure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleaner_rl.logs.chats import chat_of
from cleaner_rl.logs.formats.base import Conversation, Reading, Record, finite, log_of
from cleaner_rl.logs.messages import Dialect, Reader, Unreadable, all_written
from cleaner_rl.trajectory import Key, RolloutInfo, StopReason, TextSpan, Trajectory

DIALECT = Dialect(no_error_means_success=True, sampling_fields=("id", "model"))
SCORES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's letters for correct, partly correct, incorrect and no answer."""
LIMITS = {
    "message": StopReason.TURN_LIMIT,
    "turn": StopReason.TURN_LIMIT,
    "token": StopReason.TOKEN_LIMIT,
    "context": StopReason.TOKEN_LIMIT,
    "time": StopReason.TIME_LIMIT,
    "working": StopReason.TIME_LIMIT,
}


class InspectFormat:
    """Reads and writes samples of an evaluation."""

    name = "inspect"

    def detects(self, record: object) -> bool:
        """Return whether a record has a sample's own fields beside its messages."""
        if not isinstance(record, dict) or not {"id", "epoch", "target", "input"} <= set(record):
            return False
        messages = record.get("messages")
        return isinstance(messages, list) and all(isinstance(each, dict) for each in messages)

    def read(self, record: Record, number: int, reading: Reading) -> Trajectory[TextSpan]:
        """Return the trajectory of a record; each message of the assistant is a turn."""
        if not self.detects(record):
            raise Unreadable("a record that is not a sample with messages")
        found = Reader(reading.tools, DIALECT, reading.call_format).read((), record["messages"])
        reward = _reward(record.get("scores"))
        success = None if reward is None else reward >= 1.0
        epoch = record["epoch"]
        log = {"format": self.name, "record": {**record, "messages": None}, **found.kept}
        key = Key(reading.run, 0, str(record["id"]), epoch if isinstance(epoch, int) else number)
        return Trajectory(found.prompt, found.turns, key, reward, success, _ending(record), RolloutInfo(log=log))

    def write(self, trajectory: Trajectory[TextSpan]) -> Record:
        """Return the sample with the messages of the turns."""
        return {**log_of(trajectory)["record"], "messages": all_written(trajectory, DIALECT)}

    def chat(self, trajectory: Trajectory[TextSpan]) -> Conversation:
        """Return the messages and tools in OpenAI's form."""
        return chat_of(trajectory, DIALECT, log_of(trajectory)["record"].get("tools"))


def _reward(scores: object) -> float | None:
    """Return the first score as a number."""
    first: Any = next(iter(scores.values()), None) if isinstance(scores, Mapping) else None
    value = first.get("value") if isinstance(first, Mapping) else None
    if isinstance(value, str):
        return SCORES.get(value)
    return finite(value)


def _ending(record: Record) -> StopReason | None:
    """Return how a sample ended. One that an error halted says nothing about the model."""
    if record.get("error"):
        return StopReason.FAULT
    limit = record.get("limit")
    return LIMITS.get(str(limit.get("type"))) if isinstance(limit, Mapping) else None
