"""Open files: what a node holds of them, and how many are left for connections."""

from __future__ import annotations

import resource

from cleaner_rl.sandbox.config import NodeConfig

PER_SLOT = 16
"""A generous count of what the node holds open per slot and session: pipes, a pid, a folder."""
OF_ITS_OWN = 64
FEWEST_CONNECTIONS = 64


def connections_held(node: NodeConfig) -> int:
    """Raise the limit on open files as far as allowed; how many connections fit beside what the node itself needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    own = _of_slots(node) + PER_SLOT * node.sessions
    if hard < own + FEWEST_CONNECTIONS:
        raise ValueError(
            f"the limit of {hard} open files is too low for {node.slots} slots and {node.sessions} sessions, which "
            f"need {own}; raise it (ulimit -n) or ask for fewer"
        )
    return hard - own


def sessions_held(node: NodeConfig) -> int:
    """How many sessions fit into half of the open files; the others are for connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, hard // 2 - _of_slots(node)) // PER_SLOT


def _of_slots(node: NodeConfig) -> int:
    return OF_ITS_OWN + PER_SLOT * node.slots * len(node.preload)
