"""One line of what `cleaner doctor` says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How it stands with something."""

    OK = "ok"
    LESS = "less"
    """It works, but less well or less safely than it could."""
    MISSING = "missing"
    """Not here, and needed only for what the remedy names."""
    WRONG = "wrong"
    """Asked for, or installed, and it doesn't work: the command ends with 1."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it stands, what was found, and what to do about it."""

    name: str
    state: State
    found: str
    remedy: str = ""
    """Never empty unless all is well."""

    def __post_init__(self) -> None:
        if self.state is not State.OK and not self.remedy:
            raise ValueError(f"{self.name}: say what to do")
