"""Wrong settings, as a new user makes them: a dry run says what is wrong and what to do, before anything is loaded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main

RECIPES = Path(__file__).parents[2] / "recipes"
SECONDS = 10
"""CPU time. Nothing is started, so most of it is imports."""
ACTOR, ROLLOUT = "verl.actor_rollout_ref.actor", "verl.actor_rollout_ref.rollout"

WRONG = {
    "a key misspelt": (["batch.promts=64"], "batch.prompts"),
    "a text for a number": (["batch.prompts=many"], "batch.prompts"),
    "a method misspelt": (["method=two-view"], "two-views"),
    "a grader that isn't there": (
        ["tasks.graders={answer: 1.0, fromat: 0.1}"],
        "there is no grader 'fromat' to weight",
    ),
    "a weight without end": (["tasks.graders={answer: .inf}"], "the weight of grader 'answer' is inf"),
    "a prompt misspelt": (["tasks.prompt=statless"], "tasks.prompt is 'statless'"),
    "a logger that verl hasn't": (["verl.trainer.logger=[console, wandbb]"], "names 'wandbb'"),
    "dynamic batches too small": (
        [f"{ACTOR}.use_dynamic_bsz=true", f"{ACTOR}.ppo_max_token_len_per_gpu=16384"],
        "set at least 23040",
    ),
    "devices that can't share a sequence": (
        [f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=3"],
        "is 3, which doesn't divide the 4 devices",
    ),
    "a mini-batch that can't be cut": (["verl.trainer.n_gpus_per_node=3"], "which 3 devices can't compute"),
    "replicas that can't be cut": ([f"{ROLLOUT}.tensor_model_parallel_size=3"], "take 1 or 2 or 4"),
    "an engine misspelt": ([f"{ROLLOUT}.name=vlm"], "it can be vllm or sglang"),
    "another backend": ([f"{ACTOR}.strategy=megatron"], "trains with FSDP only"),
    "half of DAPO": (["method=dapo", "name=mine", "budget.overlong_buffer=0"], "set budget.overlong_buffer above 0"),
    "a temperature beside edits": ([f"{ROLLOUT}.temperature=0.7"], "scores at temperature 1 and top-p 1 only"),
    "one checkpoint": (["verl.trainer.max_actor_ckpt_to_keep=1"], "take 2 or more, or null"),
    "adapters that aren't merged": (
        ["verl.actor_rollout_ref.model.lora_rank=32", "verl.actor_rollout_ref.model.lora.merge=false"],
        "adapters are merged before each transfer",
    ),
    "machines without a sandbox": (["verl.trainer.nnodes=2"], "serves only this machine"),
    "a setting that moved": (["run.save_every=5"], "verl.trainer.save_freq"),
    "a setting that isn't one": (["batch.prompts"], "write --set section.key=value"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_dry_run_names_what_is_wrong(what: str) -> None:
    settings, said = WRONG[what]
    chosen = [argument for each in settings for argument in ("--set", each)]
    begun = time.process_time()
    shown = CliRunner().invoke(main, ["train", str(RECIPES / "saar-4b.yaml"), "--dry-run", *chosen])
    assert time.process_time() - begun < SECONDS
    assert shown.exit_code in (1, 2)
    assert not shown.stdout
    assert said in shown.stderr, shown.stderr
    assert "Traceback" not in shown.stderr
