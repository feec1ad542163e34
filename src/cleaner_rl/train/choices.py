"""What a recipe chooses between, by the names that it is written with."""

from __future__ import annotations

from enum import StrEnum


class Method(StrEnum):
    """What is done with failed calls, and with groups."""

    DAPO = "dapo"
    ROC = "roc"
    CLEANER = "cleaner"
    HINDSIGHT = "hindsight"
    CLEANER_ROC = "cleaner+roc"
    HINDSIGHT_ROC = "hindsight+roc"
    NO_TOOLS = "no-tools"
    """As `dapo`, of a model that is told of no tool and whose text is never read as a call."""

    @property
    def live(self) -> bool:
        """Whether failures are repaired while the rollout runs (SAAR)."""
        return self in (Method.CLEANER, Method.CLEANER_ROC)

    @property
    def hindsight(self) -> bool:
        """Whether failures are collapsed afterwards."""
        return self in (Method.HINDSIGHT, Method.HINDSIGHT_ROC)

    @property
    def edits(self) -> bool:
        """Whether trajectories are edited at all."""
        return self.live or self.hindsight

    @property
    def resamples(self) -> bool:
        """Whether groups are oversampled and thinned out (GRPO-RoC)."""
        return self in (Method.ROC, Method.CLEANER_ROC, Method.HINDSIGHT_ROC)


class Dtype(StrEnum):
    """The numbers that a model is trained and served in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Attention(StrEnum):
    """Whose attention a model is trained with on GPUs; on a processor it is torch's. Engines have their own."""

    FLASH = "flash_attention_2"
    """flash-attn's, a package that has to be built for the torch that is there."""
    TORCH = "sdpa"
    """torch's own, which needs nothing more; verl then also takes more memory for log-probs."""


class GraftLogprobs(StrEnum):
    """Which log-prob of a moved token the trainer takes for the rollout's."""

    RESCORED = "rescored"
    """In the clean context, as if it had been sampled there: the paper."""
    SAMPLED = "sampled"
    """As it was really drawn, so that a token's importance weight is π_old(clean) over π(lookahead)."""


class Otherwise(StrEnum):
    """What becomes of trajectories that `probability` leaves out of a live repair."""

    RAW = "raw"
    """They stay as they were sampled: the paper."""
    HINDSIGHT = "hindsight"
    """They are collapsed afterwards; with a schedule, lookahead first and hindsight later."""


class Correction(StrEnum):
    """verl's importance correction between rollout and trainer."""

    NONE = "none"
    TOKEN = "token"
    SEQUENCE = "sequence"


class DeviceKind(StrEnum):
    """What the model runs on."""

    GPU = "gpu"
    CPU = "cpu"


class Router(StrEnum):
    """Who chooses the replica of a request."""

    VERL = "verl"
    """verl's own: where the trajectory was, or the fewest requests are."""
    EVEN = "even"
    """Ours: the work left is kept even (`cleaner_rl.rollout.balance`)."""


class TrainerMode(StrEnum):
    """How rollouts and updates take turns: verl's own names."""

    SYNC = "sync"
    COLOCATE_ASYNC = "colocate_async"
    SEPARATE_ASYNC = "separate_async"
