"""Defines a recipe: every setting of a training run, as typed data.

`load` reads it from YAML, and `overrides` turns it into verl's configuration. Defaults are the CLEANER paper's where
the paper has the setting. Settings of verl that aren't here go into the mapping `verl`, which overrides all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from cleaner_rl.purify import SIMILARITY_MEASURES, OnUnrepaired, PurifyConfig, PurifyScope, RepairConfig, Schedule
from cleaner_rl.resample import PlainConfig, PositiveSelection, QualityOf, RocConfig
from cleaner_rl.tasks import RewardScale
from cleaner_rl.train.recipe.bounds import out_of_range
from cleaner_rl.train.recipe.enums import (
    Attention,
    Correction,
    DeviceKind,
    Dtype,
    Fallback,
    Method,
    Router,
    TrainerMode,
)
from cleaner_rl.train.record import StepConfig
from cleaner_rl.train.rows import GraftLogprobs, OverlongPenalty, RescueAdvantage, RescueRows, RowConfig, Views

_PAPER = PurifyConfig()
"""The purifier's own defaults, which are the recipe's."""


class RecipeError(ValueError):
    """A recipe can't be run; the message says why and what to change."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Settings of LoRA: low-rank adapters on all linear layers are trained, and the model's own weights stay."""

    rank: int = 32
    """Rank of the adapters."""
    alpha: int = 32
    """Scale of the adapters: what they add is multiplied by `alpha` / `rank`."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of the model that is trained."""

    path: str
    """A folder in Hugging Face format, or a name on the hub."""
    dtype: Dtype = Dtype.BFLOAT16
    attention: Attention = Attention.FLASH
    template: dict[str, object] = field(default_factory=dict)
    """Options of the chat template, such as `enable_thinking: false`."""
    lora: LoraSettings | None = None
    """Train low-rank adapters; None: all weights are trained. `lora: {}` turns it on. A cold start trains all weights
    in either case."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings of the tasks that the model is trained and evaluated on."""

    train: list[str]
    """Parquet files in verl's format, as `cleaner_rl.tasks.write_verl` writes them."""
    held_out: list[str] = field(default_factory=list)
    """Files of the same format, for evaluation."""
    prompt: str = "stateless"
    """The prompt that describes the tool: a name or a TOML file (`cleaner_rl.tasks.load_prompt`)."""
    reward: RewardScale = RewardScale.SIGNED


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Limits of one rollout."""

    prompt_tokens: int = 2_560
    """The longest prompt, tools and instructions included; a run with a longer one is refused."""
    response_tokens: int = 20_480
    """The longest response: all tokens after the prompt, the model's and the tools'."""
    turns: int = 16
    """Turns of the model, the answer included. A repaired turn counts once."""
    evaluation_turns: int = 0
    """Turns in evaluation; 0: as many as in training."""
    lookahead_tokens: int = 20_480
    """Tokens that all lookaheads of one rollout may sample. They don't count as response, but the engine holds them
    beside it: with SAAR the model needs positions for `prompt_tokens` + `response_tokens` + `lookahead_tokens`."""
    seconds: float = 0
    """Wall time after which a rollout ends and isn't trained on; 0: no limit."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Sampling parameters of training rollouts."""

    temperature: float = 1.0
    """Must be 1 with a method that edits: edited tokens are re-scored, and engines score at temperature 1."""
    top_p: float = 1.0
    """Must be 1 with a method that edits, for the same reason."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Sizes of a step."""

    prompts: int = 128
    """Prompts per step."""
    mini_batch: int = 32
    """Prompts per update of the weights."""
    rollouts: int = 16
    """Rollouts per prompt that are trained on."""
    micro_batch: int = 1
    """Sequences that a device computes at a time."""
    dynamic_sampling: bool = True
    """Replace zero-variance groups, which all rollouts solved or none did: they have no gradient."""


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """Settings of the policy update."""

    lr: float = 1e-6
    """The learning rate."""
    warmup_steps: int = 20
    """Steps over which the learning rate rises."""
    clip_low: float = 0.2
    """Lower clip: a token's probability ratio counts from 1 - `clip_low`."""
    clip_high: float = 0.28
    """Upper clip: a token's probability ratio counts up to 1 + `clip_high`; clip-higher if above `clip_low`."""
    clip_c: float = 10.0
    """The largest ratio that counts where the advantage is negative (dual clip)."""
    loss: str = "token-mean"
    """How tokens are averaged: verl's `loss_agg_mode`."""
    kl: float = 0.0
    """Weight of the KL loss; 0: no KL loss and no reference model."""
    correction: Correction = Correction.TOKEN
    correction_threshold: float = 2.0
    """The largest importance weight that counts."""
    overlong_buffer: int = 4_096
    """Length of the response's end over which the reward falls by up to `overlong_penalty`; 0: no penalty."""
    overlong_penalty: float = 1.0
    """Penalty on a response that uses all of its tokens."""


