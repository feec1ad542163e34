"""Why a failed call may not be replaced by a later one."""

from __future__ import annotations

from enum import StrEnum


class Unwarranted(StrEnum):
    """Says what is not shown of a failed call and its correction."""

    OTHER_PURPOSE = "other_purpose"
    """The later call does something else, or does it to something else."""
    CHANGED = "changed"
    """The failed call may have changed something before it failed, and the correction doesn't do that again."""
    FINDING = "finding"
    """The failure is a result: a test that fails, a search without a match, a bug that was reproduced."""
    DENIED = "denied"
    """A person, a policy or a limit stopped the call."""
    BYPASS = "bypass"
    """The later call gets around a safeguard that the failed one respected."""
    UNREADABLE = "unreadable"
    """One of the two can't be parsed, so nothing can be shown."""
