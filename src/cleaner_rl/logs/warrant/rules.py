"""Rules of a tool: whether one of its calls may stand for another that failed.

Ours are for a kind of call (`bundled`). Another package adds rules for its own tools with an entry point in the group
`cleaner_rl.repair_rules`: a class that names the tools and answers the four questions of `ToolRules`. For these tools
they take the place of ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Protocol

from cleaner_rl.logs.warrant.context import RepairContext
from cleaner_rl.logs.warrant.offers import renamed, substituted, with_names
from cleaner_rl.logs.warrant.reasons import Unwarranted
from cleaner_rl.logs.warrant.texts import misspelt, same_path, same_words
from cleaner_rl.tools import CallKind, PluginError, Plugins, ToolCall

QUOTED = 6
"""Characters of a line that is taken for one of the call's: shorter ones come in other words."""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed, and what is known of its failure."""

    call: ToolCall
    tool_output: str
    """What the tool said."""
    own_words: str
    """The same without lines of the call that the tool repeats."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names of the call for which the tool offers others ("Did you mean: …") that the correction has."""
    context: RepairContext = field(default_factory=RepairContext)

    @classmethod
    def of(
        cls,
        call: ToolCall,
        tool_output: str,
        correction: ToolCall,
        messages: Sequence[str] | None = None,
        context: RepairContext = RepairContext(),  # noqa: B008 - frozen
    ) -> FailedCall:
        """Return a failed call as it is judged beside a correction.

        `messages` are what the tool said of this failure and of those after it, without what a program had printed.
        """
        names = renamed(call.code, correction.code, messages or (tool_output,), call.kind)
        return cls(call, tool_output, _without_own_words(tool_output, call), names, context)

    def as_offered(self) -> FailedCall:
        """Return it as if the call had been made with the names that the tool offers."""
        names, call = self.renamed, self.call
        if not names:
            return self
        arguments = {substituted(key, names): with_names(value, names) for key, value in call.arguments.items()}
        call = replace(call, code=substituted(call.code, names), arguments=arguments)
        tool_output, own_words = substituted(self.tool_output, names), substituted(self.own_words, names)
        return replace(self, call=call, tool_output=tool_output, own_words=own_words)


class RepairRules(Protocol):
    """Decides whether a call may stand for another one of the same tool that failed."""

    @property
    def tools(self) -> Collection[str]:
        """Names of the tools, as calls have them; `*` stands for any characters (`mcp__kubernetes__*`)."""
        ...

    def refusal(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Return why the correction may not stand for the failed call; None if it may."""
        ...


class ToolRules(ABC):
    """Rules for a tool of your own: four questions, and nothing that is not sure is repaired.

    Denials, limits, and a call that is simply made again are refused before they are asked.
    """

    tools: Collection[str] = ()

    @abstractmethod
    def is_mistake(self, failed: FailedCall) -> bool:
        """Return whether the tool found the call itself wrong. A failure that says something about the world is a
        result: a health check that fails, a search that finds nothing."""

    @abstractmethod
    def changed(self, failed: FailedCall) -> bool:
        """Return whether the failed call may have changed something before it failed. If nobody knows: True."""

    @abstractmethod
    def is_bypass(self, failed: FailedCall, correction: ToolCall) -> bool:
        """Return whether the correction gets around a safeguard that the failed call respected."""

    @abstractmethod
    def compared(self, call: ToolCall) -> Mapping[str, str]:
        """Return what a call does and to what, by names of your own. Two calls have the same purpose if all of it is
        equal, but for slips in values that the tool named and for names that it offered."""

    def refusal(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Return why the correction may not stand for the failed call; None if it may."""
        if not self.is_mistake(failed):
            return Unwarranted.FINDING
        if self.is_bypass(failed, correction):
            return Unwarranted.BYPASS
        if self.changed(failed):
            return Unwarranted.CHANGED
        old, new = self.compared(failed.call), self.compared(correction)
        same = old.keys() == new.keys() and all(_same(old[name], new[name], failed) for name in old)
        return None if same else Unwarranted.OTHER_PURPOSE


def _without_own_words(told: str, call: ToolCall) -> str:
    """Return what a tool said without the lines of the call that it repeats: these are not its own words."""
    lines = {line.strip() for value in call.arguments.values() if isinstance(value, str) for line in value.splitlines()}
    for line in sorted(lines, key=len, reverse=True):
        if len(line) >= QUOTED:
            told = _without(line, told)
    return told


def _without(line: str, told: str) -> str:
    """Return a text with "…" for a line of a call, where no word goes on before or after it."""
    parts, position = [], 0
    start = told.find(line)
    while start >= 0:
        end = start + len(line)
        if _is_in_word(told[start - 1 : start]) or _is_in_word(told[end : end + 1]):
            start = told.find(line, start + 1)
        else:
            parts += [told[position:start], "…"]
            position, start = end, told.find(line, end)
    return "".join((*parts, told[position:])) if parts else told


def _is_in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _same(old: str, new: str, failed: FailedCall) -> bool:
    if old == new or substituted(old, failed.renamed) == new:
        return True
    is_slip = same_words(old, new) or misspelt(old, new) or ("/" in old + new and same_path(old, new))
    return is_slip and bool(old) and old in failed.tool_output


REPAIR_RULES: Plugins[RepairRules] = Plugins(
    group="cleaner_rl.repair_rules",
    what="set of repair rules",
    ours={
        kind.value: f"cleaner_rl.logs.warrant.bundled:{name}"
        for kind, name in (
            (CallKind.PYTHON, "PythonRules"),
            (CallKind.SHELL, "ShellRules"),
            (CallKind.SQL, "SqlRules"),
            (CallKind.EDIT, "EditRules"),
            (CallKind.OTHER, "OtherRules"),
        )
    },
    needs=("tools", "refusal"),
)


def rules_for(call: ToolCall) -> RepairRules:
    """Return the rules that decide about calls like this one: a plug-in's for its tool, else ours for its kind."""
    return _of_tool(call.name) or _of_kind(call.kind)


@cache
def _of_kind(kind: CallKind) -> RepairRules:
    return REPAIR_RULES.load(kind.value)


@cache
def _of_tool(name: str) -> RepairRules | None:
    found = [rules for rules in _others() if any(fnmatchcase(name, pattern) for pattern in rules.tools)]
    if len(found) > 1:
        kinds = " and ".join(type(each).__qualname__ for each in found)
        raise PluginError(f"two sets of repair rules are for the tool {name!r}: {kinds}; uninstall one of them")
    return found[0] if found else None


@cache
def _others() -> list[RepairRules]:
    return [REPAIR_RULES.load(name) for name in REPAIR_RULES.others()]