@dataclass(frozen=True, slots=True)
class PurifySettings:
    """Settings of SAAR and of hindsight; the method says which of the two runs."""

    attempts: int = _PAPER.attempts
    """K: the most corrections that a lookahead samples. Hindsight samples none."""
    threshold: float = _PAPER.repair.threshold
    """γ: at this similarity or above the action is grafted, below it the reasoning is replaced too."""
    measure: str = _PAPER.repair.measure
    """The similarity measure: one of docs/similarity.md."""
    refuse_stale: bool = _PAPER.repair.refuse_stale
    """Refuse a replacement whose reasoning mentions the error that it removes."""
    max_logprob_gap: float | None = None
    """Refuse a repair whose moved tokens lose more log-prob than this on average; None refuses no repair."""
    probability: float = 1.0
    """The share of trajectories that is purified."""
    schedule: list[tuple[int, float]] = field(default_factory=list)
    """A list of (step, probability) instead of one probability, interpolated linearly."""
    scope: PurifyScope | None = _PAPER.scope
    """Whose trajectories are purified: `all`, or `successful` (those that solved the task). None: all with SAAR, as in
    the paper; with hindsight, and so with two views, the successful ones."""
    on_unrepaired: OnUnrepaired = _PAPER.on_unrepaired
    skip_last_turn: bool = _PAPER.skip_last_turn
    """SAAR doesn't look ahead in the last turn of the budget, after which no answer can follow."""
    fallback: Fallback = Fallback.RAW
    graft_logprobs: GraftLogprobs = GraftLogprobs.RESCORED
    views: Views = Views.CLEAN
    """Which view of a right rollout that hindsight repaired is trained on: `clean`, both (`full`), or `one` by seed."""

    def config(self) -> PurifyConfig:
        """Return the settings as the purifier takes them."""
        probability = Schedule(tuple(self.schedule)) if self.schedule else self.probability
        repair = RepairConfig(self.threshold, self.measure, self.refuse_stale)
        return PurifyConfig(
            self.attempts,
            repair,
            probability,
            self.scope,
            self.on_unrepaired,
            skip_last_turn=self.skip_last_turn,
            max_logprob_gap=self.max_logprob_gap,
            views=self.views,
        )

    def rest(self) -> PurifyConfig | None:
        """Return the settings of hindsight on trajectories that SAAR leaves out; None if they stay raw."""
        if self.fallback is Fallback.RAW:
            return None
        return replace(self.config(), probability=1.0)


@dataclass(frozen=True, slots=True)
class RescueSettings:
    """Settings of rescues. A rescue looks for a right rollout for a group in which all rollouts are wrong."""

    attempts: int = 3
    """Corrections of the first failed call that a rescue samples at most."""
    share: float = 0.2
    """Tokens that a rescue may sample, as a share of what its group sampled."""
    rows: RescueRows = RescueRows.JOIN
    """`join`: the rescued rollout is one more row of its group. `replace`: it takes the place of the wrong rollout that
    it began with. With RoC it is one more rollout to select from in either case."""
    advantage: RescueAdvantage = RescueAdvantage.GROUP
    """Advantages of a rescued group. `group`: as in any group. `capped`: the rescue's is at most 1. `rescue_only`:
    those of wrong rollouts are 0."""


