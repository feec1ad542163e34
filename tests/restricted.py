"""Commands in an environment that is less than this machine: without some system calls, packages, or Linux.

Nothing is mocked where the kernel can do it: the filter is one that a container's run-time sets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NO_USER_NAMESPACES = 'program.add_rule(E(1), "unshare", Arg(0, MASKED_EQ, 0x10000000, 0x10000000))'
"""As Docker's default does it."""
DOCKERS_CAPABILITIES = """
import ctypes
drop, kept = 24, (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)  # chown ... setfcap; not sys_admin
for number in set(range(64)) - set(kept):
    ctypes.CDLL(None).prctl(drop, number, 0, 0, 0)
"""
"""Root with what Docker leaves it: it may make user namespaces, and no others."""
MASKED_PROC = """
import ctypes
new_mounts, private, bind = 0x20000, 0x44000, 0x1000
libc = ctypes.CDLL(None)
assert (libc.unshare(new_mounts), libc.mount(b"none", b"/", None, private, None)) == (0, 0)
assert libc.mount(b"/proc/sys", b"/proc/sys", None, bind, None) == 0
"""
"""As container run-times cover parts of it; the kernel then lets nobody mount another one. Needs root."""
NO_LANDLOCK = 'program.add_rule(E(38), "landlock_create_ruleset")'
FILTERED = """
import os, sys
from pyseccomp import ALLOW, MASKED_EQ, Arg, ERRNO as E, SyscallFilter
program = SyscallFilter(ALLOW)
{rules}
program.load()
os.execv(sys.executable, [sys.executable, "-c", {command!r}, *sys.argv[1:]])
"""
COMMAND = "import sys; sys.argv[0] = 'cleaner'; from cleaner_rl.cli import main; main()"
ONLY = """
import sys
sys.modules.update(dict.fromkeys({names!r}))  # imports of None fail, and nothing finds it
"""
"""A stand-in for an environment that lacks packages."""
NOT_LINUX = """
import asyncio, multiprocessing, platform, subprocess, sys, urllib.request, webbrowser
sys.platform, platform.machine, platform.system = "darwin", lambda: "arm64", lambda: "Darwin"
"""
"""A stand-in for a Mac: what asks for the platform is told so."""


def cleaner(
    *arguments: str,
    rules: str = "",
    missing: Sequence[str] = (),
    elsewhere: bool = False,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command `cleaner` to its end."""
    command = (NOT_LINUX if elsewhere else "") + (ONLY.format(names=set(missing)) if missing else "") + COMMAND
    program = FILTERED.format(rules=rules, command=command) if rules else command
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        check=False,
    )
