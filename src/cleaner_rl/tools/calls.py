"""The tools that a model may call, and one call as the model wrote it.

A call that cannot be run is still a call: it carries a `problem`, a sentence that tells the model what to write
instead, and `ToolCall.refusal` turns it into a result. So a malformed call gets feedback and can be repaired like any
failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cleaner_rl.tools.kinds import CallKind, call_kind, canonical
from cleaner_rl.tools.results import Status, ToolResult

TYPE_NAMES = {int: "a number", float: "a number", bool: "a boolean", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is described to the model."""

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    """JSON schema of the arguments; `required` is enforced."""
    description: str = ""
    code_argument: str | None = None
    """The argument that holds a program, if the tool runs one. It must be text and not blank."""
    kind: CallKind | None = None
    """What its calls do; None: `call_kind` tells it by the name and the arguments."""

    @property
    def required(self) -> tuple[str, ...]:
        """Return the arguments that a call must have."""
        names = self.parameters.get("required", ())
        return tuple(str(name) for name in names) if isinstance(names, list | tuple) else ()

    @property
    def schema(self) -> dict[str, object]:
        """Return the tool as chat templates and chat APIs take it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def type_of(self, argument: str) -> str | None:
        """Return the JSON type that the schema names for an argument."""
        properties = self.parameters.get("properties")
        schema = properties.get(argument) if isinstance(properties, Mapping) else None
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        return kind if isinstance(kind, str) else None

    def problem_with(self, arguments: Mapping[str, object]) -> str | None:
        """Return what is wrong with these arguments, as a sentence for the model; None if nothing is."""
        for name in self.required:
            if name not in arguments:
                return f"The call of tool '{self.name}' lacks the argument '{name}'."
        if self.code_argument is not None and self.code_argument in arguments:
            code = arguments[self.code_argument]
            if not isinstance(code, str):
                kind = TYPE_NAMES.get(type(code), "null")
                return f"The argument '{self.code_argument}' of tool '{self.name}' must be a string, not {kind}."
            if not code.strip():
                return f"The argument '{self.code_argument}' of tool '{self.name}' is empty: there is nothing to run."
        return None

    def code_of(self, arguments: Mapping[str, object]) -> str:
        """Return the text that similarity compares: the program, or else the arguments as canonical JSON."""
        if self.code_argument is not None:
            code = arguments.get(self.code_argument)
            return code if isinstance(code, str) else ""
        return canonical(arguments)


class ToolSet(Mapping[str, ToolSpec]):
    """The tools of one task, by name."""

    __slots__ = ("_by_name",)

    def __init__(self, *tools: ToolSpec) -> None:
        self._by_name = {tool.name: tool for tool in tools}
        if len(self._by_name) != len(tools):
            raise ValueError("two tools have the same name; rename one of them")

    def __getitem__(self, name: str) -> ToolSpec:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def read(self, name: str, arguments: Mapping[str, object], start: int, end: int) -> ToolCall:
        """Return the call at `start:end` of a text, with its problem if it names no tool or lacks an argument."""
        spec = self.get(name)
        if spec is None:
            known = ", ".join(f"'{each}'" for each in self._by_name) or "none"
            problem: str | None = f"There is no tool named '{name}'. Available: {known}."
            code, kind = "", None
        else:
            problem, code, kind = spec.problem_with(arguments), spec.code_of(arguments), spec.kind
        return ToolCall(name, arguments, code, start, end, problem, kind or call_kind(name, arguments))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call in a model's text."""

    name: str
    arguments: Mapping[str, object]
    code: str
    """The program, command or query; the arguments as canonical JSON for a tool that runs none. Of a call that can't be
    read: as much of the program as could be made out, for comparing it with its correction."""
    start: int
    end: int
    """Characters `start:end` of the text it was found in; of the action's text once it is part of a turn."""
    problem: str | None = None
    """Why it can't be run, in words for the model; None if it can."""
    kind: CallKind = CallKind.OTHER
    """What it does, whatever the tool's name is. Of a call that can't be read, this is often not known."""

    @property
    def refusal(self) -> ToolResult | None:
        """Return the result of a call that can't be run; None if it can."""
        return None if self.problem is None else ToolResult(Status.MALFORMED, explanation=self.problem)


def python_tool(name: str = "python", argument: str = "code") -> ToolSpec:
    """Return the tool of both papers: it takes a Python program and returns what it prints."""
    return ToolSpec(
        name=name,
        description="Runs a Python program and returns what it prints.",
        parameters={
            "type": "object",
            "properties": {argument: {"type": "string", "description": "The program to run."}},
            "required": [argument],
        },
        code_argument=argument,
        kind=CallKind.PYTHON,
    )
