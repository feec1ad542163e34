"""One problem: what the model is asked, and what a grader needs to judge its answer.

A grader is named, not held, and its data is one text (`truth`), so that a task stays plain data: it goes through JSON,
Parquet and processes, and any grader, yours too, can read it. What the text means is the grader's business:

- `math`: the reference answer in LaTeX; several accepted ones stand on lines of their own.
- `choice`: the letter.
- `code`: test cases as JSON (see `cleaner_rl.tasks.grading.cases`).
- `state`: what the task's check prints after the rollout (see `cleaner_rl.tasks.grading.state`).

Limits: `extra` is a mapping of JSON values that is not copied; treat it as read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Task:
    """One problem."""

    id: str
    """Unique over all data sets: it begins with the data set's name, and seeds whatever is drawn for this task."""
    prompt: tuple[Message, ...]
    """The problem itself, without instructions on tools or format: those come from a `Prompt`."""
    grader: str
    truth: str
    """What the grader compares with. Never shown to a model or to its program."""
    source: str = ""
    """The data set, and within a mixture the part of it."""
    split: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)
    """JSON values that came with it: subject, level, starter code, ..."""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a task needs an id; seeds, caches and reports go by it")
        if not any(message.content.strip() for message in self.prompt):
            raise ValueError(f"task '{self.id}' asks nothing; give it a prompt with text")

    @property
    def question(self) -> str:
        """Return the problem as one text: all that the user says."""
        return "\n\n".join(message.content for message in self.prompt if message.role == "user")

    @property
    def environment(self) -> str:
        """Return the name of the sandbox's environment that the rollout's session has; empty if it names none."""
        return str(self.extra.get("environment", ""))

    @property
    def setup(self) -> str:
        """Return the program that runs in the rollout's session before the first turn; empty if there is none."""
        return str(self.extra.get("setup", ""))

    @property
    def check(self) -> str:
        """Return the program that runs in the rollout's session after the answer; empty if there is none."""
        return str(self.extra.get("check", ""))

    @property
    def threshold(self) -> float | None:
        """Return the score from which on the task is solved; None: the grader says whether it is."""
        value = self.extra.get("threshold")
        return float(value) if isinstance(value, int | float) else None

    def to_json(self) -> dict[str, object]:
        """Return the task as JSON values."""
        return {
            "id": self.id,
            "prompt": [{"role": message.role, "content": message.content} for message in self.prompt],
            "grader": self.grader,
            "truth": self.truth,
            "source": self.source,
            "split": self.split,
            "extra": dict(self.extra),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Task:
        """Read the task that `to_json` wrote."""
        extra = values.get("extra")
        return cls(
            id=str(values["id"]),
            prompt=messages(values["prompt"]),
            grader=str(values["grader"]),
            truth=str(values["truth"]),
            source=str(values.get("source", "")),
            split=str(values.get("split", "")),
            extra=dict(extra) if isinstance(extra, Mapping) else {},
        )


def messages(value: object) -> tuple[Message, ...]:
    """Chat messages, from a list of role and content, or from a question."""
    if isinstance(value, str):
        return (Message("user", value),)
    if not isinstance(value, list | tuple) or not all(map(_is_message, value)):
        raise ValueError("a prompt is a text, or a list of messages with 'role' and 'content'")
    return tuple(Message(str(each["role"]), str(each["content"])) for each in value)


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and "role" in value and "content" in value
