"""How a node is set up, what it says of itself, and what its zygotes have to know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cleaner_rl.sandbox import layout, seccomp
from cleaner_rl.sandbox.inside import kernel
from cleaner_rl.sandbox.limits import Limits
from cleaner_rl.sandbox.preload import BARE, SCIENCE, PreloadSet
from cleaner_rl.sandbox.tiers import Layer, Tier

FIRST_UID = 1_900_000_000
"""Of the host's uids, the first that slots use: two each, out of the way of people's and containers'."""


FOLDER_PREFIX = "cleaner-sandbox-"
"""Of folders for temporary files; the process that they belong to follows, for `node.sweep`."""


def cores() -> int:
    """That this process may use: a scheduler often gives it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How a node is set up."""

    slots: int = field(default_factory=lambda: 2 * cores())
    """Runs at the same time; more calls wait."""
    preload: tuple[PreloadSet, ...] = (BARE, SCIENCE)
    """Smallest first: a call that names none gets the first that has all it imports, or the last."""
    tier: Tier | None = None
    """None: the highest that works here."""
    min_tier: Tier = Tier.T1
    """The node refuses to start below it."""
    without: frozenset[Layer] = frozenset()
    """Layers left out of the tier, to see what they stop; only with `min_tier=Tier.NONE`, never for untrusted code."""
    limits: Limits = field(default_factory=Limits)
    """For calls that name none."""
    maxima: Limits = field(default_factory=lambda: Limits(60.0, 300.0, 4096, 256, 1024, 65_536, 1024, 16_777_216))
    """What a call may ask for; above it, its limits are clipped."""
    keep_chars: int = 65_536
    """Characters of stdout and of stderr that a result keeps, if the call doesn't say."""
    fetch_bytes: int = 16_777_216
    """All fetched files of a call together."""
    sessions: int = 64
    """Open at once; one that was idle for longer than `session_grace` makes room, longest first."""
    session_grace: float = 60.0
    """Seconds of idleness that are only its caller's next step: a session at work makes no room for another one."""
    session_ttl: float = 1800.0
    """Seconds of idleness after which a session is closed."""
    session_memory_mb: int = 8192
    """All sessions together, with the cells that they keep to run again; the ones idle for longest make room."""
    checkpoints: int = 8
    """States that a session keeps to go back to."""

    def __post_init__(self) -> None:
        if self.without and self.min_tier is not Tier.NONE:
            raise ValueError("layers can be left out only with min_tier=Tier.NONE")


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as it stands: for health checks and metrics."""

    tier: Tier
    probes: Mapping[str, str]
    """What was tried at start, and what came of it: "ok" or the reason."""
    versions: Mapping[str, Mapping[str, str]]
    """Interpreter and libraries of each preload set."""
    slots: int
    busy: int
    waiting: int
    sessions: int
    runs: int
    """Answered since the start."""
    faults: int
    slot_deaths: int
    zygote_deaths: int


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
