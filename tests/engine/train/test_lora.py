"""Five steps of LoRA through the real stack, by `cleaner train` itself, in the smallest world that has repairs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cleaner_rl.train.preflight.witness import seen as seen_in
from tests.engine.train.exactness import EXACT, differences, distances
from tests.engine.train.runs import cleaner_train, drawn, metrics, stored

pytestmark = pytest.mark.timeout(2_400)
STEPS = 5
LORA = (
    *(
        f"run.steps={STEPS}",
        f"verl.trainer.save_freq={STEPS - 1}",
        "verl.actor_rollout_ref.model.lora_rank=8",
        "verl.actor_rollout_ref.model.lora_alpha=16",
    ),
    # The reference model is the actor without its adapters.
    *(
        "method=hindsight",
        "tasks.held_out=[]",
        "verl.trainer.n_gpus_per_node=2",
        "run.router=even",
        "verl.actor_rollout_ref.actor.kl_loss_coef=0.001",
    ),
)


@pytest.fixture(scope="module")
def run(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of hindsight on two ranks that trains adapters."""
    return cleaner_train(world, tmp_path_factory.mktemp("lora"), LORA)


def test_a_run_with_lora_trains_on_exact_clean_trajectories(world: Path, run: Path) -> None:
    trained, rows = seen_in(run.parent), drawn(run)
    for step in range(1, STEPS + 1):
        kept = [each for each in rows if each.key.step == step and each.info.verdict["kept"]]  # type: ignore[index]
        seen = [each for each in trained if each.step == step]
        assert Counter(map(stored, kept)) == Counter((tuple(each.ids), tuple(each.mask)) for each in seen)
        # The engine sampled from the merged weights of each step what the actor computes with its adapters.
        for each in seen:
            assert distances(each.rollout, each.old)[np.array(each.mask, bool)].max() < EXACT
    first = differences(world / "model", [each for each in rows if each.key.step == 1])
    assert first.moved_tokens > 0
    assert first.clean < EXACT
    assert first.moved_as_sampled > 1_000 * first.clean
    assert [line["step"] for line in metrics(run)] == list(range(1, STEPS + 1))


def test_a_checkpoint_with_lora_is_the_model_that_the_next_step_sampled_from(world: Path, run: Path) -> None:
    import torch
    from safetensors.torch import load_file

    model = run / "checkpoints" / f"global_step_{STEPS - 1}" / "actor" / "huggingface"
    last = [each for each in drawn(run) if each.key.step == STEPS]
    assert differences(model, last).clean < EXACT
    # The adapters did change it, and changed nothing but linear layers.
    assert differences(world / "model", last).clean > 1_000 * EXACT
    before, after = (load_file(folder / "model.safetensors") for folder in (world / "model", model))
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before if "proj" not in name)
    ranks = [torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-4) for name in before if "proj" in name]
    assert max(ranks) <= 8
