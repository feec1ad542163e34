"""The recipes for one card: what they need of its memory, by arithmetic, and that their comments say the same.

Nothing here ran on a GPU. What is counted is the largest there is: weights, gradients, Adam, activations with gradient
checkpointing, the logits of a chunk, and the engine's cache. Fragmentation and CUDA's own memory are not, so a part of
the card must be left.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cleaner_rl.train import read_recipe, run_folder
from cleaner_rl.train.verl.overrides import number, overrides
from cleaner_rl.train.verl.settings import ACTOR, LORA_RANK, OFFLOAD, ROLLOUT

FOLDER = Path(__file__).parents[2] / "recipes"
GB, GIB = 1e9, 1 << 30
LARGEST = 0.85
"""The share of a card that may be counted as used."""
ENGINE_GB = 1.0
"""The engine's activations and graphs: an assumption, not a measurement."""
CHUNK = 512
"""Tokens whose logits exist at a time, with verl's fused kernels."""


@dataclass(frozen=True)
class Qwen3:
    """Qwen3-4B, by its own configuration."""

    hidden: int = 2_560
    layers: int = 36
    heads: int = 32
    shared: int = 8
    head: int = 128
    inner: int = 9_728
    words: int = 151_936

    @property
    def linears(self) -> list[tuple[int, int]]:
        """Inputs and outputs of a layer's linear maps."""
        queries, keys = self.heads * self.head, self.shared * self.head
        attention = [(self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden)]
        return [*attention, (self.hidden, self.inner), (self.hidden, self.inner), (self.inner, self.hidden)]

    @property
    def weights(self) -> int:
        """Embeddings are the output's weights too."""
        return self.words * self.hidden + self.layers * sum(a * b for a, b in self.linears)

    def adapters(self, rank: int) -> int:
        return self.layers * sum(rank * (a + b) for a, b in self.linears)

    @property
    def cache_bytes(self) -> int:
        """Of a token in the engine's cache."""
        return 2 * self.layers * self.shared * self.head * 2

    def activations(self, tokens: int) -> float:
        """Kept at the border of each layer, and those of one layer with their gradients; then the logits of a chunk."""
        inside = 4 * self.hidden + 2 * (self.heads + self.shared) * self.head + 3 * self.inner
        return tokens * (self.layers * self.hidden + 2 * inside) * 2 + CHUNK * self.words * 4 * 3


MODEL = Qwen3()


@dataclass(frozen=True)
class Needs:
    """Gigabytes of one card."""

    update: float
    trained: float
    """Of these for what has gradients, with the optimizer."""
    sending: float
    rollouts: float
    cache: float


def needs(name: str, card: int) -> Needs:
    recipe = read_recipe(FOLDER / f"{name}.yaml")
    settings = overrides(recipe, run_folder(recipe))
    assert settings[OFFLOAD], "or the actor's weights stay beside the engine's"
    size = 2 if settings.get(f"{ACTOR}.fsdp_config.model_dtype") == "bf16" else 4
    rank = settings.get(LORA_RANK)
    # Adapters, and all weights without them, are float32 with a gradient and Adam's two moments.
    trained = 16 * (MODEL.adapters(rank) if isinstance(rank, int) else MODEL.weights)
    frozen = size * MODEL.weights if rank else 0
    tokens = int(number(settings, f"{ACTOR}.ppo_max_token_len_per_gpu"))
    served = 2 * MODEL.weights
    rollouts = number(settings, f"{ROLLOUT}.gpu_memory_utilization") * card * GIB
    return Needs(
        update=(trained + frozen + MODEL.activations(tokens)) / GB,
        trained=trained / GB,
        sending=(served + size * MODEL.weights) / GB,
        rollouts=rollouts / GB,
        cache=(rollouts - served) / GB - ENGINE_GB,
    )


@pytest.mark.parametrize(("name", "card"), [("two-views-4b-80gb", 80), ("two-views-4b-24gb", 24)])
def test_a_card_holds_the_update_the_transfer_and_the_rollouts(name: str, card: int) -> None:
    recipe, found = read_recipe(FOLDER / f"{name}.yaml"), needs(name, card)
    assert max(found.update, found.sending, found.rollouts) < LARGEST * card * GIB / GB
    kept = found.cache * GB / MODEL.cache_bytes
    assert kept > 4 * recipe.window, "fewer than four rollouts at a time"

    said = " ".join(line.removeprefix("# ") for line in (FOLDER / f"{name}.yaml").read_text().splitlines())
    for words in (
        f"{found.update:.1f} GB in an update",
        f"{found.sending:.1f} GB while weights are sent",
        f"{found.rollouts:.1f} GB in rollouts, of which {found.cache:.1f} hold {kept / 1_000:.0f} thousand tokens",
        f"the card has {card * GIB / GB:.1f} ({card} GiB)",
        f"{found.trained:.1f}",
        "Not tested on a GPU",
    ):
        assert words in said


def test_without_adapters_the_small_card_would_not_do() -> None:
    assert 16 * MODEL.weights > 2 * 24 * GIB


def test_the_small_card_runs_no_more_rollouts_than_the_cache_holds_at_their_longest_share() -> None:
    recipe = read_recipe(FOLDER / "two-views-4b-24gb.yaml")
    at_once = number(overrides(recipe, run_folder(recipe)), f"{ROLLOUT}.max_num_seqs")
    held = needs(recipe.name, 24).cache * GB / MODEL.cache_bytes
    assert at_once * recipe.window / 2 < held, "rollouts of half the longest length"


def test_the_arithmetic_knows_the_model() -> None:
    assert MODEL.weights == pytest.approx(4.02e9, rel=1e-3)
    assert MODEL.cache_bytes == 147_456
