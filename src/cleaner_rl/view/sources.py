"""What lies at a path: files of stores, metrics, evaluations and a tokenizer.

A run's folder, of which all but the store may be missing:

    trajectories/run=…/phase=…/step=…/part-….parquet   the store
    metrics.jsonl                                      one object per training step
    verl-….jsonl                                       verl's own metrics, which aren't shown
    tokenizer.json                                     the model's own, for token boundaries
    *.json                                             results of `cleaner eval`

A path may also name a folder with several of these, a store itself (metrics and tokenizer are then beside it), or one
file. Hidden files are left out: the store writes its unfinished ones so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

TRAJECTORIES = "trajectories"
METRICS = "metrics.jsonl"
VERL_METRICS = re.compile(r"verl-\d+\.jsonl")
"""The file of verl's logger, one per start; `cleaner train` names it."""
TOKENIZER = "tokenizer.json"


class NothingToShowError(Exception):
    """There is nothing at a path that can be shown; the message says what to do."""


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file of a store, which never changes once it is there; if another takes its name, this notices."""

    name: str
    """Relative to the path that is viewed, with `/`: part of a trajectory's address."""
    size: int
    modified: int

    @property
    def store(self) -> str:
        """The folder of its store: see `store_of`."""
        return store_of(self.name)


@dataclass(frozen=True, slots=True)
class Sources:
    """What was found."""

    path: Path
    """What was looked at."""
    root: Path
    """Names are relative to this folder: the path itself, or that of the one file that it names."""
    files: tuple[StoreFile, ...]
    metrics: tuple[Path, ...]
    evaluations: tuple[Path, ...]
    tokenizer: Path | None


def store_of(name: str) -> str:
    """The folder that tells runs of the same name apart: a file's own up to `run=…`, without any `trajectories`."""
    folders = takewhile(lambda each: not each.startswith("run="), name.split("/")[:-1])
    return "/".join(each for each in folders if each != TRAJECTORIES)


def discover(path: Path) -> Sources:
    """Look at a path. Cheap enough to do again: no file is opened."""
    if path.is_file():
        root, found = path.parent, [path]
    elif path.is_dir():
        root, found = path, sorted(_walk(path))
    else:
        raise NothingToShowError(f"there is nothing at {path}: no such file or folder")
    beside = [root, root.parent] if any(each.name.startswith("run=") for each in root.iterdir()) else [root]
    metrics = {each for each in found if each.name == METRICS}
    metrics.update(each / METRICS for each in beside if (each / METRICS).is_file())
    tokenizers = [each for each in found if each.name == TOKENIZER] + [each / TOKENIZER for each in beside]
    return Sources(
        path=path,
        root=root,
        files=tuple(_store_files(filter(_may_be_store, found), root)),
        metrics=tuple(sorted(metrics)),
        evaluations=tuple(each for each in found if each.suffix == ".json" and each.name != TOKENIZER),
        # The nearest: a checkpoint further down may have one of its own.
        tokenizer=min((each for each in tokenizers if each.is_file()), key=lambda each: len(each.parts), default=None),
    )


def _may_be_store(file: Path) -> bool:
    ours = file.name != METRICS and not VERL_METRICS.fullmatch(file.name)
    return file.suffix == ".parquet" or (file.suffix == ".jsonl" and ours)


def _store_files(files: Iterable[Path], root: Path) -> Iterator[StoreFile]:
    for file in files:
        try:
            status = file.stat()
        except OSError:  # a link to nothing, or a file that has just gone
            continue
        yield StoreFile(file.relative_to(root).as_posix(), status.st_size, status.st_mtime_ns)


def _walk(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield from (Path(where, each) for each in files if not each.startswith("."))
