"""Environments that are built once: packages from a requirements file, and files that working folders begin with.

    FOLDER/NAME/packages/            what pip has installed
    FOLDER/NAME/files/work/          what a working folder begins with
    FOLDER/NAME/environment.json     what it was built from, and for which interpreter

Whoever offers an environment only reads it. A program sees its packages and the copy of its files read-only; what it
changes of the files is its own, in a layer above them. What the requirements name is loaded ahead, all that was
installed can be imported.

Limits: a requirement that isn't a distribution's name (a URL, a path, `-e`) is installed but not loaded ahead. Hard
links among files become files of their own.
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cleaner_sandbox.environments import BARE, DATA, SCIENCE, Environment, listed
from cleaner_sandbox.isolation.layout import normal_name

READY = {each.name: each for each in (BARE, SCIENCE, DATA)}
"""What needs no building."""
INSTALL_SECONDS = 1800
RECORD = "environment.json"
BUILT_FOR = f"{sys.implementation.cache_tag}-{platform.machine()}"
SHOWN = 2_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def environments_folder() -> Path:
    """Return where environments are built by default: in the system's cache, or the user's.

    Never below /tmp, because runs have a /tmp of their own.
    """
    cache = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
    return cache / "cleaner-sandbox" / "environments"


def build_environment(
    name: str, requirements: Path | None = None, base: Path | None = None, folder: Path | None = None
) -> Environment:
    """Build an environment, whole or not at all, and return it.

    Args:
        name: What runs and sessions call it.
        requirements: File of the packages, for this interpreter's pip. None: those of the node's usual environment.
        base: Folder or tar file that working folders begin with. None: they begin empty.
        folder: Where it is built; None: `environments_folder()`.

    Raises:
        ValueError: It can't be built; the message has pip's words if it was pip that failed.

    Examples:
        >>> from cleaner_sandbox import NodeConfig, build_environment
        >>> web = build_environment("web", Path("requirements.txt"))  # doctest: +SKIP
        >>> NodeConfig(environments=(*NodeConfig().environments, web))  # doctest: +SKIP
    """
    folder = folder or environments_folder()
    if not _NAME.fullmatch(name) or name in READY:
        raise ValueError(f"an environment can't be called '{name}': use letters, digits, '.', '_' and '-'")
    if requirements is None and base is None:
        raise ValueError("an environment needs a requirements file, a base or both")
    if (folder / name).exists():
        raise ValueError(f"there is an environment '{name}' in {folder} already: remove it first, or take another name")
    record = {"built_for": BUILT_FOR, "requirements": "", "base": "" if base is None else str(base.resolve())}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as unfinished:
        made = Path(unfinished) / name
        made.mkdir()
        try:
            if requirements is not None:
                record["requirements"] = requirements.read_text()
                _install(name, requirements, made / "packages")
            if base is not None:
                _copy(base, made / "files")
        except (OSError, UnicodeDecodeError, shutil.Error, tarfile.TarError) as error:
            raise ValueError(f"the environment '{name}' can't be built: {error}") from error
        (made / RECORD).write_text(json.dumps(record, indent=2) + "\n")
        made.chmod(0o755)
        made.rename(folder / name)
    return _read(folder / name)


def built_environments(folder: Path | None = None) -> list[str]:
    """Return the names of the environments that were built in a folder (None: `environments_folder()`)."""
    return sorted(path.parent.name for path in (folder or environments_folder()).glob(f"[!.]*/{RECORD}"))


def find_environments(names: Iterable[str], folder: Path | None = None) -> tuple[Environment, ...]:
    """Return environments by their names: those that are ready, such as `data`, and those that were built.

    Args:
        names: Names, patterns such as `repo-*`, or paths of environments that are elsewhere.
        folder: Where they were built; None: `environments_folder()`.

    Raises:
        ValueError: There is none of a name, or it was built for another interpreter or by another user.
    """
    folder = folder or environments_folder()
    found: dict[str, Environment] = {}
    for name in names:
        paths = sorted(glob.glob(str(Path(name).absolute() if "/" in name else folder / name)))
        if name in READY:
            found[name] = READY[name]
        elif not paths:
            built = listed([*READY, *built_environments(folder)])
            raise ValueError(
                f"there is no environment '{name}' in {folder}; there are: {built}. "
                f"To make one: cleaner-sandbox env build {Path(name).name} requirements.txt"
            )
        else:
            found |= {each.name: each for each in map(_read, map(Path, paths))}
    return tuple(found.values())


def _read(place: Path) -> Environment:
    try:
        record = json.loads((place / RECORD).read_text())
    except OSError as error:
        raise ValueError(f"{place} is no environment: {error}") from None
    packages, files = place / "packages", place / "files"
    if packages.exists() and record.get("built_for", BUILT_FOR) != BUILT_FOR:
        raise ValueError(f"the environment {place} was built for {record['built_for']}, not {BUILT_FOR}: build it anew")
    if files.exists() and files.stat().st_uid != os.geteuid():
        raise ValueError(f"the files of the environment {place} are another user's: build it as the node's user")
    lines = record["requirements"].splitlines()
    named = {normal_name(match[0]) for line in lines if (match := _NAME.match(line.strip()))}
    found = list(importlib.metadata.distributions(path=[str(packages)]))
    return Environment(
        place.name,
        modules=_modules(each for each in found if normal_name(each.name) in named),
        packages=tuple(sorted(each.name for each in found)),
        site=str(packages) if found else None,
        offers=_modules(found),
        files=str(files) if files.exists() else None,
    )


def _install(name: str, requirements: Path, site: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"]
    command += ["--target", str(site), "-r", str(requirements.resolve())]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            cwd=requirements.resolve().parent,
            umask=0o022,  # runs have users of their own
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"the environment '{name}' was not installed within {INSTALL_SECONDS} seconds; check pip's index"
        ) from None
    if done.returncode != 0:
        by_hand = " ".join(command).replace(str(site), "FOLDER")
        raise ValueError(
            f"the environment '{name}' can't be installed from {requirements}. Try it by hand: {by_hand}\n"
            f"pip says: {done.stderr.strip()[-SHOWN:]}"
        )


def _copy(base: Path, files: Path) -> None:
    work = files / "work"
    if base.is_dir():
        shutil.copytree(base, work, symlinks=True)
    else:
        work.mkdir(parents=True)
        with tarfile.open(base) as tar:
            tar.extractall(work, filter="data")
    _own(files)


def _own(folder: Path) -> None:
    """Make all of it ours, and let its owner change it: the program that sees it is its owner."""
    os.chmod(folder, 0o755)
    for root, folders, files in os.walk(folder):
        for path in (os.path.join(root, each) for each in (*folders, *files)):
            os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
            if not os.path.islink(path):
                mode = os.stat(path).st_mode & 0o777
                os.chmod(path, mode | (0o700 if os.path.isdir(path) else 0o600))


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
