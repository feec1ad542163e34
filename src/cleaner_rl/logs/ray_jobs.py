"""Runs the units of a plan on many machines, by Ray Data (`cleaner purify --ray`).

A unit is a row of a data set, and its summary comes back; logs and results go between the workers and the object store
and never through this process. A machine that dies costs the units it had: Ray runs them again, and they write the
same parts.

Every machine needs `cleaner-rl` installed, and must reach the places of the logs and of the results by the same names.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from cleaner_rl.logs.containers import PurifyError
from cleaner_rl.logs.jobs import UnitTask, do
from cleaner_rl.logs.summary import PurifySummary


class RayError(PurifyError):
    """Ray is not installed, or its cluster can't be reached."""


def run_on_ray(tasks: Sequence[UnitTask], done: Callable[[PurifySummary], None]) -> None:
    """Do the tasks on a Ray cluster, or on one that is started for this. Raises `RayError` if there is none."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise RayError("Ray is not installed here: pip install 'ray[data]'") from None
    if not tasks:
        return
    try:
        started = not ray.is_initialized() and bool(ray.init(logging_level="ERROR"))
    except ConnectionError as error:
        raise RayError(f"the Ray cluster can't be reached: {error}; check RAY_ADDRESS") from None
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        rows = [{"task": pickle.dumps(task)} for task in tasks]
        # A block each, so that a slow unit holds up no other.
        data = ray.data.from_items(rows, override_num_blocks=len(rows)).map(_do)
        for row in data.iter_rows():
            done(PurifySummary.from_json(json.loads(row["summary"])))
    finally:
        if started:
            ray.shutdown()


def _do(row: dict[str, Any]) -> dict[str, str]:
    return {"summary": json.dumps(do(pickle.loads(row["task"])).to_json())}
