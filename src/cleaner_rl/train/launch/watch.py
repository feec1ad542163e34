"""Says how a run is doing while verl runs: a table with one line per step, and a line while nothing else is said.

verl's own output goes to a file. The figures are read from the file that verl's logger `file` appends to after each
step, so that they are those of a finished step.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Tell = Callable[[str], None]
"""Takes one line for the person who started the run."""

QUIET_SECONDS = 30.0
"""How long nothing is said while verl starts."""
TAIL_LINES, LINE_CHARACTERS = 25, 400
"""What is shown of the output of a verl that failed."""
HEADER_EVERY = 20
"""Steps after which the table's header is repeated."""
_COLUMNS = (
    ("step", 9),
    ("reward", 8),
    ("accuracy", 10),
    ("failed calls", 14),
    ("repaired", 10),
    ("zero-variance", 15),
    ("tokens", 11),
    ("seconds", 9),
    ("faults", 8),
    ("time left", 11),
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(slots=True)
class Watch:
    """Follows one start of verl by the file of its metrics."""

    metrics: Path
    """The file of verl's logger."""
    tell: Tell
    evaluated: Callable[[], str | None] = lambda: None
    """Called after each evaluation; what it returns is said."""
    steps: int = 0
    """Steps of the whole run; 0 if unknown."""
    _read: int = 0
    _lines: int = 0
    _said: float = 0.0
    _begun: float = 0.0
    _last: tuple[int, float] | None = None
    _first: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        self._said = self._begun = time.monotonic()

    def poll(self) -> None:
        """Say what is new."""
        for step, figures in self._new():
            if "cleaner/sampled_tokens" in figures:
                self._step(step, figures)
            elif "train/loss" in figures:
                self._last = (step, figures["train/loss"])
            if any(name.startswith("val-") for name in figures):
                self._evaluated()
        now = time.monotonic()
        if now - self._said > QUIET_SECONDS and self._first is None:
            minutes, seconds = divmod(int(now - self._begun), 60)
            doing = "the first step is under way" if self._read else "verl is starting"
            if self._last is not None:
                doing = f"step {self._last[0]}, loss {self._last[1]:.3f}"
            self._say(f"  {minutes}:{seconds:02}  {doing}")

    def _evaluated(self) -> None:
        try:
            text = self.evaluated()
        except Exception as error:  # the caller's own; a report that fails must not end a run of days
            text = f"What follows an evaluation failed: {type(error).__name__}: {error}"
        if text:
            self._say(text)

    def _new(self) -> Sequence[tuple[int, Mapping[str, float]]]:
        """Return the whole lines that were appended since the last call."""
        if not self.metrics.exists():
            return []
        with self.metrics.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        return [(line["step"], line["data"]) for line in lines]

    def _step(self, step: int, figures: Mapping[str, float]) -> None:
        now = time.monotonic()
        if self._lines % HEADER_EVERY == 0:
            self._say("".join(name.rjust(width) for name, width in _COLUMNS))
        self._lines += 1
        seconds = figures.get("timing_s/step", 0.0)
        if self._first is None:
            self._first = (step, now)
        done, per_step = step - self._first[0], seconds
        if done:
            per_step = (now - self._first[1]) / done
        left = duration(per_step * (self.steps - step)) if self.steps else ""
        self._say(step_line(step, self.steps, figures, seconds, left))

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        self.tell(line)


def step_line(step: int, steps: int, figures: Mapping[str, float], seconds: float, left: str) -> str:
    """Return a step's line of the table; a figure that the step doesn't have is a dash."""

    def shown(name: str, form: str) -> str:
        value = figures.get(f"cleaner/{name}")
        return "–" if value is None else format(value, form)

    cells = (
        f"{step}/{steps}" if steps else str(step),
        shown("reward", "+.2f"),
        shown("accuracy", ".1%"),
        shown("first_attempt_errors_per_trajectory", ".2f"),
        shown("repaired", ".1%"),
        shown("zero_variance_groups", ".0f"),
        shown("sampled_tokens", ",.0f"),
        f"{seconds:.1f}",
        shown("faults", ".0f"),
        left,
    )
    return "".join(cell.rjust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True))


def duration(seconds: float) -> str:
    """Return a time in the two largest units that it has."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes < 48 * 60
        else f"{minutes // 1440} d {minutes % 1440 // 60} h"
    )


def tail(log: Path) -> str:
    """Return the last lines of verl's output, without colours."""
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - (1 << 16)))
        text = _COLOUR.sub("", file.read().decode(errors="replace"))
    lines = [line.rstrip()[:LINE_CHARACTERS] for line in re.split(r"[\r\n]+", text) if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])
