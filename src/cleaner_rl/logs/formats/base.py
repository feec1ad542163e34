"""Holds what all log formats share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from math import isfinite
from typing import Any, Protocol, TypeAlias

from cleaner_rl.logs.calls import LoggedTools
from cleaner_rl.trajectory import Key, TextSpan, Trajectory

Record: TypeAlias = dict[str, Any]
LINES = "lines"
"""The field of a record that is a whole file: its lines, or the values of its JSON list."""
TASK_FIELDS = ("task_id", "task", "instance_id", "question_id", "prompt_id", "example_id", "uid")
ROLLOUT_FIELDS = ("rollout", "attempt", "epoch", "sample_index")
ID_FIELDS = ("id", "trajectory_id", "traj_id", "session_id", "instance_id", "uid", "uuid", "example_id")
REWARD_FIELDS = ("reward", "score")
SUCCESS_FIELDS = ("success", "resolved", "correct", "passed", "is_correct")


@dataclass(frozen=True, slots=True)
class Reading:
    """What the user of a log says about it."""

    python_tools: tuple[str, ...] = ()
    """Tools that run Python, beside those with the usual names."""
    call_format: str | None = None
    """Format of calls in text; None: Hermes or XML, whichever is there."""
    run: str = "log"
    by_words: bool = True
    """Whether words of a result may say how its call ended. Without them, only exit codes, flags and error fields do;
    formats whose records hold a list of messages know this setting."""

    @property
    def tools(self) -> LoggedTools:
        """Every tool that the log may name."""
        return _tools(self.python_tools)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A trajectory as messages of OpenAI's form, for supervised training."""

    messages: list[Record]
    turns: list[int | None]
    """For each message the turn that it belongs to; None if the model didn't write it."""
    tools: list[Record] | None = None
    restarts: list[int] = field(default_factory=list)
    """Messages with which the model's context began anew, because the harness put a summary in place of the rest."""

    def add(self, message: Record, turn: int | None = None) -> None:
        """Add a message."""
        self.messages.append(message)
        self.turns.append(turn)

    def restart(self, summary: str | None) -> None:
        """Begin a new context here, with this summary unless it is a message of its own."""
        self.restarts.append(len(self.messages))
        if summary is not None:
            self.add({"role": "user", "content": summary})


@cache
def _tools(python: tuple[str, ...]) -> LoggedTools:
    return LoggedTools(python)


class LogFormat(Protocol):
    """Turns a record into a trajectory, and back. Implementations hold no state.

    A record is a line of JSONL, a row, or a JSON object. A format whose files are one record each, such as the session
    files of coding agents, says so with `reads_files = True`; such a record is `{"lines": [...]}`, with the values of
    the file's lines or of its JSON list. `detects` is asked with the first of them alone.
    """

    name: str

    def detects(self, record: object) -> bool:
        """Return whether a record is of this format, by its content."""
        ...

    def read(self, record: Record, number: int, reading: Reading) -> Trajectory[TextSpan]:
        """Return the trajectory of a record, the `number`-th of its file. Raises `Unreadable` if it has none."""
        ...

    def write(self, trajectory: Trajectory[TextSpan]) -> Record:
        """Return the record of a trajectory as it is now; without edits, the record that it was read from."""
        ...

    def chat(self, trajectory: Trajectory[TextSpan]) -> Conversation:
        """Return the trajectory as it is now in OpenAI's messages. Raises `Unreadable` if they can't hold it."""
        ...


def log_of(trajectory: Trajectory[Any]) -> Mapping[str, Any]:
    """Return what a trajectory keeps of its record; empty if it isn't from a log."""
    return trajectory.info.log or {}


def id_in(record: Mapping[str, Any]) -> str | None:
    """Return a record's own name, from the fields that usually hold one; None if there is none."""
    found = first_of(record, ID_FIELDS, (str, int))
    return None if found is None else str(found)


def key_of(record: Mapping[str, Any], number: int, reading: Reading, prompt: str) -> Key:
    """Return the key of a record's rollout. If the record names no task, the same prompt is the same task."""
    task = first_of(record, TASK_FIELDS, (str, int))
    rollout = first_of(record, ROLLOUT_FIELDS, (int,))
    step = first_of(record, ("step",), (int,))
    name = f"prompt-{blake2b(prompt.encode(), digest_size=8).hexdigest()}" if task is None else str(task)
    return Key(reading.run, step or 0, name, number if rollout is None else rollout)


def outcome_of(record: Mapping[str, Any]) -> tuple[float | None, bool | None]:
    """Return reward and success, each None if the record doesn't say it."""
    reward = finite(first_of(record, REWARD_FIELDS, (int, float)))
    success = next((record[name] for name in SUCCESS_FIELDS if isinstance(record.get(name), bool)), None)
    return reward, success


def finite(value: object) -> float | None:
    """Return a number that can be a reward; None if it is not a finite number."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def inside(value: object, *names: str) -> Mapping[str, Any]:
    """Return the object at the end of these names; empty if one of them isn't there, or is no object."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def first_of(record: Mapping[str, Any], names: Iterable[str], kinds: tuple[type, ...]) -> Any:
    """Return the first of these fields that is of such a type; a boolean does not count as a number."""
    for name in names:
        value = record.get(name)
        if isinstance(value, kinds) and not isinstance(value, bool):
            return value
    return None
