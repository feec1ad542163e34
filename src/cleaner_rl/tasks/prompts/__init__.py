"""Prompts as data: what a model is told about its tool and the form of its answer, in TOML files beside this one.

A recipe names its prompt. `stateless` is the papers' tool, where each program runs in a fresh interpreter; `session`
has a tool that remembers, `no-tool` has none. Your own file has the same keys, or those that differ from its `base`;
give its path instead of a name. A `kind` of tool that is neither is the name of a plug-in
(`cleaner_rl.rollout.toolboxes`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from cleaner_rl.tasks.task import Message, Task
from cleaner_rl.tools import NO_CALLS, ToolSet, ToolSpec

_FOLDER = Path(__file__).parent
NO_TOOL: dict[str, Any] = {
    "name": "none",
    "parameters": {},
    "description": "",
    "code_argument": None,
    "kind": "stateless",
}
"""In place of a prompt's tool, where calls aren't read."""


class ToolKind(StrEnum):
    """What the Python tool remembers from one call to the next."""

    STATELESS = "stateless"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that is said to a model around a task."""

    name: str
    system: str
    tool: ToolSpec
    tool_kind: str
    """Where its calls run: a `ToolKind` for Python, or the name of a plug-in."""
    call_format: str
    """Name of the format that calls are written in (`cleaner_rl.tools.call_format`)."""
    in_template: bool
    """Whether the model's chat template tells of the tool, or the system's words do."""
    answer_format: Mapping[str, str]
    """How to give the answer, by the task's grader; `default` for graders of your own."""

    examples: tuple[Message, ...] = ()
    """Problems with their solutions, shown before the task's own."""
    tool_options: Mapping[str, object] = field(default_factory=dict)
    """What a plug-in is made with."""

    @property
    def tools(self) -> ToolSet:
        """What the model may call."""
        return ToolSet() if self.call_format == NO_CALLS else ToolSet(self.tool)

    def messages(self, task: Task) -> tuple[Message, ...]:
        """The whole first prompt: the system's words, examples, the problem, and how to answer it."""
        form = self.answer_format.get(task.grader, self.answer_format["default"])
        *before, last = task.prompt
        asked = Message(last.role, f"{last.content.rstrip()}\n\n{form.strip()}")
        return (Message("system", self.system.strip()), *self.examples, *before, asked)


def prompt_names() -> list[str]:
    """The prompts that come with the package."""
    return sorted(file.stem for file in _FOLDER.glob("*.toml"))


def load_prompt(name: str | Path) -> Prompt:
    """A prompt of the package by name, or one of your own by its file."""
    file, values = _read(name)
    if "base" in values:
        _, base = _read(values["base"])
        values = {**base, **values, "tool": {**base.get("tool", {}), **values.get("tool", {})}}
    try:
        tool = NO_TOOL if values["call_format"] == NO_CALLS else values["tool"]
        argument = tool["code_argument"] if tool["kind"] in set(ToolKind) else tool.get("code_argument")
        return Prompt(
            name=file.stem,
            system=values["system"],
            tool=ToolSpec(tool["name"], tool["parameters"], tool["description"], argument),
            tool_kind=tool["kind"],
            call_format=values["call_format"],
            in_template=tool.get("in_template", True),
            answer_format={"default": values["answer"]["default"], **values["answer"]},
            examples=tuple(Message(each["role"], each["content"].strip()) for each in values.get("examples", ())),
            tool_options=tool.get("options", {}),
        )
    except KeyError as error:
        raise ValueError(f"{file} lacks the key {error}; see {_FOLDER / 'stateless.toml'} for all of them") from error


def _read(name: str | Path) -> tuple[Path, dict[str, Any]]:
    file = Path(name) if Path(name).suffix == ".toml" else _FOLDER / f"{name}.toml"
    if not file.is_file():
        raise LookupError(
            f"there is no prompt '{name}'; available: {', '.join(prompt_names())}, or a path to a .toml file"
        )
    return file, tomllib.loads(file.read_text(encoding="utf-8"))
