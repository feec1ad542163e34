"""Defines a recipe: every setting of ours of a training run, as typed data.

`load` reads it from YAML, and `overrides` turns it into verl's configuration. Defaults are the CLEANER paper's where
the paper has the setting. Everything that verl has a setting for is written in verl's own words in the mapping `verl`.
Some settings here are verl's too, because our own loop reads them or because they are several settings of verl's:
`batch`, most of `budget`, `tasks`, `seed` and the model's path.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from cleaner_rl.purify import SIMILARITY_MEASURES, OnUnrepaired, PurifyConfig, PurifyScope, RepairConfig, Schedule
from cleaner_rl.resample import PlainConfig, PositiveSelection, QualityOf, RocConfig
from cleaner_rl.tasks import RewardScale
from cleaner_rl.train.recipe.enums import Fallback, Method, Router
from cleaner_rl.train.record import StepConfig
from cleaner_rl.train.rows import GraftLogprobs, OverlongPenalty, RescueAdvantage, RescueRows, RowConfig, Views

Positive = Annotated[int, Meta(ge=1)]
"""A count of something that there must be."""
Count = Annotated[int, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveShare = Annotated[float, Meta(gt=0, le=1)]
_PAPER = PurifyConfig()
"""The purifier's own defaults, which are the recipe's."""


class RecipeError(ValueError):
    """A recipe can't be run; the message says why and what to change."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of the model that is trained."""

    path: str
    """A folder in Hugging Face format, or a name on the hub."""
    renderer: str = ""
    """A template of the package `renderers`, such as `qwen3.5`, for a model without a chat template; empty: its own."""


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
    graders: dict[str, float] = field(default_factory=lambda: {"answer": 1.0})
    """Weight of each grader in the reward. `answer` is the task's own; others are `format`, `failed_calls` (a penalty
    on each), installed graders, and functions by `FILE.py:FUNCTION`."""


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Limits of one rollout."""

    prompt_tokens: Positive = 2_560
    """The longest prompt, tools and instructions included; a run with a longer one is refused."""
    response_tokens: Positive = 20_480
    """The longest response: all tokens after the prompt, the model's and the tools'."""
    turns: Positive = 16
    """Turns of the model, the answer included. A repaired turn counts once."""
    evaluation_turns: Count = 0
    """Turns in evaluation; 0: as many as in training."""
    lookahead_tokens: Count = 20_480
    """Tokens that all lookaheads of one rollout may sample. They don't count as response, but the engine holds them
    beside it: with SAAR the model needs positions for `prompt_tokens` + `response_tokens` + `lookahead_tokens`."""
    seconds: Amount = 0
    """Wall time after which a rollout ends and isn't trained on; 0: no limit."""
    overlong_buffer: Count = 4_096
    """Length of the response's end over which the reward falls by up to `overlong_penalty`; 0: no penalty."""
    overlong_penalty: Amount = 1.0
    """Penalty on a response that uses all of its tokens."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Sizes of a step."""

    prompts: Positive = 128
    """Prompts per step."""
    mini_batch: Positive = 32
    """Prompts per update of the weights."""
    rollouts: Annotated[int, Meta(ge=2)] = 16
    """Rollouts per prompt that are trained on; the advantage is relative to them."""
    dynamic_sampling: bool = True
    """Replace zero-variance groups, which all rollouts solved or none did: they have no gradient."""


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
    mass: float | None = None
    """How much such a rollout counts, where any other counts 1; its rows share it. None: each row counts 1."""

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
            mass=self.mass,
        )

    def rest(self) -> PurifyConfig | None:
        """Return the settings of hindsight on trajectories that SAAR leaves out; None if they stay raw."""
        if self.fallback is Fallback.RAW:
            return None
        return replace(self.config(), probability=1.0)


@dataclass(frozen=True, slots=True)
class RescueSettings:
    """Settings of rescues. A rescue looks for a right rollout for a group in which all rollouts are wrong."""

    attempts: Positive = 3
    """Corrections of the first failed call that a rescue samples at most."""
    share: PositiveShare = 0.2
    """Tokens that a rescue may sample, as a share of what its group sampled."""
    rows: RescueRows = RescueRows.JOIN
    """`join`: the rescued rollout is one more row of its group. `replace`: it takes the place of the wrong rollout that
    it began with. With RoC it is one more rollout to select from in either case."""
    advantage: RescueAdvantage = RescueAdvantage.CAPPED
    """Advantages of a rescued group. `capped`: as in any group, but the rescue's is at most 1. `group`: without that
    cap. `rescue_only`: those of wrong rollouts are 0."""


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

    min_rollouts: Positive = 2
    """A group with fewer usable rollouts is replaced. With RoC the bound is `batch.rollouts`."""
    max_share: Share = 0.2
    """The share of a step's rollouts that may be faults; above it the run stops."""
    stall_minutes: PositiveFloat = 60
    """The run stops if no rollout has finished for this long."""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Settings of the sandbox: a node that the run starts, or nodes by their addresses."""

    addresses: list[str] = field(default_factory=list)
    """URLs, `dns://name:port` or `ray:`; empty: the run starts its own node."""
    slots: Count = 0
    """Slots of the run's own node; 0: two per core."""
    environment: str = "science"
    """Environment of the calls of tasks that name none: its name, or its path for the run's own node."""
    environments: list[str] = field(default_factory=list)
    """More environments of the run's own node, which tasks name (`extra["environment"]`): names, patterns or paths."""
    token_file: str = ""
    """A file that holds one token and nothing else, for nodes by address."""
    cpu_seconds: PositiveFloat = 10.0
    """CPU time that a call may use."""
    memory_mb: Positive = 512
    """Memory that a call may hold."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Length of the run, its folder and its router. Checkpoints, evaluation and loggers are verl's (`verl.trainer`)."""

    steps: Count = 0
    """Number of steps, over as many epochs as that takes; 0: as many as `verl.trainer.total_epochs` gives."""
    folder: str = "runs"
    """The folder that holds the run's own folder, which has the run's name."""
    router: Router = Router.VERL


