"""What a program has printed so far, read while it runs.

A run writes its output into files in memory, and the node reads these when the run has ended: that decides the result.
A preview reads the same files earlier, and decides nothing. It holds no text, and a program neither waits for whoever
reads it nor notices that there is one.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Sequence
from typing import Final

from cleaner_sandbox.node.zygotes import close_all
from cleaner_sandbox.protocol.requests import OutputStream, OutputText

STEP: Final = 65_536
"""Bytes of each stream that are read at once."""


class OutputPreview:
    """Reads what a program has printed so far: give it to `Node.run` or `Session.run`, and call `read` meanwhile.

    The texts that it returns are together the beginning of the result's `output` and `stderr`, unless the program
    changes what it has printed or its call had to be run again (`RunOutcome.attempts`). What is printed last is in the
    result only.

    Examples:
        >>> import asyncio
        >>> from cleaner_sandbox import BARE, Node, NodeConfig, OutputPreview, RunRequest
        >>> async def main() -> str:
        ...     preview = OutputPreview()
        ...     async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        ...         running = asyncio.create_task(node.run(RunRequest("print('begun')\\nwhile True: pass"), preview))
        ...         while not (texts := preview.read()):
        ...             await asyncio.sleep(0.01)
        ...         running.cancel()
        ...         return texts[0].text
        >>> asyncio.run(main())
        'begun\\n'
    """

    def __init__(self) -> None:
        self._streams: list[_Stream] = []
        self._used = False

    def read(self) -> list[OutputText]:
        """Return what was printed since the last time."""
        return [OutputText(stream.name, text) for stream in self._streams if (text := stream.read())]

    def taker(self, output_bytes: int, keep_chars: int) -> Callable[[Sequence[int]], None]:
        """Return what takes the files of a run over, and reads none of a run that is the second attempt."""

        def take(descriptors: Sequence[int]) -> None:
            if self._used:
                close_all(descriptors)
                return
            self._used = True
            streams = zip((OutputStream.STDOUT, OutputStream.STDERR), descriptors, strict=True)
            self._streams = [_Stream(name, descriptor, output_bytes, keep_chars) for name, descriptor in streams]

        return take

    def close(self) -> None:
        """Read no more."""
        close_all(stream.descriptor for stream in self._streams)
        self._streams = []


class _Stream:
    def __init__(self, name: OutputStream, descriptor: int, bytes_left: int, chars_left: int) -> None:
        self.name, self.descriptor = name, descriptor
        self._bytes_left, self._chars_left = bytes_left, chars_left
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> str:
        most = min(STEP, self._bytes_left) if self._chars_left else 0
        data = os.pread(self.descriptor, most, self._position)
        self._position += len(data)
        self._bytes_left -= len(data)
        text = self._decoder.decode(data)[: self._chars_left]
        self._chars_left -= len(text)
        return text
