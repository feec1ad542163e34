"""The whole way through the real stack: a taught model, the sandbox, vLLM, verl, and what a run leaves.

A cut of `recipes/tiny-cpu.yaml`. It takes a taught world, which takes minutes to make: without `$TAUGHT` it is skipped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from cleaner_rl.trajectory import TokenSpan, Trajectory
from cleaner_rl.trajectory.store import read
from tests.engine.train.exactness import differences

RECIPE = Path(__file__).parents[3] / "recipes" / "tiny-cpu.yaml"
STEPS = 5
SECONDS = 1_500
"""A run takes one or two minutes on a quiet machine of two cores; imports in a dozen processes are most of it."""
ROLLOUTS = {"cleaner+roc": 8, "hindsight": 4}
"""Drawn of a prompt; 4 are kept."""
CUT = ("run.steps=5", "run.save_every=5", "run.evaluate_every=0", "batch.prompts=4", "batch.mini_batch=4")


@pytest.fixture(scope="module")
def world() -> Path:
    folder = os.environ.get("TAUGHT")
    if not folder:
        pytest.skip(
            "needs a model that was taught for minutes: export TAUGHT=$(python -m benchmarks.taught make drift)"
        )
    return Path(folder)


def cleaner_train(world: Path, folder: Path, settings: Sequence[str]) -> None:
    arguments = [f"--set={each}" for each in (*CUT, f"run.folder={folder}", *settings)]
    program = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "train", str(RECIPE), *arguments]
    variables = {**os.environ, "TAUGHT": str(world), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(program, env=variables, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
        log.seek(0)
        assert code == 0, log.read()[-5_000:]


def drawn(run: Path, step: int) -> list[Trajectory[TokenSpan]]:
    found = [each for each in read(run / "trajectories") if each.key.run == run.name and each.key.step == step]
    assert all(isinstance(each.prompt, TokenSpan) for each in found)
    return found  # type: ignore[return-value]


@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.parametrize("method", ["cleaner+roc", "hindsight"])
def test_a_run_trains_on_exact_clean_trajectories(world: Path, tmp_path: Path, method: str) -> None:
    cleaner_train(world, tmp_path, [f"method={method}", "cold_start=null", "batch.rollouts=4", "roc.sample=8"])

    run = tmp_path / "tiny-cpu"
    first = drawn(run, 1)
    far = differences(world / "model", first)
    # What the trainer was given is what the actor says, to rounding; without re-scoring it wouldn't have been.
    assert far.moved_tokens > 0
    assert far.clean < 3e-5
    assert far.moved_as_sampled > 1_000 * far.clean
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    kept = [each for each in first if each.extra["roc"]["kept"]]  # type: ignore[index]
    assert (len(kept), len(first)) == (4 * 4, 4 * ROLLOUTS[method])
    assert (run / "checkpoints" / f"global_step_{STEPS}" / "actor" / "huggingface").is_dir()
