"""Text inside of turns: a scan of the texts of a store, file by file, whose finds show as they come.

Only the columns of text are read. A text's finds are handed to the index as a table, so that a list filters, sorts and
pages them like anything else, already while the scan goes on. One scan runs at a time: a new text ends the last one's.
Files that are indexed later are added to it, and none is read twice.

Limits: no index of words, so a rare text takes as long as reading all texts of the store. JSONL is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Event, Lock, Thread

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleaner_rl.trajectory.store import read
from cleaner_rl.view.index import Index
from cleaner_rl.view.summary import with_originals

PATIENCE = 0.25
"""Seconds that a list waits for a scan before it shows what there is."""


@dataclass(slots=True)
class Scan:
    """One text, and how far it has been looked for."""

    text: str
    files: set[int] = field(default_factory=set)
    """Numbers in the index of those that it reads, or has read."""
    left: list[tuple[int, Path]] = field(default_factory=list)
    done: int = 0
    hits: list[tuple[int, int]] = field(default_factory=list)
    """(file's number in the index, row)."""
    finished: Event = field(default_factory=Event)
    cancelled: Event = field(default_factory=Event)


class Searcher:
    """Runs scans over an index's files."""

    def __init__(self, index: Index, root: Path) -> None:
        self._index = index
        self._root = root
        self._scan: Scan | None = None
        self._lock = Lock()

    def scan(self, text: str) -> Scan:
        """The scan for a text: the one that runs, or ran last, or a new one. It goes on with what was indexed since."""
        with self._lock:
            if self._scan is None or self._scan.text != text:
                self.stop()
                self._scan = Scan(text)
                self._scan.finished.set()
            scan = self._scan
            if self._extend(scan) and scan.finished.is_set():
                scan.finished.clear()
                Thread(target=self._run, args=(scan,), name="search", daemon=True).start()
        scan.finished.wait(PATIENCE)
        return scan

    def whole(self, text: str) -> Scan:
        """A scan of its own, at its end: no other text ends it before."""
        scan = Scan(text)
        self._extend(scan)
        for number, path in scan.left:
            _read(scan, number, path)
        scan.finished.set()
        return scan

    def stop(self) -> None:
        """End the scan that runs."""
        if self._scan is not None:
            self._scan.cancelled.set()

    def _extend(self, scan: Scan) -> bool:
        """Add the files that it doesn't know yet; whether there are any."""
        found = self._index.rows("SELECT number, name FROM files WHERE problem IS NULL ORDER BY name")
        new = [(row["number"], self._root / row["name"]) for row in found if row["number"] not in scan.files]
        scan.files.update(number for number, _ in new)
        scan.left += new
        return bool(new)

    def _run(self, scan: Scan) -> None:
        while not scan.cancelled.is_set():
            with self._lock:
                if not scan.left:
                    scan.finished.set()
                    return
                number, path = scan.left.pop(0)
            _read(scan, number, path)


def _read(scan: Scan, number: int, path: Path) -> None:
    with suppress(Exception):  # the index tells of files that can't be read
        for row in rows_with(path, scan.text):
            scan.hits.append((number, row))
            if scan.cancelled.is_set():
                return
    scan.done += 1


def rows_with(path: Path, text: str) -> Iterator[int]:
    """The rows of a file in which a text stands: in the prompt, a turn, or a turn that an edit took away."""
    if path.suffix != ".parquet":
        wanted = text.casefold()
        for row, trajectory in enumerate(read(path)):
            turns = (each for turn in trajectory.turns for each in with_originals(turn))
            spans = chain([trajectory.prompt], *(turn.spans() for turn in turns))
            if any(wanted in span.text.casefold() for span in spans):
                yield row
        return
    with pq.ParquetFile(path, memory_map=True) as file:
        leaves = [file.schema.column(place).path for place in range(len(file.schema))]
        texts = [leaf for leaf in leaves if leaf.endswith(".text")]
        start = 0
        for batch in file.iter_batches(256, columns=texts):
            found = np.zeros(len(batch), np.bool_)
            for column in batch.columns:
                _mark(column, text, np.arange(len(batch)), found)
            yield from (start + np.flatnonzero(found)).tolist()
            start += len(batch)


def _mark(column: pa.Array, text: str, owners: np.ndarray, found: np.ndarray) -> None:
    """Set `found` for the owner of each value below a nested column that holds the text."""
    if pa.types.is_struct(column.type):
        for child in column.flatten():
            _mark(child, text, owners, found)
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        _mark(column.flatten(), text, owners[column.value_parent_indices().to_numpy()], found)
    else:
        hits = pc.fill_null(pc.match_substring(column, text, ignore_case=True), False)
        found[owners[hits.to_numpy(zero_copy_only=False)]] = True
