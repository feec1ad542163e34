"""Which of the host's files a run sees: the interpreter, its set's packages, the system's libraries and programs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from cleaner_sandbox.environments import Environment

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
WRITABLE_DEVICES = tuple(path for path in DEVICES if path != "/dev/zero")
"""Mapped for writing, and shared, `/dev/zero` is memory that no process is seen to hold."""
OWN_FOLDERS = ("/tmp/", "/dev/", "/proc/", "/box/")
TEXTS = {
    "/etc/passwd": "root:x:0:0:root:/:/bin/false\nsandbox:x:1000:1000:sandbox:/box/run/work:/bin/sh\n",
    "/etc/group": "root:x:0:\nsandbox:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
}


def interpreter() -> str:
    """The interpreter itself, not the virtual environment's link to it."""
    return os.path.realpath(sys.executable)


def packages(environment: Environment) -> list[str]:
    """Files and folders of a set's distributions and of all that they depend on."""
    search = [environment.site] if environment.site is not None else sys.path
    waiting, seen = [normal_name(name) for name in environment.packages], set[str]()
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        matches = importlib.metadata.distributions(name=name, path=search)
        distribution = next(iter(matches), None)
        if distribution is None:
            continue
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__"):
                found.add(str(Path(str(distribution.locate_file(top)))))
        needed = [each for each in distribution.requires or () if "extra ==" not in each]
        waiting += [normal_name(re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0]) for each in needed]
    return sorted(path for path in found if os.path.exists(path))


def search_path(paths: Iterable[str]) -> list[str]:
    """Return the folders that hold the packages."""
    return sorted({os.path.dirname(path) for path in paths})


def root(environment: Environment) -> list[tuple[str, str]]:
    """What a run's root holds, in the order of making it: (path, "bind", "link", "cover" or "device")."""
    prefix = os.path.realpath(sys.base_prefix)
    covers = [path for path in _site_folders(prefix) if os.path.isdir(path)]
    entries: list[tuple[str, str]] = []
    for path in SYSTEM:
        if os.path.islink(path):
            entries.append((path, "link"))
        elif os.path.isdir(path):
            entries.append((path, "bind"))
    if not prefix.startswith("/usr"):
        entries.append((prefix, "bind"))
    entries += [(path, "cover") for path in covers]
    own = packages(environment)
    if hidden := [path for path in own if path.startswith(OWN_FOLDERS)]:
        raise ValueError(f"runs have folders of their own where {hidden[0]} lies; install the packages elsewhere")
    entries += [(path, "bind") for path in (*SYSTEM_FILES, *own) if os.path.exists(path)]
    return entries + [(path, "device") for path in DEVICES]


def readable(environment: Environment) -> list[str]:
    """What a run may read where it sees the whole file system (tier 1)."""
    folders = [path for path in SYSTEM if path != "/usr"] + ["/usr/lib", "/usr/lib64", "/usr/share", "/usr/bin"]
    stdlib = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("LIBDIR")]
    every = [*folders, *stdlib, *SYSTEM_FILES, *packages(environment)]
    return sorted({os.path.realpath(path) for path in every if path and os.path.exists(path)})


def _site_folders(prefix: str) -> list[str]:
    """Where the host's own packages and programs lie, which are none of a run's business."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = [f"{prefix}/lib/{version}/site-packages", "/usr/lib/python3/dist-packages"]
    return folders if prefix.startswith("/usr/local") else [*folders, "/usr/local"]


def normal_name(name: str) -> str:
    """Return the name of a distribution as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
