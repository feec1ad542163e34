"""A recipe: everything that makes a training run, as typed data. `reading` fills it from YAML, `overrides` makes verl's
configuration of it.

Defaults are the CLEANER paper's where it has the setting. Whatever isn't here is verl's: the mapping `verl` passes it
on and has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cleaner_rl.purify import PurifyPolicy, Schedule, SplicePolicy, Unrepaired, Which, similarity_measures
from cleaner_rl.resample import PlainPolicy, Positives, QualityOf, RocPolicy
from cleaner_rl.tasks import RewardScale
from cleaner_rl.train.choices import (
    Attention,
    Correction,
    DeviceKind,
    Dtype,
    GraftLogprobs,
    Method,
    Otherwise,
    Router,
    TrainerMode,
)

_PAPER = PurifyPolicy()
"""The purifier's own defaults: they are said once, there."""


class RecipeError(ValueError):
    """A recipe that can't be run; the message says why, and what to change."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained."""

    path: str
    """A folder in Hugging Face's form, or a name on the hub."""
    dtype: Dtype = Dtype.BFLOAT16
    attention: Attention = Attention.FLASH
    template: dict[str, object] = field(default_factory=dict)
    """Options of its chat template, such as `enable_thinking: false`."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """What it is trained and judged on."""

    train: list[str]
    """verl's Parquet files, as `cleaner_rl.tasks.write_verl` makes them."""
    held_out: list[str] = field(default_factory=list)
    """The same, for evaluation."""
    prompt: str = "stateless"
    """What the model is told about its tool: a name or a TOML file (`cleaner_rl.tasks.load_prompt`)."""
    reward: RewardScale = RewardScale.SIGNED


@dataclass(frozen=True, slots=True)
class Budget:
    """What a rollout may use."""

    prompt_tokens: int = 2_560
    """The longest prompt, tools and instructions included; a run with a longer one is refused."""
    response_tokens: int = 20_480
    """What stands after it in the history: the model's tokens and the tools'."""
    turns: int = 16
    """Of the model, the answer included. A repaired one counts once."""
    evaluation_turns: int = 0
    """In evaluation, if it has another number of them; 0: the same."""
    lookahead_tokens: int = 20_480
    """For all attempts of one rollout; none of it counts against the response. It stands beside it while it lasts, so
    with a live method the model needs positions for `prompt_tokens` + `response_tokens` + `lookahead_tokens`."""
    seconds: float = 0
    """Of wall time, after which a rollout ends and isn't trained on; 0: none."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How rollouts are drawn."""

    temperature: float = 1.0
    """1 wherever trajectories are edited: edited tokens are re-scored, and engines score at 1."""
    top_p: float = 1.0
    """The same holds."""


@dataclass(frozen=True, slots=True)
class Batch:
    """How much goes into a step."""

    prompts: int = 128
    """Prompts per step."""
    mini_batch: int = 32
    """Prompts per update of the weights."""
    rollouts: int = 16
    """Rollouts of a prompt that are trained on."""
    micro_batch: int = 1
    """Sequences that a device takes at a time."""
    dynamic_sampling: bool = True
    """Refill groups that all rollouts solved, or none: they teach nothing."""


@dataclass(frozen=True, slots=True)
class Update:
    """How the weights change."""

    lr: float = 1e-6
    """The learning rate."""
    warmup_steps: int = 20
    """Over which the rate rises."""
    clip_low: float = 0.2
    """A token's ratio counts from 1 - `clip_low` …"""
    clip_high: float = 0.28
    """… to 1 + `clip_high`."""
    clip_c: float = 10.0
    """The most that a ratio counts where the advantage is negative (dual clip)."""
    loss: str = "token-mean"
    """How tokens are averaged: verl's `loss_agg_mode`."""
    kl: float = 0.0
    """The weight of the KL loss; 0: none, and no reference model."""
    learn_failed: bool = True
    """Whether turns whose call failed are learnt from, as all are; else they are masked out of the loss."""
    correction: Correction = Correction.TOKEN
    correction_threshold: float = 2.0
    """The most that an importance weight counts."""
    overlong_buffer: int = 4_096
    """The last tokens of a response, over which the reward falls by up to `overlong_penalty`; 0: none."""
    overlong_penalty: float = 1.0
    """Of a response that is full to its last token."""


