"""How far a command is: a bar on a terminal, else a line now and then, so that a log shows it too."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import click

EVERY_SHARE = 0.05
EVERY_SECONDS = 60.0

Update = Callable[[int, str], None]
"""(how many are done, a note on them)"""


@asynccontextmanager
async def progress(label: str, length: int) -> AsyncIterator[Update]:
    """Show how many of `length` are done, on stderr; without a terminal one line per 5 % and per minute."""
    if not sys.stderr.isatty():
        lines = Lines(label, length)
        lines.show()
        ticking = asyncio.create_task(lines.tick())
        try:
            yield lines.update
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
        return
    with click.progressbar(length=length, label=label, file=sys.stderr, item_show_func=lambda note: note) as bar:
        yield lambda done, note: bar.update(done - bar.pos, note)


class Lines:
    """Progress as lines of text."""

    def __init__(self, label: str, length: int) -> None:
        self._label, self._length = label, length
        self._done, self._note, self._shown = 0, "", 0.0
        self._begun = self._last = time.monotonic()

    def update(self, done: int, note: str) -> None:
        """Take in how many are done; a line is written for every 5 % of them."""
        self._done, self._note = done, note
        share = done / max(1, self._length)
        if share >= self._shown + EVERY_SHARE or done == self._length:
            self._shown = share - share % EVERY_SHARE
            self.show()

    def show(self) -> None:
        """Write a line."""
        self._last = time.monotonic()
        seconds = self._last - self._begun
        parts = [f"{self._done:,} of {self._length:,}", f"{seconds / 60:.1f} min", *filter(None, [self._note])]
        click.echo(f"{self._label}: {', '.join(parts)}", err=True)

    async def tick(self) -> None:
        """Write a line when a minute has passed without one: a slow run isn't a dead one."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            if time.monotonic() - self._last >= EVERY_SECONDS:
                self.show()
