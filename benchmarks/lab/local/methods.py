"""The methods that are compared in worlds: a recipe's method, its settings, and what no recipe for verl can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.lab.local.beyond import Beyond, GateConfig
from benchmarks.lab.methods import ROC
from benchmarks.lab.recipes import laid

WITH_OTHERS = ("drift", "drift-guess")
"""Environments in which more methods are compared."""
ON_SUCCESSES: Mapping[str, Any] = {"purify": {"scope": "successful"}}


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the comparison."""

    label: str
    recipe_method: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of the recipe that override those that all methods share."""
    beyond: Beyond = field(default_factory=Beyond)
    longer: Mapping[str, float] = field(default_factory=dict)
    """By environment: by how much it has more steps than the others."""


def _hindsight(label: str, beyond: Beyond = Beyond(), **settings: Mapping[str, Any]) -> Method:  # noqa: B008 - frozen
    return Method(label, "hindsight", laid({}, ON_SUCCESSES, settings), beyond)


GRPO, SAAR, HINDSIGHT = "grpo", "saar", "hindsight"
COMPARATORS = (GRPO, SAAR, HINDSIGHT)
TWO_VIEWS, OURS = "two-views", "two-views-rescue"
ONE_VIEW, ANY_GAP = {"views": "one"}, {"views": "full"}
BOTH_VIEWS = {**ANY_GAP, "max_logprob_gap": 0.3}
"""Both views of repairs that the model would not be surprised by, chosen in development worlds."""
RESCUE, WITH_RESCUE = {"share": 0.2, "advantage": "group"}, "two views + rescue"


def _rescue(what: str, beyond: Beyond = Beyond(), purify: Mapping[str, Any] = BOTH_VIEWS, **rescue: Any) -> Method:  # noqa: B008 - frozen
    return _hindsight(f"{WITH_RESCUE}, {what}", beyond, purify=purify, rescue={**RESCUE, **rescue})


COMPARED = {
    GRPO: Method("GRPO", "grpo"),
    SAAR: Method("SAAR", "saar"),
    HINDSIGHT: _hindsight("hindsight on successes"),
    TWO_VIEWS: _hindsight("two views", purify=BOTH_VIEWS),
    OURS: _hindsight(WITH_RESCUE, purify=BOTH_VIEWS, rescue=RESCUE),
}
"""In every environment."""
OTHERS = {
    "grpo-larger": Method("GRPO, groups of 10", "grpo", {"batch": {"rollouts": 10}}),
    "grpo-dynamic-sampling": Method("GRPO + dynamic sampling", "grpo", {"batch": {"dynamic_sampling": True}}),
    "roc": Method("RoC", "roc", ROC),
    "saar-roc": Method("SAAR + RoC", "saar+roc", ROC),
    "saar-successes": Method("SAAR on successes", "saar", ON_SUCCESSES),
    "mask": Method("mask", "mask"),
}
"""In `WITH_OTHERS`."""
VARIANTS = {
    "any-gap": _rescue("any log-prob gap", purify=ANY_GAP),
    "two-views-one-rescue": _hindsight("one view by seed + rescue, any log-prob gap", purify=ONE_VIEW, rescue=RESCUE),
    "any-gap-sampled-logprobs": _rescue(
        "any gap, log-probs as sampled", purify={**ANY_GAP, "graft_logprobs": "sampled"}
    ),
    "any-gap-importance-0.5": _rescue("any gap, square root of the importance weight", Beyond(importance=0.5), ANY_GAP),
    "any-gap-clean-0.3": _rescue("any gap, clean view with a weight of 0.3", Beyond(clean_weight=0.3), ANY_GAP),
    "any-gap-trains-failed": _rescue("any gap, failed turns trained", Beyond(trains_failed=True), ANY_GAP),
    "any-gap-spares-failed": _rescue(
        "any gap, failed turns of wrong rollouts masked", Beyond(spares_failed=True), ANY_GAP
    ),
    "two-views-mass-1": _hindsight("two views, mass 1", purify={**BOTH_VIEWS, "mass": 1.0}),
    "two-views-mass-1.5": _hindsight("two views, mass 1.5", purify={**BOTH_VIEWS, "mass": 1.5}),
    "clean-mass-2": _hindsight("clean view, mass 2", purify={**BOTH_VIEWS, "views": "clean", "mass": 2.0}),
    "two-views-one": _hindsight("one view by seed", purify={**BOTH_VIEWS, **ONE_VIEW}),
    "two-views-shared": _hindsight(
        "two views at half weight", Beyond(clean_weight=0.5, recovery_weight=0.5), purify=BOTH_VIEWS
    ),
    "two-views-sequence-mean": _hindsight("two views, sequence mean", Beyond(sequence_mean=True), purify=BOTH_VIEWS),
    "hindsight-rescue": _hindsight("hindsight on successes + rescue", rescue=RESCUE),
    "rescue-share-0.4": _rescue("0.4 of a group's tokens", share=0.4),
    "rescue-share-1": _rescue("as many tokens as a group", share=1.0),
    "rescue-6-attempts": _rescue("six corrections, 0.4 of a group's tokens", attempts=6, share=0.4),
    "rescue-replaces": _rescue("in a wrong one's place", rows="replace"),
    "rescue-capped": _rescue("advantage at most 1", advantage="capped"),
    "rescue-only": _rescue("wrong ones not suppressed", advantage="rescue_only"),
}
"""In development worlds."""
GATE, GATE_OR_BOUND = GateConfig(), GateConfig(bound=0.3, prior=0.0)
"""The gate as written, and one that is as strict as the bound where no two other tasks agree."""
OWN_COST = Beyond(own_cost=True)
LONGER = {"drift": 1.4, "drift-guess": 1.3, "starved": 2.4}
"""What two views take beside GRPO in the kept runs: of tokens in the loss and of CPU time the larger; else the same."""
EQUAL = {
    "gate": _hindsight("two views, gate", Beyond(gate=GATE), purify=ANY_GAP),
    "gate-or-bound": _hindsight("two views, gate or bound", Beyond(gate=GATE_OR_BOUND), purify=ANY_GAP),
    "gate-or-bound-mass-1": _hindsight(
        "two views, gate or bound, mass 1", Beyond(gate=GATE_OR_BOUND), purify={**ANY_GAP, "mass": 1.0}
    ),
    "gate-or-bound-mass-1.5": _hindsight(
        "two views, gate or bound, mass 1.5", Beyond(gate=GATE_OR_BOUND), purify={**ANY_GAP, "mass": 1.5}
    ),
    "gate-or-bound-own-cost": _hindsight(
        "two views, gate or bound, failed turns at their own cost",
        Beyond(gate=GATE_OR_BOUND, own_cost=True),
        purify=ANY_GAP,
    ),
    "two-views-balanced": _hindsight(
        "two views, as many positive tokens as negative", Beyond(most_positive=1.0), purify=BOTH_VIEWS
    ),
    "grpo-own-cost": Method("GRPO, failed turns at their own cost", "grpo", beyond=OWN_COST),
    "grpo-longer": Method("GRPO, more steps", "grpo", longer=LONGER),
    "grpo-no-void": Method("GRPO without void turns", "grpo", beyond=Beyond(drops_void=True)),
    **{
        f"grpo-penalty-{each}": Method(
            f"GRPO, {each} off per failed call",
            "grpo",
            {"tasks": {"graders": {"answer": 1.0, "failed_calls": each}}},
        )
        for each in (0.1, 0.25, 0.5)
    },
}
"""At equal compute, in development worlds."""
METHODS = COMPARED | OTHERS | VARIANTS | EQUAL
AT_EQUAL_COMPUTE = (
    *(GRPO, TWO_VIEWS, "gate-or-bound", "two-views-mass-1"),
    *("grpo-own-cost", "gate-or-bound-mass-1", "two-views-mass-1.5", "gate-or-bound-own-cost"),
    *("grpo-longer", "grpo-larger", HINDSIGHT, "mask"),
    *("gate", "two-views-balanced", "grpo-dynamic-sampling", "roc"),
    *("grpo-penalty-0.1", "grpo-penalty-0.25", "grpo-penalty-0.5", "grpo-no-void"),
)
"""What runs at equal compute, in this order: four methods everywhere, then the next four."""
