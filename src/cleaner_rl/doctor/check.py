"""The result of one check: a line of `cleaner doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Says in which state something is."""

    OK = "ok"
    LESS = "less"
    """It works, but less well or less safely than it could."""
    MISSING = "missing"
    """Not installed or not possible here, and needed only for what the remedy names."""
    WRONG = "wrong"
    """Asked for, or installed, and it doesn't work: `cleaner doctor` ends with 1."""


@dataclass(frozen=True, slots=True)
class Check:
    """Says what was checked, in which state it is, what was found, and what to do about it."""

    name: str
    state: State
    found: str
    remedy: str = ""
    """What to do; never empty unless the state is OK."""

    def __post_init__(self) -> None:
        if self.state is not State.OK and not self.remedy:
            raise ValueError(f"the check of {self.name} lacks a remedy: say what to do")
