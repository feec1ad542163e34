"""What a record of a log means, one short file a source: record to trajectory, and back.

Other packages add formats with an entry point in the group `cleaner_rl.log_adapters`: a class with the methods of
`LogFormat`, made without arguments.
"""

from __future__ import annotations

from functools import cache
from typing import cast

from cleaner_rl.purify.logs.formats.base import LogFormat, Reading
from cleaner_rl.tools.plugins import plugin, plugin_names

GROUP = "cleaner_rl.log_adapters"
OURS = ("atif", "inspect", "verifiers", "verl", "openai")
"""In the order in which a record is shown to them: those that ask for most come first."""

__all__ = ["LogFormat", "Reading", "detect", "log_format", "log_format_names"]


def log_format_names() -> list[str]:
    """The names that `log_format` knows, ours and those of other installed packages."""
    return sorted({*OURS, *plugin_names(GROUP)})


@cache
def log_format(name: str) -> LogFormat:
    """The format of this name."""
    found = plugin(GROUP, name)
    if found is None:
        raise ValueError(f"no log format is named {name!r}; installed: {', '.join(log_format_names())}")
    return cast("type[LogFormat]", found)()


def detect(record: object) -> str | None:
    """The name of the format that a record is of; None if nobody knows it. Those of other packages are asked first."""
    others = [name for name in plugin_names(GROUP) if name not in OURS]
    return next((name for name in (*others, *OURS) if log_format(name).detects(record)), None)