@dataclass(frozen=True, slots=True)
class Purify:
    """SAAR's and hindsight's settings; the method says which of the two applies."""

    attempts: int = _PAPER.attempts
    """K: corrections that a lookahead samples at most. Hindsight samples none."""
    threshold: float = _PAPER.splice.threshold
    """γ: at this similarity or above the action is grafted, below it the reasoning is replaced too."""
    measure: str = _PAPER.splice.measure
    """How similarity is measured: a name (docs/similarity.md), or one of a plug-in."""
    refuse_stale: bool = _PAPER.splice.refuse_stale
    """Refuse a replacement whose reasoning talks of the error that it removes."""
    probability: float = 1.0
    """The share of trajectories that is purified."""
    schedule: list[tuple[int, float]] = field(default_factory=list)
    """(step, probability) points instead of one probability."""
    which: Which = _PAPER.which
    unrepaired: Unrepaired = _PAPER.unrepaired
    otherwise: Otherwise = Otherwise.RAW
    graft_logprobs: GraftLogprobs = GraftLogprobs.RESCORED

    def policy(self) -> PurifyPolicy:
        """As the purifier takes it."""
        probability = Schedule(tuple(self.schedule)) if self.schedule else self.probability
        splice = SplicePolicy(self.threshold, self.measure, self.refuse_stale)
        return PurifyPolicy(self.attempts, splice, probability, self.which, self.unrepaired)

    def rest(self) -> PurifyPolicy | None:
        """For hindsight on those that a live repair leaves out; None if they stay raw."""
        if self.otherwise is Otherwise.RAW:
            return None
        return replace(self.policy(), probability=1.0)


@dataclass(frozen=True, slots=True)
class Roc:
    """GRPO-RoC's settings; `batch.rollouts` says how many are kept."""

    sample: int = 32
    """Rollouts drawn of a prompt."""
    min_positive: int = 2
    """Right ones that are kept at least, if there are so many."""
    min_negative: int = 2
    """Wrong ones."""
    positives: Positives = Positives.CLEANEST
    quality_of: QualityOf = QualityOf.FIRST_ATTEMPT


@dataclass(frozen=True, slots=True)
class Faults:
    """What is done when the infrastructure breaks."""

    min_rollouts: int = 2
    """A group with fewer usable rollouts is refilled. With RoC it is `batch.rollouts`."""
    max_share: float = 0.2
    """Of a step's rollouts; above it the run stops."""
    stall_minutes: float = 60
    """Without a finished rollout for so long, the run stops."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where calls run: a node started here, or nodes by their addresses."""

    addresses: list[str] = field(default_factory=list)
    """URLs, `dns://name:port` or `ray:`; none: start one here."""
    slots: int = 0
    """Of the node started here; 0: two for each core."""
    packages: list[str] = field(default_factory=list)
    """What programs may import on the node started here, loaded ahead; none: NumPy and SymPy."""
    site: str = ""
    """The folder that these are installed in; empty: this environment."""
    token_file: str = ""
    """A file that holds one token and nothing else, to show to nodes by address."""
    cpu_seconds: float = 10.0
    """Of CPU time, that a call may use."""
    memory_mb: int = 512
    """That it may hold."""


@dataclass(frozen=True, slots=True)
class Device:
    """What it runs on."""

    kind: DeviceKind = DeviceKind.GPU
    nodes: int = 1
    """Machines."""
    per_node: int = 8
    """GPUs of each; on CPUs, processes."""
    engine: str = "vllm"
    """`vllm` or `sglang` on GPUs, `vllm` on CPUs."""
    tensor_parallel: int = 1
    """Devices that share one replica of the engine."""
    mode: TrainerMode = TrainerMode.SYNC
    workers: int = 8
    """Processes that run rollouts."""
    router: Router = Router.VERL
    kv_tokens: int = 0
    """Of one replica's KV cache, for our router to hold back what wouldn't fit; 0: not known, nothing is."""
    offload: bool = False
    """Whether weights and optimizer wait in the machine's memory while they aren't used."""
    memory_share: float = 0.7
    """Of a GPU's memory, for the engine."""