@dataclass(frozen=True, slots=True)
class RocSettings:
    """Settings of GRPO-RoC; it keeps `batch.rollouts` of each group."""

    sample: int = 32
    """Rollouts sampled per prompt."""
    min_positive: int = 2
    """Right rollouts that are kept at least, if the group has as many."""
    min_negative: int = 2
    """Wrong rollouts that are kept at least, if the group has as many."""
    positives: PositiveSelection = PositiveSelection.CLEANEST
    quality_of: QualityOf = QualityOf.FIRST_ATTEMPT


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """Settings for infrastructure faults: an engine, tool or grader that broke."""

    min_rollouts: int = 2
    """A group with fewer usable rollouts is replaced. With RoC the bound is `batch.rollouts`."""
    max_share: float = 0.2
    """The share of a step's rollouts that may be faults; above it the run stops."""
    stall_minutes: float = 60
    """The run stops if no rollout has finished for this long."""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Settings of the sandbox: a node that the run starts, or nodes by their addresses."""

    addresses: list[str] = field(default_factory=list)
    """URLs, `dns://name:port` or `ray:`; empty: the run starts its own node."""
    slots: int = 0
    """Slots of the run's own node; 0: two per core."""
    packages: list[str] = field(default_factory=list)
    """Packages that programs may import on the run's own node, preloaded; empty: NumPy and SymPy."""
    site: str = ""
    """The folder that `packages` are installed in; empty: this environment."""
    bases: str = ""
    """Folder of the bases that tasks name (`extra["base"]`), for the run's own node."""
    token_file: str = ""
    """A file that holds one token and nothing else, for nodes by address."""
    cpu_seconds: float = 10.0
    """CPU time that a call may use."""
    memory_mb: int = 512
    """Memory that a call may hold."""


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """Settings of machines, devices and engines."""

    kind: DeviceKind = DeviceKind.GPU
    nodes: int = 1
    """Number of machines."""
    per_node: int = 8
    """GPUs per machine; on CPUs, processes per machine."""
    engine: str = "vllm"
    """The inference engine: `vllm` or `sglang` on GPUs, `vllm` on CPUs."""
    tensor_parallel: int = 1
    """Devices per replica of the engine."""
    mode: TrainerMode = TrainerMode.SYNC
    engine_nodes: int = 1
    """Machines for engines alone, beside `nodes`, in the mode `separate_async`; each has `per_node` devices."""
    workers: int = 8
    """Processes that run rollouts."""
    router: Router = Router.VERL
    offload: bool = False
    """Keep weights and optimizer in the machine's memory while they aren't used."""
    memory_share: float = 0.7
    """Share of a GPU's memory for the engine."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Length of the run, its folder, checkpoints, evaluation and logging."""

    steps: int = 0
    """Number of steps, over as many epochs as that takes; 0: as many as `epochs` give."""
    epochs: int = 1
    """Epochs over the tasks, if `steps` is 0."""
    folder: str = "runs"
    """The folder that holds the run's own folder, which has the run's name."""
    save_every: int = 20
    """Steps between checkpoints; 0: no checkpoint is saved."""
    keep_checkpoints: int = 3
    """Number of checkpoints to keep, of those saved since the run was last started; 0: all."""
    evaluate_every: int = 20
    """Steps between evaluations on `tasks.held_out`."""
    evaluation_samples: int = 1
    """Rollouts per held-out task."""
    evaluation_temperature: float = 1.0
    """Temperature of evaluation rollouts. They are never edited, so it may differ from `sampling`."""
    evaluation_top_p: float = 1.0
    """Top-p of evaluation rollouts. The CLEANER paper and `cleaner eval` use 0.6."""
    loggers: list[str] = field(default_factory=lambda: ["console"])
    """Where verl logs metrics (`trainer.logger`). `file` is `verl-N.jsonl` in the run's folder, one file per start."""


@dataclass(frozen=True, slots=True)
class ColdStartSettings:
    """Settings of supervised fine-tuning before RL, on the `device.per_node` devices of the machine that starts it."""

    demonstrations: list[str]
    """Parquet files with `messages` and `tools`."""
    epochs: int = 1
    """Epochs over the demonstrations."""
    lr: float = 1e-5
    """The learning rate, with a cosine schedule."""
    warmup: float = 0.03
    """Share of all updates over which the learning rate rises."""
    batch: int = 32
    """Demonstrations per update of the weights."""
    micro_batch: int = 1
    """Demonstrations that a device computes at a time."""
    max_tokens: int = 16_384
    """The longest demonstration."""


