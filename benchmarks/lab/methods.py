"""The methods that the lab compares: each is a recipe's method, and the settings in which it differs from GRPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STEPS = 60
"""Steps of every run. A method with a schedule changes in the middle."""
HALF = STEPS // 2
RATES = (1e-4, 3e-4, 9e-4)
"""Learning rates that GRPO is tuned over before anything else."""
TUNING_STEPS = 20
REAL_STEPS = 5
"""Steps of a run of a real language model: as many as an hour or two allow."""
BASELINE = "grpo"

Settings = Mapping[str, Mapping[str, object]]
ROC: Settings = {"roc": {"sample": 16, "min_positive": 1, "min_negative": 1}}


@dataclass(frozen=True, slots=True)
class LabMethod:
    """One method of the comparison."""

    name: str
    label: str
    """Its name in plots and tables."""
    recipe_method: str
    """The recipe's `method`."""
    settings: Settings = field(default_factory=dict)
    """Settings of the recipe that override those that all methods share."""
    asks: str = ""
    """The question that an ablation answers; empty for the methods that are compared."""
    retired: bool = False
    """Whether its setting is gone. Its kept results stay on the page, and it is never run again."""

    @property
    def required(self) -> bool:
        """Whether it runs in every environment with every seed."""
        return not self.asks


REQUIRED = (
    LabMethod(BASELINE, "GRPO", "grpo"),
    LabMethod("hindsight-successes", "hindsight on successes", "hindsight", {"purify": {"scope": "successful"}}),
    LabMethod("saar", "SAAR", "saar"),
    LabMethod("hindsight", "hindsight on all", "hindsight"),
    LabMethod("saar-roc", "SAAR + RoC", "saar+roc", ROC),
    LabMethod("roc", "GRPO + RoC", "roc", ROC),
)
"""In the order in which they run, the most important comparison first."""

TUNING = tuple(
    LabMethod(
        f"grpo-lr-{rate:.0e}",
        f"GRPO, lr {rate:.0e}",
        "grpo",
        {"verl": {"actor_rollout_ref.actor.optim.lr": rate}},
        "Which learning rate suits GRPO?",
    )
    for rate in RATES
)

ABLATIONS = (
    LabMethod(
        "saar-failures-raw",
        "SAAR on successes",
        "saar",
        {"purify": {"scope": "successful"}},
        "Does it matter that SAAR also removes failed calls from unsuccessful trajectories?",
    ),
    LabMethod("saar-70", "SAAR on 70 %", "saar", {"purify": {"probability": 0.7}}, "Do some unrepaired failures help?"),
    LabMethod(
        "masked",
        "GRPO, failed turns masked",
        "grpo",
        {},
        "Is it enough to mask failed calls out of the loss?",
        retired=True,
    ),
    LabMethod(
        "mask",
        "mask",
        "mask",
        {},
        "Is it enough to leave failed calls out of the loss where they would be reinforced?",
    ),
    LabMethod(
        "deleted",
        "failed turns deleted",
        "hindsight",
        {"purify": {"threshold": 1.01}},
        "Is it enough to delete corrected failures, without grafting the correction onto the first reasoning?",
    ),
    LabMethod(
        "saar-late",
        "SAAR from step 30",
        "saar",
        {"purify": {"schedule": [[HALF, 0.0], [HALF + 1, 1.0]]}},
        "Can SAAR be switched on in the middle of a GRPO run?",
    ),
    LabMethod(
        "saar-then-hindsight",
        "SAAR, then hindsight",
        "saar",
        {"purify": {"schedule": [[HALF // 2, 1.0], [HALF, 0.0]], "fallback": "hindsight"}},
        "Does SAAR early and hindsight later combine the strengths of both?",
    ),
    LabMethod("no-tool", "no tools", "no-tools", {}, "How much does the tool contribute?"),
    LabMethod(
        "grpo-4-calls",
        "GRPO, 4 calls",
        "grpo",
        {"budget": {"turns": 5, "evaluation_turns": 3}},
        "Do more calls per rollout in training explain the gain?",
    ),
    LabMethod(
        "hindsight-4-calls",
        "hindsight on successes, 4 calls",
        "hindsight",
        {"purify": {"scope": "successful"}, "budget": {"turns": 5, "evaluation_turns": 3}},
        "Does hindsight gain from more calls per rollout, and so more self-corrections?",
    ),
    LabMethod(
        "saar-graft",
        "SAAR, always graft",
        "saar",
        {"purify": {"threshold": 0.0}},
        "Does the similarity threshold γ matter?",
    ),
    LabMethod(
        "saar-gamma-80",
        "SAAR, γ = 0.8",
        "saar",
        {"purify": {"threshold": 0.8}},
        "Does the similarity threshold γ matter?",
    ),
    LabMethod(
        "saar-gamma-100",
        "SAAR, γ = 1",
        "saar",
        {"purify": {"threshold": 1.0}},
        "Does the similarity threshold γ matter?",
    ),
    LabMethod(
        "saar-replace",
        "SAAR, always replace",
        "saar",
        {"purify": {"threshold": 1.01}},
        "Does the similarity threshold γ matter?",
    ),
    LabMethod(
        "saar-k1", "SAAR, K = 1", "saar", {"purify": {"attempts": 1}}, "How many attempts does a lookahead need?"
    ),
    LabMethod(
        "saar-k5", "SAAR, K = 5", "saar", {"purify": {"attempts": 5}}, "How many attempts does a lookahead need?"
    ),
    LabMethod(
        "saar-sampled",
        "SAAR, sampled log-probs",
        "saar",
        # The sampled log-probs are weighed against the recomputed ones, which bypass mode would skip.
        {"purify": {"graft_logprobs": "sampled"}, "verl": {"algorithm.rollout_correction.bypass_mode": False}},
        "Does it matter in which context the log-probs of a graft are taken?",
    ),
    LabMethod(
        "grpo-dynamic",
        "GRPO, dynamic sampling",
        "grpo",
        {"batch": {"dynamic_sampling": True}},
        "What does dynamic sampling add?",
    ),
    LabMethod(
        "saar-dynamic",
        "SAAR, dynamic sampling",
        "saar",
        {"batch": {"dynamic_sampling": True}},
        "What does dynamic sampling add?",
    ),
    LabMethod(
        "hindsight-dynamic",
        "hindsight, dynamic sampling",
        "hindsight",
        {"batch": {"dynamic_sampling": True}},
        "What does dynamic sampling add?",
    ),
)

METHODS = {method.name: method for method in (*REQUIRED, *TUNING, *ABLATIONS)}
