"""Plug-ins: what other installed packages add to ours, found by entry points. Our own are found the same way.

`importlib.metadata` is loaded when it is first used: it takes longer to import than all of this package's own modules.
"""

from __future__ import annotations


def plugin_names(group: str) -> list[str]:
    """The names in a group of entry points."""
    from importlib.metadata import entry_points

    return sorted({entry.name for entry in entry_points(group=group)})


def plugin(group: str, name: str) -> object | None:
    """What stands behind a name in a group; None if nothing does."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=name):
        found: object = entry.load()
        return found
    return None
