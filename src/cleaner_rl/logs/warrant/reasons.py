"""Why a failed call may not be replaced by a later one."""

from __future__ import annotations

from enum import StrEnum


class Unwarranted(StrEnum):
    """Says what is not shown of a failed call and its correction. `words` says it for people."""

    OTHER_PURPOSE = "other_purpose"
    """The later call does something else, or does it to something else."""
    DISSIMILAR = "dissimilar"
    """The two are less similar than `RepairConfig.min_similarity`."""
    CHANGED = "changed"
    """The failed call may have changed something before it failed, and the correction doesn't do that again."""
    FINDING = "finding"
    """The failure is a result: a test that fails, a search without a match, a bug that was reproduced."""
    DENIED = "denied"
    """A person, a policy or a limit stopped the call."""
    BYPASS = "bypass"
    """The later call gets around a safeguard that the failed one respected."""
    MENTIONED = "mentioned"
    """What the agent says or writes later refers to the failure."""
    UNREADABLE = "unreadable"
    """One of the two can't be parsed, so nothing can be shown."""

    @property
    def words(self) -> str:
        """What the reason means, as the end of a sentence that begins with "left alone because"."""
        return _WORDS[self]


_WORDS = {
    Unwarranted.OTHER_PURPOSE: "the later call does something else, or does it to something else",
    Unwarranted.DISSIMILAR: "the later call is too different to be a correction",
    Unwarranted.CHANGED: "the failed call may have changed something that the later one doesn't do again",
    Unwarranted.FINDING: "the failure is a result, such as a failing test or a search without a match",
    Unwarranted.DENIED: "a person, a policy or a limit stopped the call",
    Unwarranted.BYPASS: "the later call gets around a safeguard",
    Unwarranted.MENTIONED: "a later text of the agent, such as its answer or a note, refers to the failure",
    Unwarranted.UNREADABLE: "one of the two calls can't be parsed",
}
