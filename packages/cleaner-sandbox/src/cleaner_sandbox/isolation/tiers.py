"""How strongly runs are isolated, and with which layers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class Layer(StrEnum):
    """Names one means of isolation. A tier is a set of them; switching one off shows what it alone stops."""

    ENVIRONMENT = "environment"
    """Runs get a fixed environment, with nothing of the node's."""
    RLIMITS = "rlimits"
    SECCOMP = "seccomp"
    """The system calls that a run may make. No-new-privileges is part of this layer and the next: without it, the
    kernel does not let unprivileged processes use them."""
    LANDLOCK = "landlock"
    WATCH = "watch"
    """The supervisor's checks of CPU time, memory and output. Without them only the wall limit is left."""
    USER = "user"
    UID = "uid"
    """Runs have a uid that neither their supervisor nor any other slot has."""
    MOUNT = "mount"
    """An own file system: read-only libraries, and a tmpfs per run with a bound on its size."""
    NET = "net"
    IPC = "ipc"
    UTS = "uts"
    PID = "pid"
    """An own pid namespace, emptied after each run."""
    CGROUP = "cgroup"


_T1 = frozenset({Layer.ENVIRONMENT, Layer.RLIMITS, Layer.SECCOMP, Layer.LANDLOCK, Layer.WATCH})
_T2 = _T1 | {Layer.USER, Layer.UID, Layer.MOUNT, Layer.NET, Layer.IPC, Layer.UTS, Layer.PID}


class Tier(IntEnum):
    """Says how strongly runs are isolated. A higher tier has all that a lower one has."""

    NONE = 0
    """Nothing but the parent's wall limit. For measuring what the other tiers stop; never for untrusted code."""
    T1 = 1
    """rlimits, seccomp, landlock, scrubbed environment, no new privileges; threads but no processes."""
    T2 = 2
    """Also an own uid per slot, user, network, mount, pid and IPC namespaces, and a tmpfs per run."""
    T3 = 3
    """Also a cgroup per slot, which bounds memory, the kernel's own included, and processes."""

    @property
    def layers(self) -> frozenset[Layer]:
        """Return the layers that the tier is made of."""
        return {Tier.NONE: frozenset(), Tier.T1: _T1, Tier.T2: _T2, Tier.T3: _T2 | {Layer.CGROUP}}[self]


class TierError(RuntimeError):
    """The node can't isolate as strongly as it is required to."""


REMEDIES: Mapping[str, str] = {
    "seccomp": "install libseccomp (Debian: apt-get install libseccomp2) on a kernel with seccomp filters",
    "landlock": "use Linux 5.13 or later with landlock enabled (`cat /sys/kernel/security/lsm` lists it), "
    "in a container with a seccomp profile that allows it",
    "namespaces": "for T2 run as root where user namespaces are allowed: `sysctl user.max_user_namespaces` above 0; in "
    "containers --user 0, --cap-add SYS_ADMIN, SETUID and SETGID, and --security-opt systempaths=unconfined; in Docker "
    "also apparmor=unconfined and a seccomp profile with pivot_root. T1 is enough for code that isn't hostile",
    "user": "for T1 start the node as a user that isn't root (in containers --user 10001), or leave its root the "
    "capabilities CHOWN, DAC_OVERRIDE, KILL, SETGID and SETUID",
    "cgroup": "for T3 let the node write to a cgroup of its own, as root",
}
"""What to do about each probe that isn't ok."""


def remedy(probes: Mapping[str, str]) -> str:
    """Return what to do so that this machine can isolate more strongly."""
    found = "; ".join(advice for name, advice in REMEDIES.items() if probes.get(name) != "ok")
    return found[:1].upper() + found[1:]


def choose_tier(probes: Mapping[str, str], wanted: Tier | None, least: Tier) -> Tier:
    """Return the tier to run at: the wanted one, or the highest that works. Raises `TierError` if there is none."""
    highest = Tier.NONE
    if probes["seccomp"] == probes["landlock"] == "ok":
        if probes["namespaces"] == "ok":
            highest = Tier.T2
        elif probes["user"] == "ok":
            highest = Tier.T1
    if highest is Tier.T2 and Tier.T3 in (wanted, least) and probes["cgroup"] == "ok":
        highest = Tier.T3  # only if it is asked for: in version 2 the node has to move to a cgroup of its own
    tier = highest if wanted is None else wanted
    if tier > highest or tier < least:
        problems = "; ".join(f"{name}: {what}" for name, what in probes.items() if what != "ok")
        needed = max(tier, least)
        raise TierError(
            f"tier {needed.name} is required, but this machine supports only {highest.name} ({problems}). "
            f"{remedy(probes)}, or lower the required tier"
        )
    return tier
