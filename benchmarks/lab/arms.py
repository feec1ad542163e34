"""What is compared: each arm is a name, a method, and the settings of the recipe in which it differs from DAPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STEPS = 60
"""Of every run. In half of them an arm that changes its ways does."""
HALF = STEPS // 2
RATES = (1e-4, 3e-4, 9e-4)
"""Learning rates that DAPO is tried with before anything else."""
TUNING_STEPS = 20
REAL_STEPS = 5
"""Of a real language model: as many as an hour or two allow."""
BASELINE = "dapo"

Settings = Mapping[str, Mapping[str, object]]
ROC: Settings = {"roc": {"sample": 16, "min_positive": 1, "min_negative": 1}}


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to train."""

    name: str
    label: str
    """For plots and tables."""
    method: str
    settings: Settings = field(default_factory=dict)
    """Sections of the recipe, laid over those that all arms share."""
    asks: str = ""
    """What a control is there to find out."""

    @property
    def required(self) -> bool:
        """Whether it runs in every regime, with every seed."""
        return not self.asks


REQUIRED = (
    Arm(BASELINE, "DAPO", "dapo"),
    Arm("hindsight-successes", "hindsight, successes only", "hindsight", {"purify": {"which": "successful"}}),
    Arm("saar", "SAAR", "cleaner"),
    Arm("hindsight", "hindsight, all", "hindsight"),
    Arm("saar-roc", "SAAR + RoC", "cleaner+roc", ROC),
    Arm("roc", "DAPO + RoC", "roc", ROC),
)
"""In the order in which they run: should the time be short, the comparison that was asked for first is there first."""

TUNING = tuple(
    Arm(
        f"dapo-lr-{rate:.0e}",
        f"DAPO, lr {rate:.0e}",
        "dapo",
        {"update": {"lr": rate}},
        "which learning rate suits DAPO?",
    )
    for rate in RATES
)

CONTROLS = (
    Arm(
        "saar-failures-raw",
        "SAAR, failures raw",
        "cleaner",
        {"purify": {"which": "successful"}},
        "does it matter that SAAR erases failed calls from failed trajectories?",
    ),
    Arm("saar-70", "SAAR on 70 %", "cleaner", {"purify": {"probability": 0.7}}, "do some raw failures help?"),
    Arm(
        "masked",
        "DAPO, failed turns masked",
        "dapo",
        {"update": {"learn_failed": False}},
        "is it enough not to learn from failed calls?",
    ),
    Arm(
        "deleted",
        "failed turns deleted",
        "hindsight",
        {"purify": {"threshold": 1.01}},
        "is it enough to delete mended failures, with nothing grafted onto the first reasoning?",
    ),
    Arm(
        "saar-late",
        "SAAR from the middle",
        "cleaner",
        {"purify": {"schedule": [[HALF, 0.0], [HALF + 1, 1.0]]}},
        "can SAAR be switched on in the middle of a DAPO run?",
    ),
    Arm(
        "saar-then-hindsight",
        "SAAR, then hindsight",
        "cleaner",
        {"purify": {"schedule": [[HALF // 2, 1.0], [HALF, 0.0]], "otherwise": "hindsight"}},
        "does lookahead early and hindsight later give the best of both?",
    ),
    Arm("no-tool", "no tool", "no-tools", {}, "what is the tool worth to a model that learnt to use it?"),
    Arm(
        "dapo-4-calls",
        "DAPO, twice the calls",
        "dapo",
        {"budget": {"turns": 5, "evaluation_turns": 3}},
        "are more attempts in training all there is to it?",
    ),
    Arm(
        "hindsight-4-calls",
        "hindsight, successes only, twice the calls",
        "hindsight",
        {"purify": {"which": "successful"}, "budget": {"turns": 5, "evaluation_turns": 3}},
        "does hindsight gain where a rollout has more chances to mend itself?",
    ),
    Arm("saar-graft", "SAAR, always graft", "cleaner", {"purify": {"threshold": 0.0}}, "does the choice by γ matter?"),
    Arm("saar-gamma-80", "SAAR, γ = 0.8", "cleaner", {"purify": {"threshold": 0.8}}, "does the choice by γ matter?"),
    Arm("saar-gamma-100", "SAAR, γ = 1", "cleaner", {"purify": {"threshold": 1.0}}, "does the choice by γ matter?"),
    Arm(
        "saar-replace",
        "SAAR, always replace",
        "cleaner",
        {"purify": {"threshold": 1.01}},
        "does the choice by γ matter?",
    ),
    Arm("saar-k1", "SAAR, K = 1", "cleaner", {"purify": {"attempts": 1}}, "how many attempts does a lookahead need?"),
    Arm("saar-k5", "SAAR, K = 5", "cleaner", {"purify": {"attempts": 5}}, "how many attempts does a lookahead need?"),
    Arm(
        "saar-sampled",
        "SAAR, sampled log-probs",
        "cleaner",
        # Here the recomputed log-probs are what the sampled ones are weighed against.
        {"purify": {"graft_logprobs": "sampled"}, "verl": {"algorithm.rollout_correction.bypass_mode": False}},
        "does it matter under which context a graft's log-probs are taken?",
    ),
    Arm(
        "dapo-dynamic", "DAPO, dynamic sampling", "dapo", {"batch": {"dynamic_sampling": True}}, "with groups refilled?"
    ),
    Arm(
        "saar-dynamic",
        "SAAR, dynamic sampling",
        "cleaner",
        {"batch": {"dynamic_sampling": True}},
        "with groups refilled?",
    ),
    Arm(
        "hindsight-dynamic",
        "hindsight, dynamic sampling",
        "hindsight",
        {"batch": {"dynamic_sampling": True}},
        "with groups refilled?",
    ),
)

ARMS = {arm.name: arm for arm in (*REQUIRED, *TUNING, *CONTROLS)}
