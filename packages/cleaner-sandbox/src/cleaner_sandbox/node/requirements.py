"""Preload sets from requirements files: installed once, by the interpreter's own pip, into a folder of the node's.

The folder's name is a hash of the file, the interpreter and the machine, so a changed file is installed anew and an
unchanged one is found again at the next start. What the file names is preloaded; all that it installs can be imported.

Limits: a requirement that isn't a distribution's name (a URL, a path, `-e`) is installed but not preloaded.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from cleaner_sandbox.preload import PreloadSet

CACHE = Path("/var/cache/cleaner-sandbox")
INSTALL_SECONDS = 1800
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SHOWN = 2_000


class RequirementsError(ValueError):
    """A set can't be installed; the message says why, and what to do."""


def set_folder() -> Path:
    """Return where preload sets are installed by default: in the system's cache, or the user's.

    Never below /tmp, because runs have a /tmp of their own.
    """
    return CACHE if os.geteuid() == 0 else Path.home() / ".cache" / "cleaner-sandbox"


def install_set(name: str, requirements: Path, folder: Path) -> PreloadSet:
    """Return the preload set of a requirements file, installed below `folder` if it isn't yet.

    Raises `RequirementsError`, with pip's words if it was pip that failed.

    Examples:
        >>> from cleaner_sandbox import NodeConfig, install_set, set_folder
        >>> data = install_set("data", Path("requirements.txt"), set_folder())  # doctest: +SKIP
        >>> NodeConfig(preload=(*NodeConfig().preload, data))  # doctest: +SKIP
    """
    import fcntl  # which Windows lacks

    if not name.isidentifier():
        raise RequirementsError(f"a preload set can't be called '{name}': use letters, digits and underscores")
    try:
        text = requirements.read_bytes()
    except OSError as error:
        raise RequirementsError(f"the requirements of the set '{name}' can't be read: {error}") from None
    key = hashlib.sha256(b"\0".join([text, sys.version.encode(), platform.platform().encode()])).hexdigest()[:24]
    site = folder / key
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{key}.lock", "w") as lock:  # another node on this machine may install the same
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not site.exists():
            _install(name, requirements, site)
    named = {_normal(match[0]) for line in text.decode().splitlines() if (match := _NAME.match(line.strip()))}
    found = list(importlib.metadata.distributions(path=[str(site)]))
    wanted = [each for each in found if _normal(each.name) in named]
    return PreloadSet(
        name,
        modules=_modules(wanted),
        packages=tuple(sorted(each.name for each in found)),
        site=str(site),
        offers=_modules(found),
    )


def _install(name: str, requirements: Path, site: Path) -> None:
    """Whole or not at all."""
    unfinished = site.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"]
    command += ["--target", str(unfinished), "-r", str(requirements.resolve())]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, cwd=requirements.resolve().parent
        )
    except subprocess.TimeoutExpired:
        raise RequirementsError(
            f"the set '{name}' was not installed within {INSTALL_SECONDS} seconds; check pip's index, and start again"
        ) from None
    if done.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise RequirementsError(
            f"the set '{name}' can't be installed from {requirements}. Try it by hand: {' '.join(command)}\n"
            f"pip says: {done.stderr.strip()[-SHOWN:]}"
        )
    unfinished.mkdir(exist_ok=True)  # an empty file installs nothing
    unfinished.rename(site)


def _modules(distributions: Iterable[importlib.metadata.Distribution]) -> tuple[str, ...]:
    """What distributions can be imported as: their folders with an `__init__.py`, and their single files."""
    found: set[str] = set()
    for distribution in distributions:
        for file in distribution.files or ():
            if len(file.parts) == 2 and file.name == "__init__.py":
                found.add(file.parts[0])
            elif len(file.parts) == 1 and file.suffix == ".py":
                found.add(file.stem)
    return tuple(sorted(name for name in found if name.isidentifier() and not name.startswith("_")))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
