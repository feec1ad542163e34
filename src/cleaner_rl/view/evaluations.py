"""What `cleaner eval` found, as lines of a table.

The results' form is that of `cleaner_rl.evaluate`, format 1: sets of problems, each run without repair, with it, or
both, and figures with their intervals. Any other JSON file beside a store is none of ours, and a large one isn't read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cleaner_rl.tools import read_json
from cleaner_rl.view.detail import Json, plain
from cleaner_rl.view.sources import Sources

FORMAT = 1
LARGEST = 64 * 2**20
"""Bytes of a file that may be an evaluation."""


def evaluations(sources: Sources) -> list[Json]:
    """Every evaluation that was found, by its file."""
    found = []
    for path in sources.evaluations:
        try:
            status = path.stat()
            if status.st_size > LARGEST:
                continue
            evaluation = _evaluation(path, status.st_size, status.st_mtime_ns)
        except OSError:  # a link to nothing, or a file that may not be read
            continue
        if evaluation is not None:
            found.append({"file": path.relative_to(sources.root).as_posix(), **evaluation})
    return found


@cache
def _evaluation(path: Path, size: int, modified: int) -> Json | None:  # noqa: ARG001
    """What a file holds, if it is ours. An overview asks again and again: a file is read anew only if it changed."""
    try:
        record = read_json(path.read_bytes())
        if record["format"] != FORMAT:
            return None
        return {
            "model": record["model"],
            "settings": plain(record["settings"]),
            "figures": list(_figures(record)),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _figures(record: Mapping[str, Any]) -> Iterator[Json]:
    for each in record["sets"]:
        for repair, run in each["runs"].items():
            for figure, estimate in run["figures"].items():
                yield {"set": each["name"], "repair": repair, "figure": figure, **plain(estimate)}
