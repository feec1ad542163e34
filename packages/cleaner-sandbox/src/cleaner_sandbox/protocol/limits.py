"""What one call may use, and how a node holds it to its own maxima."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds what one call, or one cell of a session, may use: a run ends at the first limit that it hits.

    Examples:
        >>> from cleaner_sandbox import Limits
        >>> asked = Limits(cpu_seconds=20.0, memory_mb=256)
        >>> asked.clipped(Limits(cpu_seconds=5.0)).cpu_seconds
        5.0
    """

    cpu_seconds: float = 10.0
    """User and system time of the whole process tree. This is the time limit that programs are meant to run into."""
    wall_seconds: float = 30.0
    """For programs that sleep or block. Time spent runnable but waiting for a CPU isn't counted, so that a busy machine
    doesn't change the verdict."""
    memory_mb: int = 512
    """Of the whole process tree, beyond what the preloaded interpreter itself holds. One process that asks for more
    gets a `MemoryError`; a tree that holds more is stopped."""
    processes: int = 32
    """Processes and threads at once. Tier 1 allows threads only."""
    disk_mb: int = 64
    """All files of the run together (tier 2 and up), and any single one of them (tier 1)."""
    files: int = 1024
    """Files and folders of the run (tier 2 and up)."""
    open_files: int = 256
    """Descriptors that each process may have at once. A session needs 10."""
    output_bytes: int = 1_048_576
    """What may be written to stdout, and as much again to stderr; a run that writes more is stopped."""

    def __post_init__(self) -> None:
        for item in fields(self):
            if not 0 < getattr(self, item.name) < math.inf:
                raise ValueError(f"the limit {item.name} must be positive and finite, not {getattr(self, item.name)}")

    def above(self, maxima: Limits) -> tuple[str, ...]:
        """Return the names of the limits that ask for more than `maxima` allow."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name) > getattr(maxima, item.name))

    def raised(self, limits: Limits) -> Limits:
        """Return these maxima, each raised to what `limits` ask for."""
        return replace(self, **{name: getattr(limits, name) for name in limits.above(self)})

    def clipped(self, maxima: Limits) -> Limits:
        """Return these limits, none above `maxima`."""
        return replace(self, **{name: getattr(maxima, name) for name in self.above(maxima)})
