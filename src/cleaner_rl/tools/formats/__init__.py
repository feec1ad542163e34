"""How calls stand in a model's text, as plug-ins: text in, calls with their character positions out.

A format never gives up silently. Whatever opens like a call is one; if it can't be run it carries a problem that tells
the model what to write instead. Other packages add formats with an entry point in the group
`cleaner_rl.call_formats`. Where there are no tools, the name `none` stands for reading no calls at all.
"""

from __future__ import annotations

from typing import cast

from cleaner_rl.tools.formats.base import CallFormat, NoCalls, ParsedText
from cleaner_rl.tools.plugins import plugin, plugin_names

GROUP = "cleaner_rl.call_formats"
NO_CALLS = "none"

__all__ = ["NO_CALLS", "CallFormat", "ParsedText", "call_format", "call_format_names"]


def call_format_names() -> list[str]:
    """The names that `call_format` knows, ours and those of other installed packages."""
    return plugin_names(GROUP)


def call_format(name: str) -> CallFormat:
    """The call format of this name."""
    if name == NO_CALLS:
        return NoCalls()
    found = plugin(GROUP, name)
    if found is None:
        raise ValueError(f"no call format is named {name!r}; installed: {', '.join(call_format_names())}")
    return cast("type[CallFormat]", found)()
