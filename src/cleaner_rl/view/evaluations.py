"""What `cleaner eval` found, as lines of a table.

The results' form is that of `cleaner_rl.evaluate`, format 1: sets of problems, each run without repair, with it, or
both, and figures with their intervals. Any other JSON file beside a store is none of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cleaner_rl.view.detail import Json, plain
from cleaner_rl.view.sources import Sources

FORMAT = 1


def evaluations(sources: Sources) -> list[Json]:
    """Every evaluation that was found, by its file."""
    found = []
    for path in sources.evaluations:
        try:
            record = json.loads(path.read_bytes())
            if isinstance(record, dict) and record.get("format") == FORMAT and "sets" in record:
                about = {"file": path.relative_to(sources.root).as_posix(), "model": record["model"]}
                found.append(about | {"settings": plain(record["settings"]), "figures": list(_figures(record))})
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _figures(record: Mapping[str, Any]) -> Iterator[Json]:
    for each in record["sets"]:
        for repair, arm in each["arms"].items():
            for figure, estimate in arm["figures"].items():
                yield {"set": each["name"], "repair": repair, "figure": figure, **plain(estimate)}