@dataclass(frozen=True, slots=True)
class Run:
    """How long, and where to."""

    steps: int = 0
    """However many epochs that takes; 0: as many as `epochs` give."""
    epochs: int = 1
    """Over the tasks, if `steps` is 0."""
    folder: str = "runs"
    """The run lives below it, under its name."""
    save_every: int = 20
    """Steps between checkpoints; 0: none is kept."""
    keep_checkpoints: int = 3
    """The newest so many stay, of those saved since the run was last started; 0: all."""
    evaluate_every: int = 20
    """Steps between evaluations on `tasks.held_out`."""
    evaluation_samples: int = 1
    """Rollouts of a held-out task."""
    evaluation_temperature: float = 1.0
    """At which they are drawn. They are never edited, so nothing ties it to `sampling`."""
    evaluation_top_p: float = 1.0
    """The same; the CLEANER paper evaluates at 0.6, and so does `cleaner eval`."""
    loggers: list[str] = field(default_factory=lambda: ["console"])
    """Where metrics go: verl's `trainer.logger`. `file` is `verl-N.jsonl` in the run's folder, one for each start."""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Supervised fine-tuning before anything else, on the `device.per_node` devices of the machine it is started on."""

    demonstrations: list[str]
    """Parquet files with `messages` and `tools`."""
    epochs: int = 1
    """Over the demonstrations."""
    lr: float = 1e-5
    """The learning rate; it falls as a cosine."""
    warmup: float = 0.03
    """The share of all updates over which the rate rises."""
    batch: int = 32
    """Demonstrations per update of the weights."""
    micro_batch: int = 1
    """Of these, how many a device takes at a time."""
    max_tokens: int = 16_384
    """Of a demonstration."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a run, from the model of the part before."""

    name: str
    """Of its folder, behind the run's."""
    steps: int
    """How many it has."""
    response_tokens: int = 0
    """0: as the recipe says."""
    min_pass_rate: float = 0.0
    """Of the stage before: tasks below it are left out."""
    max_pass_rate: float = 1.0
    """Those above it, too. Tasks that it didn't draw stay."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One training run."""

    name: str
    """Of the run and its folder."""
    method: Method
    model: Model
    tasks: Tasks
    seed: int = 1
    """Every random choice of the run comes from it."""
    budget: Budget = field(default_factory=Budget)
    sampling: Sampling = field(default_factory=Sampling)
    batch: Batch = field(default_factory=Batch)
    update: Update = field(default_factory=Update)
    purify: Purify = field(default_factory=Purify)
    roc: Roc = field(default_factory=Roc)
    faults: Faults = field(default_factory=Faults)
    sandbox: Sandbox = field(default_factory=Sandbox)
    device: Device = field(default_factory=Device)
    run: Run = field(default_factory=Run)
    cold_start: ColdStart | None = None
    """None: the run begins with the model as it is."""
    stages: list[Stage] = field(default_factory=list)
    """None: all in one."""
    verl: dict[str, object] = field(default_factory=dict)
    """verl's own settings, nested or dotted; they have the last word."""

    def __post_init__(self) -> None:
        for refusal in (self._exactness(), self._correction(), self._sizes(), self._measure(), self._engine()):
            if refusal:
                raise RecipeError(refusal)
        # The policies check themselves; ask them now rather than in a worker.
        self.group_policy(), self.purify.policy()

    @property
    def prompt(self) -> str:
        """What the model is told."""
        return "no-tool" if self.method is Method.NO_TOOLS else self.tasks.prompt

    @property
    def attention(self) -> Attention:
        """Whose the model is trained with."""
        return Attention.TORCH if self.device.kind is DeviceKind.CPU else self.model.attention

    @property
    def sampled(self) -> int:
        """Rollouts drawn of a prompt."""
        return self.roc.sample if self.method.resamples else self.batch.rollouts

    @property
    def window(self) -> int:
        """Tokens that the engine must have room for: a lookahead stands beside the response while it lasts."""
        lookahead = self.budget.lookahead_tokens if self.method.live else 0
        return self.budget.prompt_tokens + self.budget.response_tokens + lookahead

    @property
    def smallest_group(self) -> int:
        """Usable rollouts that a group needs; with fewer it is refilled."""
        return self.batch.rollouts if self.method.resamples else self.faults.min_rollouts

    def group_policy(self) -> RocPolicy | PlainPolicy:
        """How a group is thinned out."""
        if not self.method.resamples:
            return PlainPolicy(self.smallest_group)
        roc = self.roc
        return RocPolicy(self.batch.rollouts, roc.min_positive, roc.min_negative, roc.positives, roc.quality_of)

    def _exactness(self) -> str:
        if self.method.edits and (self.sampling.temperature != 1 or self.sampling.top_p != 1):
            return (
                f"sampling.temperature is {self.sampling.temperature} and sampling.top_p {self.sampling.top_p}, but "
                "edited tokens are re-scored, and an engine scores at temperature 1 and top-p 1 only: set both to 1"
            )
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
        if self.run.keep_checkpoints == 1 or self.run.keep_checkpoints < 0:
            # verl removes the old one before it notes the new one as the last.
            return "run.keep_checkpoints must be 2 or more, or 0 for all: killed in between, a run would have none"
        if len({stage.name for stage in self.stages}) != len(self.stages):
            return "two stages have the same name; each has a folder of its own under it"
        return ""

    def _measure(self) -> str:
        known = similarity_measures()
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
