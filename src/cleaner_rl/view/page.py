"""Some trajectories as one page that needs no server: to send to a colleague, or to keep.

The page opens on the first repaired turn of its first repaired trajectory; if nothing was repaired, on the overview.

The page's script, style and data are in the file itself. Its policy names them by their hashes and allows nothing
else: no address is ever asked, and what trajectories say can't become a script.

`page_of` takes them from a library, which needs DuckDB; `page_from` has them in memory and needs nothing but the core.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from cleaner_rl.trajectory import AnyTrajectory
from cleaner_rl.view.assets import asset
from cleaner_rl.view.curves import Run
from cleaner_rl.view.detail import detail
from cleaner_rl.view.document import html_page
from cleaner_rl.view.query import BadQueryError
from cleaner_rl.view.summary import LISTED, as_row, summarise
from cleaner_rl.view.tokens import tokens_of

if TYPE_CHECKING:
    from cleaner_rl.view.library import Library

LIMIT = 100
"""Trajectories in a page, unless `size` says otherwise."""
MOST_CHARACTERS = 200_000_000
"""Of the JSON of a page's trajectories: browsers open no page of half a gigabyte."""
BODY = """<div id="app"></div>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>"""


@dataclass(frozen=True, slots=True)
class Export:
    """A page, and how much of its list it holds."""

    page: bytes
    shown: int
    total: int


def page_of(library: Library, parameters: Mapping[str, str]) -> Export:
    """The first trajectories of a list, in its order, as one HTML file. Raises `BadQueryError` if it is too large."""
    listed = library.page({"size": str(LIMIT), **parameters}, whole=True)
    overview = library.overview()
    shown: list[tuple[str, Any, Any]] = []
    left = MOST_CHARACTERS
    for each in library.many(row["id"] for row in listed["rows"]):
        left -= len(_json(each))
        if left < 0:
            fewer = f"export fewer, such as size={max(1, len(shown) // 2)}, or look at them without an export"
            raise BadQueryError(f"these trajectories are too large for one page; {fewer}")
        shown.append(each)
    data = {
        "overview": {**overview, "path": PurePath(overview["path"]).name},
        "total": listed["total"],
        "rows": listed["rows"],
        "trajectories": {address: found for address, found, _ in shown},
        "tokens": {address: tokens for address, _, tokens in shown},
    }
    return Export(_page(data), len(listed["rows"]), listed["total"])


def page_from(trajectories: Sequence[AnyTrajectory], name: str) -> bytes:
    """Return a few trajectories of one run, in their order, as one HTML file."""
    rows, shown, tokens = [], {}, {}
    for place, each in enumerate(trajectories):
        line = summarise(each)
        address = f"trajectories:{place}"
        rows.append({"id": address, "run_id": line.run, **as_row({field: getattr(line, field) for field in LISTED})})
        shown[address] = {"id": address, "run_id": line.run, **detail(each)}
        tokens[address] = tokens_of(each, None)
    for row in rows:
        group = [other for other in rows if (other["step"], other["task"]) == (row["step"], row["task"])]
        shown[row["id"]] |= {"rollouts": len(group), "siblings": [{**other, "verdict": None} for other in group]}
    count = len(rows)
    run = Run(rows[0]["run"], count, len({row["step"] for row in rows}), len({row["task"] for row in rows}))
    overview = {
        "path": name,
        "progress": {"files": 1, "left": 0, "trajectories": count},
        "runs": [run.to_json()],
        "evaluations": [],
        "problems": [],
    }
    return _page({"overview": overview, "total": count, "rows": rows, "trajectories": shown, "tokens": tokens})


def _page(data: Mapping[str, Any]) -> bytes:
    script, style = asset("app.js").decode(), asset("app.css").decode()
    policy = (
        f"default-src 'none'; script-src '{script_hash(script)}'; style-src '{script_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    body = BODY.format(data=_harmless(data), script=script)
    return html_page("Trajectories", body, style, policy).encode(errors="replace")


def _harmless(data: Mapping[str, object]) -> str:
    """JSON in which no tag can end, begin or be commented out."""
    return _json(data).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def script_hash(text: str) -> str:
    """Return the name of a script or style in a policy."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
