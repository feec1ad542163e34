from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cleaner_rl.tasks import Message, Task, load_prompt, read_verl, write_verl
from cleaner_rl.train.recipe.settings import StageSettings
from cleaner_rl.train.recipe.stages import PassRate, filtered, pass_rates
from cleaner_rl.trajectory import Key, Phase, StopReason
from cleaner_rl.trajectory.store import ParquetWriter
from tests.builders import answered, trajectory

TASKS = [Task(f"t/{number}", (Message("user", "?"),), "math", "1") for number in range(4)]
HARD = StageSettings("hard", steps=1, max_pass_rate=0.99)


def test_rates_are_those_of_what_was_drawn_in_training(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path) as writer:
        for number, (phase, success, stop_reason) in enumerate(
            [
                (Phase.TRAINING, True, StopReason.ANSWERED),
                (Phase.TRAINING, False, StopReason.ANSWERED),
                (Phase.TRAINING, None, StopReason.FAULT),
                (Phase.EVALUATION, True, StopReason.ANSWERED),
            ]
        ):
            one = trajectory(answered(), success=success)
            writer.write(replace(one, key=Key("a", 1, "t/0", number, phase), stop_reason=stop_reason))

    assert pass_rates(tmp_path) == {"t/0": PassRate(1, 2)}


def test_a_stage_leaves_out_what_was_always_solved_and_keeps_what_was_never_drawn(tmp_path: Path) -> None:
    write_verl(tmp_path / "all.parquet", TASKS, load_prompt("stateless"), "cleaner")
    rates = {"t/0": PassRate(8, 8), "t/1": PassRate(7, 8), "t/2": PassRate(0, 8)}

    (file,) = filtered([str(tmp_path / "all.parquet")], rates, HARD, tmp_path / "stage")

    assert [task.id for task in read_verl(file)] == ["t/1", "t/2", "t/3"]
