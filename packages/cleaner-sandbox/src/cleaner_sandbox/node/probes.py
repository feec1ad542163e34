"""What this machine lets a node do, found out by doing it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile

from cleaner_sandbox.inside import kernel, wire
from cleaner_sandbox.isolation import cgroups, seccomp
from cleaner_sandbox.isolation.tiers import Tier, TierError
from cleaner_sandbox.node.config import FOLDER_PREFIX, NodeConfig, zygote_settings
from cleaner_sandbox.node.zygotes import START_SECONDS, launch
from cleaner_sandbox.preload import BARE

ELSEWHERE = "the sandbox runs on Linux only; elsewhere start its container (Containerfile) and give its address"


def probe() -> dict[str, str]:
    """Try what each tier needs on this machine, and return "ok" or the reason by name.

    Raises `TierError` where no tier can work.
    """
    if sys.platform != "linux":
        raise TierError(ELSEWHERE)
    found = {"seccomp": seccomp.problem() or "ok"}
    found["landlock"] = "ok" if kernel.landlock_abi() >= 1 else "the kernel has no landlock (5.13 and later have)"
    found["namespaces"] = _namespaces() or "ok"
    found["cgroup"] = cgroups.problem() or "ok"
    return found


def _namespaces() -> str | None:
    """Have a slot enter its namespaces and file system: that takes more rights than any one call shows."""
    if os.geteuid() != 0:
        return "needs root, to give each slot its own uids"
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-") as folder:
        settings = zygote_settings(NodeConfig(), Tier.T2.layers - Tier.T1.layers, BARE, folder)
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
