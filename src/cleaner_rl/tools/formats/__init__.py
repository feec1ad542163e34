"""Formats of calls in a model's text, as plug-ins: text in, calls with their character positions out.

A format never gives up silently. Whatever opens like a call is one; if it can't be run it carries a problem that tells
the model what to write instead. Other packages add formats with an entry point in the group
`cleaner_rl.call_formats`. Where there are no tools, the format `none` reads no calls at all.
"""

from __future__ import annotations

from cleaner_rl.tools.formats.base import CallFormat, NoCalls, ParsedText
from cleaner_rl.tools.plugins import Plugins

CALL_FORMATS: Plugins[CallFormat] = Plugins(
    group="cleaner_rl.call_formats",
    what="call format",
    ours={
        "fenced": "cleaner_rl.tools.formats.fenced:FencedFormat",
        "hermes": "cleaner_rl.tools.formats.json_calls:hermes",
        "deepseek": "cleaner_rl.tools.formats.json_calls:deepseek",
        "glm": "cleaner_rl.tools.formats.glm:GlmFormat",
        "harmony": "cleaner_rl.tools.formats.json_calls:harmony",
        "llama": "cleaner_rl.tools.formats.json_calls:llama",
        "xml": "cleaner_rl.tools.formats.xml:XmlFormat",
    },
    needs=("parse",),
)
NO_CALLS = "none"

__all__ = ["CALL_FORMATS", "NO_CALLS", "CallFormat", "ParsedText", "call_format", "call_format_names"]


def call_format_names() -> list[str]:
    """Return the names that `call_format` knows, ours and those of other installed packages."""
    return CALL_FORMATS.names()


def call_format(name: str) -> CallFormat:
    """Return the call format of this name."""
    return NoCalls() if name == NO_CALLS else CALL_FORMATS.load(name)
