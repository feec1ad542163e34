"""Everything at a path, ready to be asked: what the pages show, as JSON values.

One face over the parts: `sources` finds the files, `index` has a line for each trajectory, `query` and `search` choose
among them, `curves` draws them over steps, `detail` and `tokens` show one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from cleaner_rl.trajectory import AnyTrajectory
from cleaner_rl.trajectory.store import read, read_at
from cleaner_rl.view.curves import runs
from cleaner_rl.view.detail import Json, detail, plain
from cleaner_rl.view.evaluations import evaluations
from cleaner_rl.view.index import Index
from cleaner_rl.view.query import HELD, Query, parse
from cleaner_rl.view.search import Scan, Searcher
from cleaner_rl.view.sources import NothingToShowError, StoreFile, discover
from cleaner_rl.view.summary import LISTED, as_row
from cleaner_rl.view.tokens import tokens_of

SIBLINGS = 256
"""Of a group that are shown; how many there are is said."""
LIST = ", ".join(("name", "row", "run_id", *LISTED))
RUNS = "SELECT DISTINCT run_id FROM trajectories ORDER BY run_id"
COLUMNS = f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in HELD.items())} FROM trajectories"
FILES = "trajectories JOIN files ON files.number = trajectories.file"


class UnknownTrajectoryError(LookupError):
    """An address that leads nowhere."""


class Library:
    """What lies at a path; a context manager. It may be asked from any thread, also while it is being indexed."""

    def __init__(self, path: Path, cache: Path | None = None) -> None:
        self._path = path
        self.sources = discover(path)
        if not (self.sources.files or self.sources.metrics or self.sources.evaluations):
            raise NothingToShowError(
                f"{path} holds no store (.parquet, .jsonl), no metrics.jsonl and no results (.json)"
            )
        self.index = Index(self.sources, cache)
        self._searcher = Searcher(self.index, self.sources.root)

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._searcher.stop()
        self.index.__exit__(kind, error, traceback)

    def update(self, done: Callable[[StoreFile], None] = lambda _: None) -> None:
        """Look for new files and index them."""
        self.sources = discover(self._path)
        self.index.update(self.sources, done)

    def overview(self) -> Json:
        """Runs with their curves, evaluations, and what couldn't be read."""
        problems = self.index.rows("SELECT name, problem FROM files WHERE problem IS NOT NULL ORDER BY name")
        return {
            "path": str(self._path),
            "progress": self._progress(),
            "runs": [run.to_json() for run in runs(self.index, self.sources)],
            "evaluations": evaluations(self.sources),
            "problems": problems,
        }

    def page(self, parameters: Mapping[str, str], *, whole: bool = False) -> Json:
        """One page of a list. `whole` waits for a search to end; else it shows what was found so far."""
        query = parse(parameters)
        look = self._searcher.whole if whole else self._searcher.scan
        scan = look(query.text) if query.text else None
        # Asked before the finds are taken: a search that ends in between has more of them than this page.
        over = scan is not None and scan.finished.is_set()
        tables = {} if scan is None else {"hits": _hits(scan)}
        counted = f"SELECT count(*) AS n FROM trajectories WHERE {query.condition}"
        total = self.index.rows(counted, query.values, tables)[0]["n"]
        return {
            "total": total,
            "page": query.page,
            "size": query.size,
            "rows": self._listed(query, tables),
            "runs": [row["run_id"] for row in self.index.rows(RUNS)],
            "columns": [name for name, held in self.index.rows(COLUMNS)[0].items() if held],
            "searching": None if scan is None or over else {"done": scan.done, "total": len(scan.files)},
            "progress": self._progress(),
        }

    def next_edit(self, address: str, parameters: Mapping[str, str]) -> Json:
        """The trajectory after one, in a list's order, that has an edit: its address, or null after the last."""
        wanted = {name: value for name, value in parameters.items() if name not in ("page", "size")}
        if wanted.get("edits") not in ("graft", "replace"):
            wanted["edits"] = "any"
        query, row = parse(wanted), self._row(address)
        tables = {} if not query.text else {"hits": _hits(self._searcher.whole(query.text))}
        here = "file = (SELECT number FROM files WHERE name = ?) AND row = ?"
        place = [row["name"], row["row"]]
        # The one that is looked at has its place among them, whether it has an edit or not.
        ordered = (
            f"SELECT file, row, row_number() OVER (ORDER BY {query.order}) AS place FROM trajectories "
            f"WHERE ({query.condition}) OR ({here})"
        )
        following = (
            f"WITH ordered AS ({ordered}) SELECT name, row FROM ordered JOIN files ON files.number = file "
            f"WHERE place > (SELECT place FROM ordered WHERE {here}) ORDER BY place LIMIT 1"
        )
        found = self.index.rows(following, [*query.values, *place, *place], tables)
        return {"id": _address(found[0]) if found else None}

    def trajectory(self, address: str) -> Json:
        """One trajectory, with the others of its group."""
        row = self._row(address)
        return self._shown(row, self._read(row))

    def tokens(self, address: str) -> Json:
        """Its tokens; null for a text trajectory."""
        return tokens_of(self._read(self._row(address)), self.sources.tokenizer)

    def many(self, addresses: Iterable[str]) -> Iterator[tuple[str, Json, Json]]:
        """Several of them with their tokens, each file read once, in the order of files."""
        wanted: dict[str, set[int]] = {}
        for address in addresses:
            name, _, row = address.rpartition(":")
            wanted.setdefault(name, set()).add(int(row))
        for name, places in wanted.items():
            for place, found in enumerate(islice(read(self.sources.root / name), max(places) + 1)):
                if place in places:
                    address = f"{name}:{place}"
                    tokens = tokens_of(found, self.sources.tokenizer)
                    yield address, self._shown(self._row(address), found), tokens

    def _shown(self, row: Json, found: AnyTrajectory) -> Json:
        group = f"FROM {FILES} WHERE run_id = ? AND step = ? AND task = ?"
        values = [row["run_id"], row["step"], row["task"]]
        first = f"SELECT {LIST}, verdict {group} ORDER BY rollout, name, row LIMIT {SIBLINGS}"
        return {
            "id": _address(row),
            "run_id": row["run_id"],
            **detail(found),
            "rollouts": self.index.rows(f"SELECT count(*) AS n {group}", values)[0]["n"],
            "siblings": [
                {**_line(each), "verdict": plain(json.loads(each["verdict"] or "null"))}
                for each in self.index.rows(first, values)
            ],
        }

    def _listed(self, query: Query, tables: Mapping[str, pa.Table]) -> list[Json]:
        # The page is cut before texts and names are fetched: a sort then moves numbers alone.
        page = (
            f"SELECT file, row FROM trajectories WHERE {query.condition} ORDER BY {query.order} "
            f"LIMIT {query.size} OFFSET {query.page * query.size}"
        )
        listed = f"SELECT {LIST}, file FROM {FILES} WHERE (file, row) IN ({page}) ORDER BY {query.order}"
        return [_line(row) for row in self.index.rows(listed, query.values, tables)]

    def _row(self, address: str) -> Json:
        """The index has only what `discover` found, so nothing else can be read, whatever the address says."""
        name, _, row = address.rpartition(":")
        asked = f"SELECT {LIST} FROM {FILES} WHERE name = ? AND row = try_cast(? AS BIGINT)"
        found = self.index.rows(asked, [name, row]) if row.isdecimal() else []
        if not found:
            raise UnknownTrajectoryError(f"there is no trajectory at {address} (yet)")
        return found[0]

    def _read(self, row: Json) -> AnyTrajectory:
        return read_at(self.sources.root / row["name"], row["row"])

    def _progress(self) -> Json:
        counted = self.index.rows("SELECT count(*) AS n FROM trajectories")[0]["n"]
        return {"files": len(self.sources.files), "left": len(self.index.stale(self.sources)), "trajectories": counted}


def _address(row: Json) -> str:
    return f"{row['name']}:{row['row']}"


def _line(row: Json) -> Json:
    line = as_row(row)
    line["id"] = _address(row)
    for name in ("name", "row", "file"):
        line.pop(name, None)
    return line


def _hits(scan: Scan) -> pa.Table:
    files, rows = zip(*scan.hits, strict=True) if scan.hits else ((), ())
    return pa.table({"file": pa.array(files, pa.int32()), "row": pa.array(rows, pa.int64())})
