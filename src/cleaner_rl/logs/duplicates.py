"""Takes rows out of the files of an output that an earlier file has too; a unit of work knows only its own.

A row is known by its `id`, which says what it teaches. Files are rewritten one by one and each as a whole, and doing it
twice changes nothing, so a run can be killed here too. Memory: some 100 bytes for each row."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.logs.places import below, find, open_file, put, remove
from cleaner_rl.logs.trainers import ID

ID_DIGITS = 16
LINE_START = f'{{"{ID}": "'.encode()
"""What each line of JSON begins with; its id follows."""


def leave_out_duplicates(out: str, folder: str = "sft") -> int:
    """Take out the rows of a folder of an output that were there before, and return how many are left."""
    try:
        files = [each for each in find(below(out, folder)) if each.name.startswith("part-")]
    except FileNotFoundError:
        return 0
    seen: set[str] = set()
    left = 0
    for each in files:
        ids = list(_ids(each.uri))
        fresh = [not (known in seen or seen.add(known)) for known in ids]  # type: ignore[func-returns-value]
        left += sum(fresh)
        if not any(fresh):
            remove(each.uri)  # some readers refuse a file without rows
        elif not all(fresh):
            with tempfile.TemporaryDirectory(dir=Path(out) if "://" not in out else None, prefix=".") as made:
                file = Path(made) / each.name
                _rewrite(each.uri, file, fresh)
                put(file, each.uri)
    return left


def _is_lines(uri: str) -> bool:
    return uri.partition("?")[0].endswith(".jsonl")


def _ids(uri: str) -> Iterator[str]:
    with closing(open_file(uri)) as file:
        if _is_lines(uri):
            start = len(LINE_START)
            yield from (line[start : start + ID_DIGITS].decode() for line in file)
        else:
            yield from pq.read_table(file, columns=[ID])[ID].to_pylist()


def _rewrite(uri: str, file: Path, kept: list[bool]) -> None:
    with closing(open_file(uri)) as source:
        if _is_lines(uri):
            with file.open("wb") as target:
                target.writelines(line for line, fresh in zip(source, kept, strict=True) if fresh)
        else:
            pq.write_table(pq.read_table(source).filter(pa.array(kept)), file, compression="zstd")