@dataclass(frozen=True, slots=True)
class StageSettings:
    """Settings of one stage, which begins with the model of the stage before."""

    name: str
    """Name of the stage; its folder has the run's name in front."""
    steps: Positive
    """Number of steps."""
    response_tokens: Count = 0
    """The longest response of this stage; 0: the recipe's `budget.response_tokens`."""
    min_pass_rate: Share = 0.0
    """Leave out tasks whose pass rate in the stage before is lower."""
    max_pass_rate: Share = 1.0
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
    batch: BatchSettings = field(default_factory=BatchSettings)
    purify: PurifySettings = field(default_factory=PurifySettings)
    rescue: RescueSettings | None = None
    """Rescue of groups in which all rollouts are wrong; None: off. `rescue: {}` turns it on if the method repairs."""
    roc: RocSettings = field(default_factory=RocSettings)
    faults: FaultSettings = field(default_factory=FaultSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    run: RunSettings = field(default_factory=RunSettings)
    cold_start: dict[str, object] | None = None
    """Supervised fine-tuning before RL, in the words of verl's SFT trainer; `data.train_files` is required. None: RL
    begins with `model.path` as it is."""
    stages: list[StageSettings] = field(default_factory=list)
    """Stages of the run; empty: the run has no stages."""
    verl: dict[str, object] = field(default_factory=dict)
    """verl's settings in verl's own words, nested or dotted; they override all others."""

    def __post_init__(self) -> None:
        for check in (self._views, self._rescue, self._sizes, self._measure):
            if refusal := check():
                raise RecipeError(refusal)
        # These check themselves; better here than in a worker.
        self.group_config(), self.purify.config()

    @property
    def prompt(self) -> str:
        """Return the prompt that the model is given."""
        return "no-tool" if self.method is Method.NO_TOOLS else self.tasks.prompt

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
            mass=purify.mass,
            rescue_rows=rescue.rows,
            rescue_advantage=rescue.advantage,
        )

    def step_config(self) -> StepConfig:
        """Return how large a step is, and how many of its rollouts may be faults."""
        return StepConfig(self.name, self.batch.prompts, self.sampled, self.faults.max_share)

    def overlong(self) -> OverlongPenalty:
        """Return the penalty on overlong responses."""
        budget = self.budget
        return OverlongPenalty(budget.response_tokens, budget.overlong_buffer, budget.overlong_penalty)

    def _views(self) -> str:
        views = self.purify.views
        if views is not Views.CLEAN and not self.method.hindsight:
            return (
                f"purify.views is {views}, which needs repairs in hindsight, but the method is {self.method}: "
                "set purify.views=clean"
            )
        if self.purify.mass is not None and not self.method.hindsight:
            return f"purify.mass weighs repairs in hindsight, and the method {self.method} makes none: leave it out"
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

    def _sizes(self) -> str:
        if self.method.resamples and self.roc.sample < self.batch.rollouts:
            return f"roc.sample is {self.roc.sample}, fewer than the batch.rollouts={self.batch.rollouts} that are kept"
        if self.batch.prompts % self.batch.mini_batch:
            return f"batch.prompts={self.batch.prompts} can't be cut into mini-batches of {self.batch.mini_batch}"
        if self.budget.overlong_buffer >= self.budget.response_tokens:
            return "budget.overlong_buffer takes up the whole response; make it shorter than budget.response_tokens"
        if self.purify.max_logprob_gap is not None and self.purify.max_logprob_gap <= 0:
            return f"purify.max_logprob_gap is {self.purify.max_logprob_gap}; give a positive number, or leave it out"
        if len({stage.name for stage in self.stages}) != len(self.stages):
            return "two stages have the same name; each has a folder of its own under it"
        return ""

    def _measure(self) -> str:
        known = SIMILARITY_MEASURES
        if self.purify.measure not in known:
            return f"purify.measure is '{self.purify.measure}'; it can be {', '.join(known)}"
        return ""


def run_folder(recipe: Recipe) -> Path:
    """Return the folder of a run."""
    return (Path(recipe.run.folder).expanduser() / recipe.name).absolute()


def part_folders(recipe: Recipe) -> list[Path]:
    """Return the folders of a run that hold a plan and a store: its own, or one for each stage."""
    folder = run_folder(recipe)
    return [folder / f"{recipe.name}-{stage.name}" for stage in recipe.stages] or [folder]
