"""Stands for `benchmarks.lab.child` and for verl behind it: leaves what a run leaves, in no time.

`CHILD_FAILS_AT` names a step at which it dies the first time it comes there, and `CHILD_WAITS_AT` one at which it waits
to be interrupted. Both are left out once the file beside the run's folder says that they happened.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path


def train(recipe: dict[str, object]) -> None:
    run, verl = recipe["run"], recipe["verl"]
    assert isinstance(run, dict)
    assert isinstance(verl, dict)
    folder = Path(str(run["folder"])) / str(recipe["name"])
    latest = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    begin = int(latest.read_text()) if latest.exists() else 0
    if verl.get("trainer.val_before_train", True):
        evaluate(folder, begin)
    with Path(os.environ["VERL_FILE_LOGGER_PATH"]).open("w") as log:
        for step in range(begin + 1, run["steps"] + 1):
            once(folder, "CHILD_FAILS_AT", step, lambda: sys.exit(1))
            with (folder / "metrics.jsonl").open("a") as metrics:
                figures = {"sampled_tokens": 100.0, "first_attempt_errors_per_trajectory": 0.5}
                metrics.write(json.dumps({"step": step, "metrics": figures}) + "\n")
            log.write(json.dumps({"step": step, "data": {"timing_s/step": 2.0, "timing_s/gen": 1.0}}) + "\n")
            log.flush()
            once(folder, "CHILD_WAITS_AT", step, lambda: time.sleep(60))
            if step % verl["trainer.save_freq"] == 0 or step == run["steps"]:
                (folder / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface").mkdir(parents=True)
                (folder / "checkpoints" / f"global_step_{step}" / "actor" / "model.pt").touch()
                latest.write_text(str(step))
            if step % verl["trainer.test_freq"] == 0 or step == run["steps"]:
                evaluate(folder, step)


def evaluate(folder: Path, step: int) -> None:
    from cleaner_rl.trajectory import Key, Phase, RolloutInfo, StopReason
    from cleaner_rl.trajectory.store import ParquetWriter
    from tests.builders import answered, failed, trajectory, worked

    with ParquetWriter(folder / "trajectories") as writer:
        for number, turns in enumerate([(failed(), worked(), answered()), (worked(), answered())]):
            one = trajectory(*turns, success=bool(number))
            key = Key(folder.name, step, f"task-{number}", 0, Phase.EVALUATION)
            writer.write(replace(one, key=key, stop_reason=StopReason.ANSWERED, info=RolloutInfo(sampled=30)))


def once(folder: Path, variable: str, step: int, happens: Callable[[], object]) -> None:
    happened = folder / variable
    if os.environ.get(variable) == str(step) and not happened.exists():
        happened.touch()
        happens()


def main() -> None:
    _parent, what, *arguments = sys.argv[1:]
    if what == "train":
        train(json.loads(Path(arguments[0]).read_text()))
    elif what == "recovery":
        (Path(arguments[2]) / "recovery.json").write_text(json.dumps({"0": {"right": 0.5}}))


main()
