"""What this machine lets a node do, found out by doing it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile

from cleaner_sandbox.environments import BARE
from cleaner_sandbox.inside import kernel, wire
from cleaner_sandbox.isolation import cgroups, ids, seccomp
from cleaner_sandbox.isolation.tiers import Tier, TierError
from cleaner_sandbox.node.config import FOLDER_PREFIX, NodeConfig, ids_held, zygote_settings
from cleaner_sandbox.node.zygotes import START_SECONDS, launch

NEEDED_OF_ROOT = {"CHOWN": 0, "DAC_OVERRIDE": 1, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""Capabilities with which root gives a slot a user of its own, ends it, and removes what it leaves."""
ELSEWHERE = "the sandbox runs on Linux only; elsewhere start its container (Containerfile) and give its address"


def probe(config: NodeConfig | None = None) -> dict[str, str]:
    """Try what each tier needs on this machine, and return "ok" or the reason by name.

    Raises `TierError` where no tier can work.
    """
    if sys.platform != "linux":
        raise TierError(ELSEWHERE)
    found = {"seccomp": seccomp.problem() or "ok"}
    found["landlock"] = "ok" if kernel.landlock_abi() >= 1 else "the kernel has no landlock (5.13 and later have)"
    found["namespaces"] = _namespaces(config or NodeConfig()) or "ok"
    found["user"] = _user(config or NodeConfig()) or "ok"
    found["cgroup"] = cgroups.problem() or "ok"
    return found


def _user(config: NodeConfig) -> str | None:
    """Why runs would be root at tier 1; None if they aren't."""
    if os.geteuid() != 0:
        return None
    held = kernel.capabilities()
    if lacking := [name for name, number in NEEDED_OF_ROOT.items() if not held & 1 << number]:
        return f"this root can't give runs another user: it has no {', '.join(lacking)}"
    return ids.problem(ids_held(config))


def _namespaces(config: NodeConfig) -> str | None:
    """Have a slot enter its namespaces and file system: that takes more rights than any one call shows."""
    if os.geteuid() != 0:
        return "needs root, to give each slot its own uids"
    if (lacking := ids.problem(ids_held(config))) is not None:
        return lacking
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-") as folder:
        settings = zygote_settings(config, Tier.T2.layers - Tier.T1.layers, BARE, folder)
        with theirs:
            tried = launch("try_slot", theirs.fileno(), {})
        ours.settimeout(START_SECONDS)
        try:
            with contextlib.suppress(ConnectionError):
                ours.sendall(wire.pack(settings))
            answer = ours.recv(wire.FIRST_READ)
        except TimeoutError:
            tried.kill()
            # Not a reason for the next lower tier: a machine that is busy would be a weaker one.
            raise TierError(f"a first slot was not ready within {START_SECONDS:.0f} seconds; try again") from None
        finally:
            ours.close()
            tried.wait()
    if answer[:1] == bytes([wire.KIND_HELLO]):
        return None
    return f"the kernel refuses them ({answer.decode(errors='replace') or 'a first slot died'})"
