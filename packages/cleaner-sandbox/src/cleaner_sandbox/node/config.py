"""How a node is set up, what it says of itself, and what its zygotes have to know."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cleaner_sandbox.environments import SCIENCE, Environment, usual_environments
from cleaner_sandbox.inside import kernel
from cleaner_sandbox.isolation import ids, layout, seccomp
from cleaner_sandbox.isolation.cgroups import MEMBERSHIP, ROOT
from cleaner_sandbox.isolation.tiers import Layer, Tier
from cleaner_sandbox.protocol.limits import Limits

OLDEST_KERNEL = (5, 19)
"""The first that shows a folder with other owners in an overlay."""
PER_SLOT = 16
"""A generous count of the files that a node holds open per slot and session: pipes, a pid, a folder."""
OF_ITS_OWN = 64
FEWEST_CONNECTIONS = 64


FILES = "/base"
"""Where zygotes see the files of all environments, and a program the unchanged ones of its own."""
GIVE_WAY = 10
"""The niceness of runs in a container: a tenth of the CPU time that a supervisor gets."""
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
        >>> config = NodeConfig(slots=8, environments=(BARE,), min_tier=Tier.T2, limits=Limits(cpu_seconds=5.0))
        >>> config.sessions
        64
    """

    slots: int = field(default_factory=lambda: 2 * cores())
    """Runs at the same time; more calls wait."""
    environments: tuple[Environment, ...] = field(default_factory=usual_environments)
    """Smallest first: a call that names none gets the first without files that has all it imports, or the last."""
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
    session_idle: float = 1800.0
    """Most seconds that a session may be idle; then it is closed."""
    session_ttl: float = 86_400.0
    """Most seconds that a session may be open, idle or not; then it is closed, after the cell that runs."""
    session_memory_mb: int = 8192
    """Of all sessions together, with the cells that they keep to run again, shared out evenly among the owners that
    have any. An owner above its share drops kept states, then the sessions that were idle for longest; then a cell that
    takes more fails."""
    checkpoints: int = 8
    """States that a session keeps to go back to."""

    def __post_init__(self) -> None:
        names = [each.name for each in self.environments]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"there are two environments '{min(twice)}': give one of them another name")
        if all(each.files is not None for each in self.environments):
            raise ValueError("a node needs an environment without files, such as BARE, for calls that name none")
        if self.without and self.min_tier is not Tier.NONE:
            raise ValueError("`without` weakens the tier: say so with min_tier=Tier.NONE, or leave no layer out")


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Says what a node is doing, for health checks and metrics."""

    tier: Tier
    probes: Mapping[str, str]
    """Result of each probe at start: "ok" or the reason."""
    versions: Mapping[str, Mapping[str, str]]
    """Interpreter and libraries of each environment."""
    uids: tuple[int, int] | None
    """First and last user id of runs and their supervisors; None: they have the node's own, which isn't root's."""
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


def numbers_held(config: NodeConfig) -> int:
    """Return how many numbers slots and sessions may have at once, with some for those that are about to end."""
    return config.slots * _sets_of_slots(config) + config.sessions + 64


def ids_held(config: NodeConfig) -> int:
    """Return how many user ids they have: a supervisor's and its runs' for each number."""
    return 2 * numbers_held(config)


def _of_slots(node: NodeConfig) -> int:
    return OF_ITS_OWN + PER_SLOT * node.slots * _sets_of_slots(node)


def _sets_of_slots(node: NodeConfig) -> int:
    """How many times `slots` there can be: per interpreter, and those of runs that begin with files."""
    return len(interpreters(node)) + bool(_folders(node))


def interpreters(node: NodeConfig) -> list[Environment]:
    """Return the environments that have an interpreter of their own."""
    return [each for each in node.environments if not each.only_files]


def usual(node: NodeConfig) -> Environment:
    """Return the environment whose interpreter those have that have files alone, and sessions that name none."""
    without_files = [each for each in node.environments if each.files is None]
    return SCIENCE if SCIENCE in without_files else without_files[0]


