"""Packages of other people, as an installer leaves them: modules and metadata in a folder on the path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from cleaner_rl.logs import formats


def install(
    folder: Path,
    package: str,
    groups: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Put a package of these files and entry points on the path, until the test ends."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py").replace("/", "."), raising=False)
    metadata = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    sections = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in groups.items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    monkeypatch.syspath_prepend(folder)
    # Plug-ins stay loaded for as long as a process lives; here a process sees many installations.
    formats.log_format.cache_clear()
    monkeypatch.setattr(formats, "_asked", cache(formats._asked.__wrapped__))
    return folder
