"""Data sets of the papers to tasks, and tasks to verl's files and back.

- `sources`: which data sets there are, and what their columns mean · `rows`: where rows come from, and what is missing.
- `forms`: test cases in all their forms · `verl`: the rows that verl trains on.

Limits: the hub can't be reached from our tests. What is tested are files made with the documented columns; a data set
that changes its columns gives an error with the column's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cleaner_rl.tasks.datasets.rows import DatasetError, Row, SkippedRowError, read_file, read_hub
from cleaner_rl.tasks.datasets.sources import SOURCES, Source
from cleaner_rl.tasks.datasets.verl import from_verl, read_verl, to_verl, write_verl
from cleaner_rl.tasks.task import Task

__all__ = [
    "DatasetError",
    "Loaded",
    "Skipped",
    "dataset_names",
    "from_verl",
    "load_from_hub",
    "load_named",
    "load_sets",
    "load_tasks",
    "read_verl",
    "to_verl",
    "write_verl",
]


SHORT_NAMES = {"gpqa": "gpqa-diamond"}
"""What people write for short."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that did not become a task."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of loading a data set: tasks + skipped + duplicates are all of its rows."""

    tasks: tuple[Task, ...]
    skipped: tuple[Skipped, ...]
    duplicates: int
    """Rows that ask what an earlier one asked."""


def dataset_names() -> list[str]:
    """Return the names of the data sets that can be loaded."""
    return sorted(SOURCES)


def load_tasks(name: str, path: str | Path, *, seed: int = 0) -> Loaded:
    """Load the tasks of a data set from a local .jsonl or .parquet file. The seed orders multiple choices.

    Examples:
        >>> import pathlib, tempfile
        >>> from cleaner_rl.tasks import load_tasks
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "aime.jsonl"
        >>> _ = file.write_text('{"ID": "2024-I-1", "Problem": "What is 200 + 4?", "Answer": 204}')
        >>> [(task.id, task.truth) for task in load_tasks("aime24", file).tasks]
        [('aime24/2024-I-1', '204')]
    """
    source = _source(name)
    with closing(read_file(Path(path))) as rows:
        return _tasks(name, source, rows, seed)


def load_from_hub(name: str, hub: str | None = None, *, seed: int = 0) -> Loaded:
    """Load the same from the Hugging Face hub, through `datasets`; `hub` names another copy. Our tests can't reach the
    hub.
    """
    source = _source(name)
    return _tasks(name, source, read_hub(hub or source.hub, source.config, source.split), seed)


def load_named(named: str, *, seed: int = 0) -> tuple[str, Loaded]:
    """Load tasks as a command line names them, and return them with the name of the set.

    `aime24` is from the hub, `aime24=aime.parquet` from a local file with the same columns. `mine.jsonl` (one
    `Task.to_json()` per line) and `mine.parquet` (from `write_verl`) are tasks of your own.
    """
    name, of_file, path = named.partition("=")
    if not of_file and Path(name).suffix in (".jsonl", ".parquet"):
        return Path(name).stem, _own(Path(name))
    name = SHORT_NAMES.get(name, name)
    return name, load_tasks(name, path, seed=seed) if of_file else load_from_hub(name, seed=seed)


def load_sets(names: Iterable[str], *, seed: int = 0) -> dict[str, Loaded]:
    """Load several sets as a command line names them (see `load_named`), by their names.

    Raises:
        DatasetError: Two sets have the same name, or two tasks the same id.
    """
    sets: dict[str, Loaded] = {}
    ids: dict[str, str] = {}
    for each in names:
        name, loaded = load_named(each, seed=seed)
        if name in sets:
            raise DatasetError(f"two sets are called '{name}': rename one of the files, or name each set once")
        for task in loaded.tasks:
            if task.id in ids:
                raise DatasetError(
                    f"two tasks have the id '{task.id}' (in {ids[task.id]} and {name}): give own tasks ids of their own"
                )
            ids[task.id] = name
        sets[name] = loaded
    return sets


def _own(path: Path) -> Loaded:
    if path.suffix == ".parquet":
        return Loaded(tuple(read_verl(path)), (), 0)
    tasks = []
    with closing(read_file(path)) as rows:
        for row in rows:
            try:
                tasks.append(Task.from_json(row.values))
            except KeyError as error:
                raise row.error(f"reads tasks as `Task.to_json` writes them, and needs the column {error}") from None
            except ValueError as error:
                raise DatasetError(f"{row.origin}, row {row.number}: {error}") from None
    return Loaded(tuple(tasks), (), 0)


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise DatasetError(f"no data set is named {name!r}; take one of {', '.join(dataset_names())}, or a file")
    return SOURCES[name]


def _tasks(name: str, source: Source, rows: Iterable[Row], seed: int) -> Loaded:
    tasks: dict[str, Task] = {}
    skipped: list[Skipped] = []
    asked: set[str] = set()
    duplicates = 0
    for row in rows:
        try:
            task = source.read(name, row, seed)
        except SkippedRowError as reason:
            skipped.append(Skipped(row.number, str(reason)))
            continue
        if task.question in asked:
            duplicates += 1
        elif task.id in tasks:
            raise DatasetError(f"{row.origin}, row {row.number}: another problem has the id '{task.id}' already")
        else:
            asked.add(task.question)
            tasks[task.id] = task
    return Loaded(tuple(tasks.values()), tuple(skipped), duplicates)
