"""The viewer: stores, runs and evaluations in a browser, on this machine only.

- `sources` finds what is at a path · `summary` and `index`: one row per trajectory, in DuckDB.
- `query` and `search` filter them · `curves` and `evaluations`: metrics over steps, and results of evaluations.
- `detail` and `tokens` show one trajectory · `recovery`: the recovery view of a rollout.
- `titles`: the task's words, and where in a log it was.
- `library` is one interface to all of these.
- `app` and `server` serve it · `page` puts some of it into one file · `assets` is the page, built from `viewer/`.
- `document`: the frame of every page that is written to a file, also of reports and preflights.
- `review` and `review_page`: a sample of what was decided about calls, for a person to judge.
- `commands`: `export` and `serve`, the two ways to look at a path.
- `demo/` is a small sample; `benchmarks/view_demo.py` made it.

Nothing here writes to a store or makes requests to other machines.

Limits: one reader on one machine; there are no accounts. What a store doesn't hold can't be shown: why resampling kept
a rollout must be in `info.verdict`, and where tokens end is known from a `tokenizer.json` beside the store.
"""

from pathlib import Path

from cleaner_rl.view.commands import export, serve
from cleaner_rl.view.document import html_page
from cleaner_rl.view.page import page_from
from cleaner_rl.view.query import LARGEST_PAGE, BadQueryError
from cleaner_rl.view.review import SIZE as REVIEW_SIZE
from cleaner_rl.view.review import Review, sample
from cleaner_rl.view.review_page import serve_review
from cleaner_rl.view.sources import NothingToShowError

DEMO = Path(__file__).parent / "demo"
"""The sample that ships with the package."""

__all__ = [
    "DEMO",
    "LARGEST_PAGE",
    "REVIEW_SIZE",
    "BadQueryError",
    "NothingToShowError",
    "Review",
    "export",
    "html_page",
    "page_from",
    "sample",
    "serve",
    "serve_review",
]