@dataclass(frozen=True, slots=True)
class StageSettings:
    """Settings of one stage, which begins with the model of the stage before."""

    name: str
    """Name of the stage; its folder has the run's name in front."""
    steps: int
    """Number of steps."""
    response_tokens: int = 0
    """The longest response of this stage; 0: the recipe's `budget.response_tokens`."""
    min_pass_rate: float = 0.0
    """Leave out tasks whose pass rate in the stage before is lower."""
    max_pass_rate: float = 1.0
    """Leave out tasks whose pass rate in the stage before is higher. Tasks that it didn't sample stay."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings of one training run."""

    name: str
    """Name of the run and of its folder."""
    method: Method
    model: ModelSettings
    tasks: TaskSettings
    seed: int = 1
    """Seed of every random choice of the run."""
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    update: UpdateSettings = field(default_factory=UpdateSettings)
    purify: PurifySettings = field(default_factory=PurifySettings)
    rescue: RescueSettings | None = None
    """Rescue of groups in which all rollouts are wrong; None: off. `rescue: {}` turns it on if the method repairs."""
    roc: RocSettings = field(default_factory=RocSettings)
    faults: FaultSettings = field(default_factory=FaultSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    run: RunSettings = field(default_factory=RunSettings)
    cold_start: ColdStartSettings | None = None
    """Supervised fine-tuning before RL; None: RL begins with `model.path` as it is."""
    stages: list[StageSettings] = field(default_factory=list)
    """Stages of the run; empty: the run has no stages."""
    verl: dict[str, object] = field(default_factory=dict)
    """verl's own settings, nested or dotted; they override all others."""

    def __post_init__(self) -> None:
        checks = (
            self._numbers,
            self._method,
            self._exactness,
            self._views,
            self._rescue,
            self._correction,
            self._sizes,
            self._measure,
        )
        for refusal in (check() for check in (*checks, self._engine, self._parallel)):
            if refusal:
                raise RecipeError(refusal)
        # These check themselves; better here than in a worker.
        self.group_config(), self.purify.config()

    @property
    def prompt(self) -> str:
        """Return the prompt that the model is given."""
        return "no-tool" if self.method is Method.NO_TOOLS else self.tasks.prompt

    @property
    def attention(self) -> Attention:
        """Return the attention that the model is trained with."""
        return Attention.TORCH if self.device.kind is DeviceKind.CPU else self.model.attention

    @property
    def sampled(self) -> int:
        """Return the rollouts sampled per prompt."""
        return self.roc.sample if self.method.resamples else self.batch.rollouts

    @property
    def rows(self) -> int:
        """Return the rows of a prompt in an update. A group that has fewer is filled up with rows without a loss."""
        joins = self.rescue is not None and self.rescue.rows is RescueRows.JOIN and not self.method.resamples
        return self.batch.rollouts * (2 if self.purify.views.two_rows else 1) + joins

    @property
    def window(self) -> int:
        """Return the tokens that the engine must hold at once: prompt, response and, with SAAR, the lookahead."""
        lookahead = self.budget.lookahead_tokens if self.method.saar else 0
        return self.budget.prompt_tokens + self.budget.response_tokens + lookahead

    @property
    def smallest_group(self) -> int:
        """Return the usable rollouts that a group needs; with fewer it is replaced."""
        return self.batch.rollouts if self.method.resamples else self.faults.min_rollouts

    def group_config(self) -> RocConfig | PlainConfig:
        """Return how the rollouts of a group are selected."""
        if not self.method.resamples:
            return PlainConfig(self.smallest_group)
        roc = self.roc
        return RocConfig(self.batch.rollouts, roc.min_positive, roc.min_negative, roc.positives, roc.quality_of)

    def row_config(self) -> RowConfig:
        """Return how the rollouts of a group become rows. Zero-variance groups are verl's own to replace."""
        purify, rescue = self.purify, self.rescue or RescueSettings()
        return RowConfig(
            group=self.group_config(),
            seed=self.seed,
            mask_failed=self.method.masks,
            logprobs=purify.graft_logprobs,
            views=purify.views,
            rescue_rows=rescue.rows,
            rescue_advantage=rescue.advantage,
        )

    def step_config(self) -> StepConfig:
        """Return how large a step is, and how many of its rollouts may be faults."""
        return StepConfig(self.name, self.batch.prompts, self.sampled, self.faults.max_share)

    def overlong(self) -> OverlongPenalty:
        """Return the penalty on overlong responses."""
        update = self.update
        return OverlongPenalty(self.budget.response_tokens, update.overlong_buffer, update.overlong_penalty)

    def _numbers(self) -> str:
        return out_of_range(self)

    def _method(self) -> str:
        """DAPO is the name of a recipe with all of DAPO's parts, and of no other."""
        update, batch = self.update, self.batch
        missing = [
            remedy
            for remedy, there in {
                "batch.dynamic_sampling=true": batch.dynamic_sampling,
                "update.overlong_buffer above 0": update.overlong_buffer > 0,
                "update.clip_high above update.clip_low": update.clip_high > update.clip_low,
                "update.loss=token-mean": update.loss == "token-mean",
            }.items()
            if not there
        ]
        if self.method is Method.DAPO and missing:
            return f"method is dapo, but a part of DAPO is missing: set {', '.join(missing)}, or take method grpo"
        if self.method is Method.GRPO and not missing:
            return (
                "method is grpo, the baseline without dynamic sampling, but this recipe has all of DAPO's parts: "
                "set batch.dynamic_sampling=false, or take method dapo"
            )
        return ""

    def _exactness(self) -> str:
        if self.method.edits and (self.sampling.temperature != 1 or self.sampling.top_p != 1):
            return (
                f"sampling.temperature is {self.sampling.temperature} and sampling.top_p {self.sampling.top_p}, but "
                "edited tokens are re-scored, and an engine scores at temperature 1 and top-p 1 only: set both to 1"
            )
        return ""

    def _views(self) -> str:
        views = self.purify.views
        if views is not Views.CLEAN and not self.method.hindsight:
            return (
                f"purify.views is {views}, which needs repairs in hindsight, but the method is {self.method}: "
                "set purify.views=clean"
            )
        if views is Views.CLEAN and self.method.two_views:
            return f"purify.views is clean, but the method is {self.method}: take method hindsight, or full or one"
        return ""

    def _rescue(self) -> str:
        if self.rescue is not None and not self.method.edits:
            repairing = ", ".join(method for method in Method if method.edits)
            return (
                f"rescue repairs a failed call, but the method is {self.method}, which repairs none: "
                f"take one of {repairing}, or leave rescue out (--set rescue=null)"
            )
        if self.rescue is None and self.method is Method.TWO_VIEWS_RESCUE:
            return f"rescue is null, but the method is {self.method}: take method {Method.TWO_VIEWS}"
        return ""

    def _correction(self) -> str:
        sampled = self.purify.graft_logprobs is GraftLogprobs.SAMPLED
        if self.method.edits and sampled and self.update.correction is Correction.SEQUENCE:
            return (
                "purify.graft_logprobs is sampled, which weighs grafted tokens one by one, but update.correction is "
                "sequence, where a graft's weight would spread over its whole trajectory: take token, or rescored"
            )
        return ""

    def _sizes(self) -> str:
        if self.method.resamples and self.roc.sample < self.batch.rollouts:
            return f"roc.sample is {self.roc.sample}, fewer than the batch.rollouts={self.batch.rollouts} that are kept"
        if self.batch.prompts % self.batch.mini_batch:
            return f"batch.prompts={self.batch.prompts} can't be cut into mini-batches of {self.batch.mini_batch}"
        if self.update.overlong_buffer >= self.budget.response_tokens:
            return "update.overlong_buffer takes up the whole response; make it shorter than budget.response_tokens"
        if self.purify.max_logprob_gap is not None and self.purify.max_logprob_gap <= 0:
            return f"purify.max_logprob_gap is {self.purify.max_logprob_gap}; give a positive number, or leave it out"
        if self.run.keep_checkpoints == 1 or self.run.keep_checkpoints < 0:
            # verl removes the old one before it notes the new one as the last.
            return "run.keep_checkpoints must be 2 or more, or 0 for all: killed in between, a run would have none"
        if len({stage.name for stage in self.stages}) != len(self.stages):
            return "two stages have the same name; each has a folder of its own under it"
        return ""

    def _measure(self) -> str:
        known = SIMILARITY_MEASURES
        if self.purify.measure not in known:
            return f"purify.measure is '{self.purify.measure}'; it can be {', '.join(known)}"
        return ""

    def _engine(self) -> str:
        engines = ("vllm",) if self.device.kind is DeviceKind.CPU else ("vllm", "sglang")
        if self.device.engine not in engines:
            return f"device.engine is '{self.device.engine}'; on a {self.device.kind} it can be {' or '.join(engines)}"
        if self.device.kind is DeviceKind.CPU and self.model.dtype is not Dtype.FLOAT32:
            return "model.dtype must be float32 on a cpu: with less, rollout and training disagree about log-probs"
        return ""

    def _parallel(self) -> str:
        """An engine's replica fills part of a machine, or several machines."""
        parallel, here = self.device.tensor_parallel, self.device.per_node
        if parallel <= here and here % parallel:
            return (
                f"device.tensor_parallel is {parallel}, which doesn't divide device.per_node={here}: "
                f"take {' or '.join(str(each) for each in range(1, here + 1) if here % each == 0)}"
            )
        devices = here * self.device.nodes
        if parallel > here and (parallel % here or devices % parallel):
            several = f", or a multiple of it that divides {devices}" if self.device.nodes > 1 else ""
            return (
                f"device.tensor_parallel is {parallel}, but device.nodes x device.per_node are {devices} devices: "
                f"take a divisor of {here}{several}"
            )
        return ""


def run_folder(recipe: Recipe) -> Path:
    """Return the folder of a run."""
    return (Path(recipe.run.folder).expanduser() / recipe.name).absolute()


def part_folders(recipe: Recipe) -> list[Path]:
    """Return the folders of a run that hold a plan and a store: its own, or one for each stage."""
    folder = run_folder(recipe)
    return [folder / f"{recipe.name}-{stage.name}" for stage in recipe.stages] or [folder]
