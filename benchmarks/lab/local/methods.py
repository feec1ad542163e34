"""The methods that are compared in worlds: a recipe's method, its settings, and what no recipe for verl can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.lab.environments import REAL
from benchmarks.lab.local.beyond import Beyond
from benchmarks.lab.methods import ROC
from benchmarks.lab.recipes import laid
from cleaner_rl.train.rows import Views

WITH_OTHERS = ("drift", "drift-unhinted")
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


def _hindsight(label: str, beyond: Beyond = Beyond(), **settings: Mapping[str, Any]) -> Method:  # noqa: B008 - frozen
    return Method(label, "hindsight", laid({}, ON_SUCCESSES, settings), beyond)


GRPO, SAAR, HINDSIGHT = "grpo", "saar", "hindsight"
COMPARATORS = (GRPO, SAAR, HINDSIGHT)
TWO_VIEWS, OURS = "two-views", "two-views-rescue"
FULL, RESCUE = Beyond(Views.FULL), {"share": 0.2}
COMPARED = {
    GRPO: Method("GRPO", "grpo"),
    SAAR: Method("SAAR", "saar"),
    HINDSIGHT: _hindsight("hindsight"),
    TWO_VIEWS: _hindsight("two views", FULL),
    OURS: _hindsight("two views + rescue", FULL, rescue=RESCUE),
}
"""In every environment."""
OTHERS = {
    "grpo-larger": Method("GRPO, groups of 10", "grpo", {"batch": {"rollouts": 10}}),
    "dapo": Method("DAPO (dynamic sampling)", "grpo", {"batch": {"dynamic_sampling": True}}),
    "roc": Method("RoC", "roc", ROC),
    "saar-roc": Method("SAAR + RoC", "saar+roc", ROC),
    "saar-failures-raw": Method("SAAR on successes", "saar", ON_SUCCESSES),
    "mask": Method("mask", "mask"),
}
"""In `WITH_OTHERS`."""
VARIANTS = {
    "two-views-one": _hindsight("one view by seed", Beyond(Views.ONE)),
    "two-views-shared": _hindsight("two views at half weight", Beyond(Views.SHARED)),
    "two-views-sequence-mean": _hindsight("two views, sequence mean", Beyond(Views.FULL, sequence_mean=True)),
    "two-views-max-gap": _hindsight("two views, log-prob gap at most 3", FULL, purify={"max_logprob_gap": 3.0}),
    "two-views-one-rescue": _hindsight("one view by seed + rescue", Beyond(Views.ONE), rescue=RESCUE),
    "hindsight-rescue": _hindsight("hindsight + rescue", rescue=RESCUE),
    "rescue-share-0.4": _hindsight("rescue with 0.4 of a group's tokens", FULL, rescue={"share": 0.4}),
    "rescue-share-1": _hindsight("rescue with as many tokens as a group", FULL, rescue={"share": 1.0}),
    "rescue-replaces": _hindsight("rescue takes a wrong one's place", FULL, rescue={**RESCUE, "rows": "replace"}),
    "rescue-capped": _hindsight("rescue, advantage at most 1", FULL, rescue={**RESCUE, "advantage": "capped"}),
    "rescue-only": _hindsight("rescue, wrong ones not suppressed", FULL, rescue={**RESCUE, "advantage": "rescue_only"}),
}
"""In development worlds."""
METHODS = COMPARED | OTHERS | VARIANTS


def methods_in(environment: str) -> list[str]:
    """Return the methods that run in every world of an environment."""
    if environment == REAL:
        return [GRPO, OURS]
    return [*COMPARED, *(OTHERS if environment in WITH_OTHERS else ())]
