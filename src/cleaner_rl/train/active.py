"""Is every part of ours where it should be? Asked in each of verl's processes before anything is trained.

A part that verl doesn't load is silently replaced by verl's own: rollouts would go unrepaired, groups unthinned, faults
trained on. So a run without one of them refuses to start, and says which is missing where.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from cleaner_rl.train.choices import Router
from cleaner_rl.train.plan import AGENT
from cleaner_rl.train.recipe import Recipe

PLUGIN = "cleaner_rl.train.plugin"


class NotActiveError(RuntimeError):
    """A part of ours isn't where it should be in one of verl's processes; nothing was trained."""


def refuse(problems: Iterable[str]) -> None:
    """Raise `NotActiveError` if there are any."""
    found = sorted({problem for problem in problems if problem})
    if found:
        raise NotActiveError("; ".join(found))


def plugin_missing(worker: Any) -> str:
    """What a process of verl's lacks of the plugin; it runs there."""
    if PLUGIN in sys.modules:
        return ""
    return f"verl didn't load our plugin in {type(worker).__name__}: is cleaner-rl installed on that machine?"


def loop_missing(worker: Any) -> str:
    """What an agent-loop worker lacks; it runs there."""
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    if AGENT not in _agent_loop_registry:
        return f"the agent loop '{AGENT}' isn't registered in {type(worker).__name__}"
    return plugin_missing(worker)


def router_missing(router: Any, recipe: Recipe) -> str:
    """What a router lacks; it runs in the router's process."""
    from cleaner_rl.train.router import EvenRouter

    if recipe.device.router is Router.EVEN and not isinstance(router, EvenRouter):
        return f"device.router is even, but verl routes by {type(router).__name__}"
    return ""


def sampler_missing(sampler: object) -> str:
    """What is wrong with the trainer's sampler, seen from the manager."""
    from cleaner_rl.train.sampler import CleanerSampler

    if isinstance(sampler, CleanerSampler):
        return ""
    return "verl's own sampler is active: RoC, faults and the store would be left out"


def manager_missing(manager: object) -> str:
    """What is wrong with the trainer's manager, seen from the sampler."""
    from cleaner_rl.train.manager import CleanerManager

    if isinstance(manager, CleanerManager):
        return ""
    return f"rollouts are handed out by {type(manager).__name__}: they wouldn't be oversampled, seeded or repaired"
