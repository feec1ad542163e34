"""Prompts as data: what a model is told about its tool and the form of its answer, in TOML files beside this one.

A recipe names its prompt. `stateless` is the papers' tool, where each program runs in a fresh interpreter; `session`
has a tool that remembers, `shell` a bash session, `no-tool` has none. Your own file has the same keys, or those that
differ from its `base`: a name, or a path from where the file is. Give its path instead of a name. A `kind` of tool that
is no `ToolKind` is the name of a plug-in (`cleaner_rl.rollout.tool_plugins`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from reprlib import repr as short
from typing import Any

from cleaner_rl.tasks.task import Message, Task
from cleaner_rl.tools import NO_CALLS, CallKind, ToolSet, ToolSpec

_FOLDER = Path(__file__).parent
NO_TOOL: dict[str, Any] = {
    "name": "none",
    "parameters": {},
    "description": "",
    "code_argument": None,
    "kind": "stateless",
}
"""In place of a prompt's tool, where calls aren't read."""
KINDS = {"base": str, "call_format": str, "system": str, "examples": list, "tool": dict, "answer": dict}
"""Of a file's values."""


class ToolKind(StrEnum):
    """Says what a tool of the sandbox runs, and what it remembers from one call to the next."""

    STATELESS = "stateless"
    """Python, in a fresh interpreter for each call."""
    SESSION = "session"
    """Python, in one session for all calls."""
    SHELL = "shell"
    """Bash, in one session for all calls."""

    @property
    def calls(self) -> CallKind:
        """Return what its calls are."""
        return CallKind.SHELL if self is ToolKind.SHELL else CallKind.PYTHON


@dataclass(frozen=True, slots=True)
class Prompt:
    """Everything that a model reads around a task: system message, examples, tool and answer format."""

    name: str
    system: str
    tool: ToolSpec
    tool_kind: str
    """Where its calls run: a `ToolKind` for the sandbox, or the name of a plug-in."""
    call_format: str
    """Name of the format that calls are written in (`cleaner_rl.tools.call_format`)."""
    in_template: bool
    """Whether the model's chat template describes the tool; otherwise the system message does."""
    answer_format: Mapping[str, str]
    """How to give the answer, by the task's grader; `default` for graders of your own."""

    examples: tuple[Message, ...] = ()
    """Problems with their solutions, shown before the task's own."""
    tool_options: Mapping[str, object] = field(default_factory=dict)
    """Options of the plug-in."""

    @property
    def tools(self) -> ToolSet:
        """Return the tools that the model may call."""
        return ToolSet() if self.call_format == NO_CALLS else ToolSet(self.tool)

    def messages(self, task: Task) -> tuple[Message, ...]:
        """Return the whole first prompt: the system message, examples, the problem, and how to answer it."""
        form = self.answer_format.get(task.grader, self.answer_format["default"])
        *before, last = task.prompt
        asked = Message(last.role, f"{last.content.rstrip()}\n\n{form.strip()}")
        return (Message("system", self.system.strip()), *self.examples, *before, asked)


def prompt_names() -> list[str]:
    """Return the names of the prompts that come with the package."""
    return sorted(file.stem for file in _FOLDER.glob("*.toml"))


def load_prompt(name: str | Path) -> Prompt:
    """Load a prompt of the package by name, or one of your own by its file.

    Examples:
        >>> from cleaner_rl.tasks import load_prompt
        >>> prompt = load_prompt("stateless")
        >>> prompt.tool.name, prompt.call_format
        ('python', 'hermes')
    """
    file = _file(name)
    values = _values(file)
    try:
        tool = NO_TOOL if values["call_format"] == NO_CALLS else values["tool"]
        ours = tool["kind"] in set(ToolKind)
        argument = tool["code_argument"] if ours else tool.get("code_argument")
        kind = ToolKind(tool["kind"]).calls if ours else None
        return Prompt(
            name=file.stem,
            system=values["system"],
            tool=ToolSpec(tool["name"], tool["parameters"], tool["description"], argument, kind),
            tool_kind=tool["kind"],
            call_format=values["call_format"],
            in_template=tool.get("in_template", True),
            answer_format={"default": values["answer"]["default"], **values["answer"]},
            examples=tuple(Message(each["role"], each["content"].strip()) for each in values.get("examples", ())),
            tool_options=tool.get("options", {}),
        )
    except KeyError as error:
        raise ValueError(f"{file} lacks the key {error}; see {_FOLDER / 'stateless.toml'} for all of them") from error


def _file(name: str | Path, folder: Path = Path()) -> Path:
    file = folder / name if Path(name).suffix == ".toml" else _FOLDER / f"{name}.toml"
    if not file.is_file():
        raise LookupError(
            f"there is no prompt '{name}'; available: {', '.join(prompt_names())}, or a path to a .toml file"
        )
    return file


def _values(file: Path, above: frozenset[Path] = frozenset()) -> dict[str, Any]:
    """What a file says over what its base says; `above`: the files that it is a base of."""
    if file.resolve() in above:
        raise ValueError(f"{file} is a base of itself; give one of its bases another")
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} isn't valid TOML: {error}") from None
    for key in KINDS.keys() & values.keys():
        if not isinstance(values[key], KINDS[key]):
            raise ValueError(f"{file}: '{key}' is not written as in {_FOLDER / 'stateless.toml'}: {short(values[key])}")
    if "base" not in values:
        return values
    base = _values(_file(values["base"], file.parent), above | {file.resolve()})
    tables = {key: {**base.get(key, {}), **values.get(key, {})} for key in ("tool", "answer")}
    return {**base, **values, **tables}
