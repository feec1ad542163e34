"""Computes the papers' training runs: `python -m benchmarks.training_scale` prints the table of docs/scale.md.

What a recipe says is read from it. What it can't say stands below: the models' shapes, the GPUs' data sheets, the
lengths and days that the papers report, and a handful of assumptions in capitals, the same for every run.

    sampling   one decoding step reads the weights and the KV cache of all that is in flight; a step of training samples
               until its tokens are there, but at least as long as its longest rollout
    updating   old log-probs, forward, backward and recomputation: five forward passes' worth, attention included

Limits: no refilled groups but in the last row; no evaluation, saving, waiting for tools, nor rollouts that straggle;
sequences of one length. It tells what the arithmetic alone would take, so that what a run takes on top is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cleaner_rl.train import Recipe, read_recipe, run_folder
from cleaner_rl.train.verl.overrides import number, overrides
from cleaner_rl.train.verl.settings import KEEP, devices_of

RECIPES = Path(__file__).parents[1] / "recipes"
BANDWIDTH_USED, FLOPS_USED = 0.6, 0.4
"""Shares of the data sheet's figures that engines and trainers reach."""
PROMPT = 500
"""Tokens of a prompt."""
PASSES = 5
CALL_SECONDS, LOOPING_SECONDS = 0.044, 0.204
"""CPU of a call: 2 % run into a limit of 2 s, or of 10 s."""
REFILLED = 0.5
"""The share of groups of equal rewards, in the row with refills. Nobody reports it for these runs: a round figure."""
SAVED_BYTES = 16
"""Of a parameter in a checkpoint of verl's: float32 weights, Adam's two moments, the weights in Hugging Face's form."""
LOOKAHEAD = 0.088
"""What SAAR adds to what is sampled, where it is tried on every failure: the paper's latency at test time."""
MEMORY_SHARE = 0.7
"""Share of a GPU's memory for the engine, which the recipes leave as it is."""
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer's shape."""

    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_size: int = 128

    @property
    def weights(self) -> float:
        """Bytes, at two a parameter."""
        return 2 * self.parameters

    @property
    def kv_bytes(self) -> int:
        """Of one token in the cache."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2

    def forward(self, length: float) -> float:
        """Operations for one token of a sequence of this length."""
        return 2 * self.parameters + 4 * self.layers * self.heads * self.head_size * length / 2


@dataclass(frozen=True, slots=True)
class Gpu:
    """What its data sheet says."""

    name: str
    memory: float
    bandwidth: float
    flops: float


@dataclass(frozen=True, slots=True)
class Run:
    """A paper's run."""

    name: str
    recipe: str
    model: Model
    gpu: Gpu
    steps: tuple[tuple[int, float], ...]
    """(steps, mean tokens per rollout), stage by stage."""
    days: float
    """As reported."""


H100 = Gpu("H100", 80e9, 3.35e12, 989e12)
H200 = Gpu("H200", 141e9, 4.8e12, 989e12)
MI300X = Gpu("MI300X", 192e9, 5.3e12, 1307e12)
RUNS = (
    Run("CLEANER-4B", "saar-4b", Model(4.0e9, 36, 32, 8), H100, ((235, 7_000),), 4),
    Run("the same", "saar-4b", Model(4.0e9, 36, 32, 8), H200, ((235, 7_000),), 4),
    Run("CLEANER-7B", "saar-7b", Model(7.6e9, 28, 28, 4), H100, ((120, 7_000),), 2),
    # Lengths aren't reported: half of what each stage allows.
    Run("rStar2-14B", "rstar2-14b", Model(14.8e9, 40, 40, 8), MI300X, ((300, 4_096), (85, 6_144), (125, 6_144)), 7),
)


@dataclass(frozen=True, slots=True)
class Worked:
    """One step of a run, at one mean length."""

    sampled: float
    """Tokens."""
    trained: float
    in_flight: float
    """Rollouts at a time on one GPU."""
    fitting: float
    """Rollouts that its KV cache has room for."""
    sampling: float
    """Seconds."""
    updating: float
    calls: int
    """At most: a call in every turn."""


