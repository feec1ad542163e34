"""The plug-ins that are installed, whose they are, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cleaner_rl.logs import LOG_ADAPTERS
from cleaner_rl.rollout import TOOLS
from cleaner_rl.tasks import GRADERS
from cleaner_rl.tools import CALL_FORMATS, PluginError, Plugins

KINDS: tuple[Plugins[Any], ...] = (
    CALL_FORMATS,
    GRADERS,
    LOG_ADAPTERS,
    TOOLS,
)
TAKEN = "the name is taken by one of ours, which is used instead; give yours another"


@dataclass(frozen=True, slots=True)
class PluginCheck:
    """Describes one plug-in, and what is wrong with it."""

    group: str
    """Group of entry points, which is the kind of plug-in."""
    name: str
    package: str
    value: str
    """Where it comes from, as `module:attribute`."""
    problem: str = ""
    """What is wrong with it, and what to do; empty if nothing is."""


def check_plugins() -> list[PluginCheck]:
    """Return every installed plug-in; those of other packages are loaded to see whether they can be.

    Tools may need a prompt's options, so they are only listed.

    Examples:
        >>> from cleaner_rl.doctor import check_plugins
        >>> [each.name for each in check_plugins() if each.problem]
        []
    """
    return [
        PluginCheck(kind.group, each.name, each.package, each.value, "" if each.is_ours else _problem(kind, each.name))
        for kind in KINDS
        for each in kind.installed()
    ]


def _problem(kind: Plugins[Any], name: str) -> str:
    if kind is TOOLS:
        return ""
    if name in kind.ours:
        return TAKEN
    try:
        kind.load(name)
    except PluginError as error:
        return str(error)
    return ""
