"""Runs every benchmark in a short form: `python .ci/benchmarks.py slim|engine [NAME ...]`.

Figures of so few rounds mean nothing, so none of them is judged, but for what must hold at any size: no call is lost or
answered wrongly, our batches are those of verl's own loop, and graders are wrong about few labelled answers. The
figures of record are in `benchmarks/results/`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 1_800
SLIM = {
    "core": "--json --trajectories 200",
    "grading": "--json",
    "intervals": "--json --draws 50",
    "log_edits": "--json --set dev",
    "log_judging": "--json",
    "purify_logs": "--json --count 200 --repeats 1 --memory",
    "balance": "--json --seeds 1",
    "similarity": "--json",
    "startup": "--json",
    "thirty": "--check",
    "training_scale": "",
    "view": "--json --trajectories 300 --rounds 1 --folder {place}",
    "sandbox_checkpoint": "--json --cells 20 --rounds 3",
    "sandbox_shell": "--json --rounds 2",
    "sandbox_faults": "--json --calls 800 --kills 8",
    "sandbox_fuzz": "--json --runs 160 --seed 1",
    "sandbox_tenants": "--json --seconds 8 --rounds 1",
    "sandbox_load": "--json --calls 2000 --outstanding 2000 --connections 500 --mixed-calls 100",
}
ENGINE = {
    "sft_logs": "--json --short --regime slips --worlds 1",
    "balance_real": "--json --case two --repeats 1",
    "rollout": "--json --tasks 0 --rollouts 4 --tokens 32",
    "stock": "{world} --json --pairs 2 --prompts 4 --rollouts 2 --turns 8 --alone",
    "rescue": "--json --folder {place}",
    "preflight": "--json --clean 1 --fault 'weights not updated' --folder {place}",
}
MEASURES = {"sandbox_checkpoint"}
"""Their exit status is a judgement of the figures, which a short form doesn't allow."""


def faults(figures: Any) -> Iterator[bool]:
    """No call is lost, doubled or misdirected while slots, servers and nodes are killed, and nothing is left behind."""
    found = figures["faults"]
    yield all(found["kills"].values())
    yield not any(found[name] for name in ("lost", "not_answered", "answered_twice", "wrong"))
    yield (found["right_afterwards"], found["nodes_back"]) == (200, 2)
    yield figures["left_behind"] == {"processes": [], "files": []}


def grading(figures: Any) -> Iterator[bool]:
    """Graders are wrong about few labelled answers, and have no fault."""
    yield figures["false_right"] <= 0.005 * figures["pairs"]
    yield figures["false_wrong"] <= 0.05 * figures["pairs"]
    yield figures["faults"] == 0


def load(figures: Any) -> Iterator[bool]:
    """All calls are answered once, rightly, to their callers; a leak per call would show as memory."""
    loads = [figures["streamed"], figures["connections"], *figures["mixed"].values()]
    yield [each["answered"] for each in loads] == [2000, 500, 100, 100, 100]
    yield not any(each["wrong"] or each["faults"] for each in loads)
    memory = figures["streamed"]["front_mb"]
    yield memory["after_64"] - memory["warm"] < 32


def preflight(figures: Any) -> Iterator[bool]:
    """A fault is found by its name, and a run without one is green."""
    yield figures["faults_found"] == len(figures["faults"])
    yield figures["clean_green"] == figures["clean"]


def rescue(figures: Any) -> Iterator[bool]:
    """What reaches the update is what the store holds, to the bit where nothing is computed in between."""
    yield figures["rows_in_update"] == figures["rows_in_store"]
    yield not any(figures[name] for name in ("rows_missing", "rows_unknown", "masks_that_differ"))
    yield figures["stored_logprobs_apart"] == 0.0
    yield max(figures["advantages_apart"], figures["actor_logprobs_apart"]) < 1e-4


def stock(figures: Any) -> Iterator[bool]:
    """With repair off, our batches are verl's own: the same ids, masks and rewards."""
    yield figures["rows"] == figures["rows_of_ours"] == figures["equal_rows"] == 2 * 4 * 2
    yield figures["with_calls"] > 0


def tenants(figures: Any) -> Iterator[bool]:
    """A hostile tenant costs its neighbour time, and no session and no result."""
    yield not any(figures[name] for name in ("evicted_across", "lost", "wrong"))


CHECKS: dict[str, Callable[[Any], Iterator[bool]]] = {
    "grading": grading,
    "preflight": preflight,
    "rescue": rescue,
    "sandbox_faults": faults,
    "sandbox_load": load,
    "sandbox_tenants": tenants,
    "stock": stock,
}


def run(name: str, options: str, place: Path) -> None:
    """Run one, and exit with its output if it fails or breaks its promise."""
    given = shlex.split(options.format(place=place / name, world=place))
    command = [sys.executable, "-m", f"benchmarks.{name}", *given]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    kept = True
    if name in CHECKS and not done.returncode:
        kept = all(CHECKS[name](json.loads(done.stdout.splitlines()[-1])))
    if not kept or (done.returncode and name not in MEASURES):
        sys.exit(f"{name}: ended with {done.returncode}\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}")
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)  # noqa: T201


def main() -> None:
    """Run those of one environment, or those of them that are named."""
    which, *names = sys.argv[1:]
    benchmarks = {"slim": SLIM, "engine": ENGINE}[which]
    # Not below /tmp: sandboxed programs have their own.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        place = Path(made)
        if which == "engine" and (not names or "stock" in names):
            sys.path.insert(0, str(ROOT))
            from benchmarks.toy.smallest import make

            make(place)
        for name in names or benchmarks:
            run(name, benchmarks[name], place)


if __name__ == "__main__":
    main()
