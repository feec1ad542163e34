"""How a node is set up, what it says of itself, and what its zygotes have to know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cleaner_sandbox.inside import kernel
from cleaner_sandbox.isolation import layout, seccomp
from cleaner_sandbox.isolation.tiers import Layer, Tier
from cleaner_sandbox.preload import PreloadSet, installed_sets
from cleaner_sandbox.protocol.limits import Limits

FIRST_UID = 1_900_000_000
"""Of the host's uids, the first that slots use: two each, out of the way of people's and containers'."""


PER_SLOT = 16
"""A generous count of the files that a node holds open per slot and session: pipes, a pid, a folder."""
OF_ITS_OWN = 64
FEWEST_CONNECTIONS = 64


BASES = "bases"
"""In the node's folder: the copies of the bases that sessions have asked for."""
FOLDER_PREFIX = "cleaner-sandbox-"
"""Of folders for temporary files; the process that they belong to follows, for `node.sweep`."""


def cores() -> int:
    """That this process may use: a scheduler often gives it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Sets up a node: how many programs it runs at once, what they find preloaded, and how strongly it isolates them.

    Examples:
        >>> from cleaner_sandbox import BARE, Limits, NodeConfig, Tier
        >>> config = NodeConfig(slots=8, preload=(BARE,), min_tier=Tier.T2, limits=Limits(cpu_seconds=5.0))
        >>> config.sessions
        64
    """

    slots: int = field(default_factory=lambda: 2 * cores())
    """Runs at the same time; more calls wait."""
    preload: tuple[PreloadSet, ...] = field(default_factory=installed_sets)
    """Smallest first: a call that names none gets the first that has all it imports, or the last."""
    tier: Tier | None = None
    """None: the highest that works here."""
    min_tier: Tier = Tier.T1
    """The node refuses to start below it."""
    without: frozenset[Layer] = frozenset()
    """Layers left out of the tier, to see what they stop; only with `min_tier=Tier.NONE`, never for untrusted code."""
    limits: Limits = field(default_factory=Limits)
    """Limits of calls that name none."""
    maxima: Limits = field(default_factory=lambda: Limits(60.0, 300.0, 4096, 256, 1024, 65_536, 1024, 16_777_216))
    """What a call may ask for; above it, its limits are clipped."""
    keep_chars: int = 65_536
    """Characters of stdout and of stderr that a result keeps, if the call doesn't say."""
    fetch_bytes: int = 16_777_216
    """Most bytes of all fetched files of a call together."""
    sessions: int = 64
    """Sessions open at once; one that was idle for longer than `session_grace` makes room, the longest first, and of
    another owner only while that one has more than its share."""
    session_grace: float = 60.0
    """Seconds of idleness after which a session may be closed for another one, to have its place or its memory; below
    that it counts as in use."""
    session_ttl: float = 1800.0
    """Seconds of idleness after which a session is closed."""
    session_memory_mb: int = 8192
    """Of all sessions together, with the cells that they keep to run again, shared out evenly among the owners that
    have any. An owner above its share drops kept states, then the sessions that were idle for longest; then a cell that
    takes more fails."""
    bases: Path | None = None
    """Folder of the bases that sessions can begin with: folders and tar files."""
    checkpoints: int = 8
    """States that a session keeps to go back to."""

    def __post_init__(self) -> None:
        if self.without and self.min_tier is not Tier.NONE:
            raise ValueError("`without` weakens the tier: say so with min_tier=Tier.NONE, or leave no layer out")


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Says what a node is doing, for health checks and metrics."""

    tier: Tier
    probes: Mapping[str, str]
    """Result of each probe at start: "ok" or the reason."""
    versions: Mapping[str, Mapping[str, str]]
    """Interpreter and libraries of each preload set."""
    slots: int
    busy: int
    waiting: int
    sessions: int
    runs: int
    """Calls answered since the start."""
    faults: int
    slot_deaths: int
    zygote_deaths: int


def connections_held(node: NodeConfig) -> int:
    """Raise the limit on open files as far as allowed, and return how many connections fit beside the node's own."""
    import resource  # which Windows lacks

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
    """Return how many sessions fit into half of the open files; the other half is for connections."""
    import resource  # which Windows lacks

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, hard // 2 - _of_slots(node)) // PER_SLOT


def _of_slots(node: NodeConfig) -> int:
    return OF_ITS_OWN + PER_SLOT * node.slots * len(node.preload)


def zygote_settings(config: NodeConfig, layers: frozenset[Layer], preload: PreloadSet, folder: str) -> dict[str, Any]:
    """What a zygote has to know."""
    own_files = Layer.MOUNT in layers
    packages = layout.packages(preload)
    read = kernel.LANDLOCK_READ
    rights = [("/", read)]
    if not own_files:
        paths = layout.readable(preload)
        rights = [(path, read if os.path.isdir(path) else kernel.LANDLOCK_READ_FILE) for path in paths]
        rights += [(path, kernel.LANDLOCK_READ_FILE) for path in layout.DEVICES]
    rights += [(path, kernel.LANDLOCK_WRITE_FILE) for path in layout.WRITABLE_DEVICES]
    mount_point = os.path.join(folder, f"root-{preload.name}")
    os.makedirs(mount_point, exist_ok=True)
    limits = config.limits.clipped(config.maxima)
    return {
        "layers": frozenset(layer.value for layer in layers),
        "layers_folder": "/layers",
        "bases": f"{folder}/{BASES}" if config.bases is not None else "",
        "base_folder": "/base",
        "modules": list(preload.modules),
        "warm_up": preload.warm_up,
        "paths": layout.search_path(packages),
        "report_versions": [name for name in preload.modules if "." not in name],
        "root": mount_point,
        "box": "/box/run" if own_files else f"{folder}/{{index}}/box",
        "layout": layout.root(preload) if own_files else [],
        "texts": layout.TEXTS,
        "readable": rights,
        "landlock_abi": kernel.landlock_abi(),
        "filters": _filters(layers),
        "own_pid_only": None if Layer.PID in layers else seccomp.signal_calls(),
        "first_uid": FIRST_UID,
        "disk_bytes": limits.disk_mb << 20,
        "inodes": limits.files,
    }


def _filters(layers: frozenset[Layer]) -> tuple[bytes, bytes, bytes] | None:
    """Seccomp programs for supervisors, which all below them inherit, for runs, and for sessions."""
    if Layer.SECCOMP not in layers:
        return None
    processes = Layer.PID in layers
    return seccomp.build(processes, supervisor=True), seccomp.take_back(processes), seccomp.take_back(processes, True)
