"""Describes what a preflight found: one finding per question, each with its figures and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """How a question was answered."""

    OK = "ok"
    WARNING = "warning"
    """The run can start, but read this first."""
    FAILED = "failed"
    """Don't start the run before this is changed."""
    SKIPPED = "skipped"
    """The question doesn't arise, or could not be asked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question of a preflight.

    Examples:
        >>> from cleaner_rl.train import Verdict
        >>> from cleaner_rl.train.preflight import Finding
        >>> Finding("disk", Verdict.FAILED, "Room for 2 of 3 checkpoints.", "Keep two.").verdict
        <Verdict.FAILED: 'failed'>
    """

    name: str
    verdict: Verdict
    words: str
    """What was found, as a sentence."""
    change: str = ""
    """What to change; empty if nothing."""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Preflight:
    """All findings of a preflight."""

    recipe: str
    folder: str
    findings: Sequence[Finding]

    @property
    def verdict(self) -> Verdict:
        """Return the worst of the findings' verdicts."""
        found = {each.verdict for each in self.findings}
        return next((each for each in (Verdict.FAILED, Verdict.WARNING) if each in found), Verdict.OK)