def worked(run: Run, recipe: Recipe, length: float, longest: int) -> Worked:
    """The arithmetic of a step."""
    model, gpu, device = run.model, run.gpu, devices_of(recipe)
    gpus = device.count
    drawn, kept = recipe.batch.prompts * recipe.sampled, recipe.batch.prompts * recipe.batch.rollouts
    lookahead = LOOKAHEAD * recipe.purify.probability if recipe.method.saar else 0
    sampled, trained = drawn * length * (1 + lookahead), kept * (PROMPT + length)
    held = (PROMPT + length / 2) * model.kv_bytes
    fitting = (gpu.memory * MEMORY_SHARE - model.weights) / held
    in_flight = min(fitting, drawn / gpus)
    decoding = (model.weights + in_flight * held) / (gpu.bandwidth * BANDWIDTH_USED)
    sampling = max(sampled / gpus / in_flight, longest) * decoding
    updating = trained * PASSES * model.forward(PROMPT + length) / (gpus * gpu.flops * FLOPS_USED)
    return Worked(sampled, trained, in_flight, fitting, sampling, updating, drawn * recipe.budget.turns)


def days(run: Run, recipe: Recipe, refilled: float = 0.0) -> float:
    """All steps of all stages; `refilled` is the share of groups that are drawn in vain, and again."""
    longest = [stage.response_tokens for stage in recipe.stages] or [recipe.budget.response_tokens]
    seconds = 0.0
    for (steps, length), most in zip(run.steps, longest, strict=True):
        each = worked(run, recipe, length, most)
        seconds += steps * (each.sampling / (1 - refilled) + each.updating)
    return seconds / DAY


def table() -> str:
    """As Markdown: a column a run, its first stage where there are several."""
    rows: dict[str, list[str]] = {}

    def add(name: str, value: str) -> None:
        rows.setdefault(name, []).append(value)

    for run in RUNS:
        recipe = read_recipe(RECIPES / f"{run.recipe}.yaml")
        stage = recipe.stages[0].response_tokens if recipe.stages else recipe.budget.response_tokens
        each = worked(run, recipe, run.steps[0][1], stage)
        gpus, steps = devices_of(recipe).count, sum(count for count, _ in run.steps)
        total = sum(count * worked(run, recipe, length, stage).sampled for count, length in run.steps)
        found = days(run, recipe)
        add("GPUs", f"{gpus} {run.gpu.name}")
        add("rollouts per step, sampled / trained on", f"{_rollouts(recipe)}")
        add("mean tokens per rollout", f"{run.steps[0][1]:,.0f}")
        add("tokens sampled per step / in all", f"{each.sampled / 1e6:.1f}M / {total / 1e9:.1f}B")
        add("KV cache per token", f"{run.model.kv_bytes / 1e3:.0f} kB")
        add("rollouts in flight per GPU / that fit", f"{each.in_flight:.0f} / {each.fitting:.0f}")
        add("seconds per step, sampling + updating", f"{each.sampling:.0f} + {each.updating:.0f}")
        add("tool calls per step, at most", f"{each.calls:,}")
        cores = (each.calls * seconds / each.sampling for seconds in (CALL_SECONDS, LOOPING_SECONDS))
        add("sandbox cores, limit of 2 s / 10 s", " / ".join(f"{count:.0f}" for count in cores))
        add("steps", f"{steps}")
        saved = SAVED_BYTES * run.model.parameters / 1e9
        add("GB per checkpoint / of all that stay", f"{saved:.0f} / {saved * _kept(recipe):,.0f}")
        add("days, computed / reported", f"{found:.1f} / {run.days:.0f}")
        add("reported / computed", f"{run.days / found:.1f}")
        again = days(run, recipe, REFILLED if recipe.batch.dynamic_sampling else 0)
        add("days, with half of the groups refilled", f"{again:.1f}")
    head = f"| | {' | '.join(run.name for run in RUNS)} |\n| --- |{' --- |' * len(RUNS)}\n"
    return head + "".join(f"| {name} | {' | '.join(values)} |\n" for name, values in rows.items())


def _rollouts(recipe: Recipe) -> str:
    prompts = recipe.batch.prompts
    return f"{prompts * recipe.sampled:,} / {prompts * recipe.batch.rollouts:,}"


def _kept(recipe: Recipe) -> int:
    """Checkpoints that stay: each stage's newest, and the cold start's last."""
    return int(number(overrides(recipe, run_folder(recipe)), KEEP)) * max(1, len(recipe.stages)) + (
        recipe.cold_start is not None
    )


if __name__ == "__main__":
    print(table(), end="")