def shown_at(node: NodeConfig, environment: Environment) -> str:
    """Return where zygotes see the files of an environment; empty if it has none."""
    if environment.files is None:
        return ""
    for index, folder in enumerate(_folders(node)):
        if environment.files.startswith(f"{folder}/"):
            return f"{FILES}/{index}{environment.files.removeprefix(folder)}"
    raise AssertionError(environment)


def require_kernel(node: NodeConfig) -> None:
    """Raise `ValueError` if the node has environments with files, and the kernel is too old to show them."""
    version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    if version < OLDEST_KERNEL and _folders(node):
        raise ValueError(f"environments with files need Linux 5.19 or later, and this is {platform.release()}")


def _folders(node: NodeConfig) -> list[str]:
    """The folders that environments with files are in: few, however many environments there are."""
    return sorted({str(Path(each.files).parents[1]) for each in node.environments if each.files is not None})


def in_cpu_cgroup(membership: Path = MEMBERSHIP, unified: Path = ROOT) -> bool:
    """Whether this process shares a CPU cgroup with its own alone, as in a container.

    There the kernel shares CPU time out by process, and not by session: a run with many processes would leave its
    supervisor too little time to look at them. Elsewhere runs don't give way, because others would take it all.
    """
    if not membership.exists():
        return False
    for _, names, path in (line.split(":", 2) for line in membership.read_text(encoding="utf-8").splitlines()):
        if "cpu" in names.split(",") and path != "/":
            return True
        if not names and (unified / path.lstrip("/") / "cpu.max").exists():
            return True
    return False


def zygote_settings(
    config: NodeConfig, layers: frozenset[Layer], environment: Environment, folder: str
) -> dict[str, Any]:
    """What a zygote has to know."""
    own_files = Layer.MOUNT in layers
    packages = layout.packages(environment)
    read = kernel.LANDLOCK_READ
    rights = [("/", read)]
    if not own_files:
        paths = layout.readable(environment)
        rights = [(path, read if os.path.isdir(path) else kernel.LANDLOCK_READ_FILE) for path in paths]
        rights += [(path, kernel.LANDLOCK_READ_FILE) for path in layout.DEVICES]
    rights += [(path, kernel.LANDLOCK_WRITE_FILE) for path in layout.WRITABLE_DEVICES]
    mount_point = os.path.join(folder, f"root-{environment.name}")
    os.makedirs(mount_point, exist_ok=True)
    limits = config.limits.clipped(config.maxima)
    asked = {}
    if Layer.SECCOMP in layers and not layers - Tier.T1.layers:
        asked = dict(zip(seccomp.numbers(seccomp.ASKED_CALLS), seccomp.ASKED_CALLS, strict=True))
    return {
        "layers": frozenset(layer.value for layer in layers),
        "layers_folder": "/layers",
        "files_folders": {f"{FILES}/{index}": path for index, path in enumerate(_folders(config))},
        "files_folder": FILES,
        "modules": list(environment.modules),
        "warm_up": environment.warm_up,
        "paths": layout.search_path(packages),
        "report_versions": [name for name in environment.modules if "." not in name],
        "root": mount_point,
        "box": "/box/run" if own_files else f"{folder}/{{index}}/box",
        "layout": layout.root(environment) if own_files else [],
        "texts": layout.TEXTS,
        "readable": rights,
        "landlock_abi": kernel.landlock_abi(),
        "filters": _filters(layers),
        "own_pid_only": None if Layer.PID in layers else seccomp.numbers(seccomp.SIGNAL_CALLS),
        "asked": asked,
        "nice": GIVE_WAY if in_cpu_cgroup() else 0,
        "own_user": bool(asked) and os.geteuid() == 0,
        "first_uid": ids.first_id(ids_held(config)) or 0,
        "disk_bytes": limits.disk_mb << 20,
        "inodes": limits.files,
    }


def _filters(layers: frozenset[Layer]) -> tuple[bytes, bytes, bytes, bytes] | None:
    """Seccomp programs for supervisors, which all below them inherit, for runs, for sessions, and for runs that ask."""
    if Layer.SECCOMP not in layers:
        return None
    processes = Layer.PID in layers
    filters = (
        seccomp.build(processes, supervisor=True),
        seccomp.take_back(processes),
        seccomp.take_back(processes, True),
    )
    return *filters, seccomp.ask()
