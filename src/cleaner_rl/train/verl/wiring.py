"""Checks, in each of verl's processes and before anything is trained, that our parts are in place.

verl silently replaces a part of ours that it doesn't load: rollouts would stay unrepaired, groups unfiltered, and
faults would be trained on. So a run without one of them refuses to start and names what is missing, and where.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from cleaner_rl.train.recipe.enums import Router
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.train.verl.plan import AGENT

PLUGIN = "cleaner_rl.train.verl.plugin"
_sampler: Any = None


class NotActiveError(RuntimeError):
    """A part of ours is missing in one of verl's processes; nothing was trained."""


def announce_sampler(sampler: object) -> None:
    """Make our sampler known to the manager, which lives in the same process and is created after it."""
    global _sampler
    _sampler = sampler


def active_sampler() -> Any:
    """Return the sampler of this process; raise `NotActiveError` if verl created its own instead."""
    if _sampler is None:
        raise NotActiveError("verl's own sampler is active: RoC, faults and the store would be left out")
    return _sampler


def refuse(problems: Iterable[str]) -> None:
    """Raise `NotActiveError` if there are any problems."""
    found = sorted({problem for problem in problems if problem})
    if found:
        raise NotActiveError("; ".join(found))


def plugin_missing(worker: Any) -> str:
    """Say what a process of verl's lacks of the plugin; runs in that process."""
    if PLUGIN in sys.modules:
        return ""
    return f"verl didn't load our plugin in {type(worker).__name__}: is cleaner-rl installed on that machine?"


def loop_missing(worker: Any) -> str:
    """Say what an agent-loop worker lacks; runs in its process."""
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    if AGENT not in _agent_loop_registry:
        return f"the agent loop '{AGENT}' isn't registered in {type(worker).__name__}"
    return plugin_missing(worker)


def router_missing(router: Any, recipe: Recipe, expected: type) -> str:
    """Say whether verl routes by another router than the `expected` one; runs in the router's process."""
    if recipe.run.router is Router.EVEN and not isinstance(router, expected):
        return f"run.router is even, but verl routes by {type(router).__name__}"
    return ""


def manager_missing(manager: object, expected: type) -> str:
    """Say whether the trainer has another manager than the `expected` one."""
    if isinstance(manager, expected):
        return ""
    return f"rollouts are handed out by {type(manager).__name__}: they wouldn't be oversampled, seeded or repaired"
