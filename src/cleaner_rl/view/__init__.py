"""See what was sampled, what was changed, and why: stores, runs and evaluations in a browser, on this machine alone.

- `sources` finds what lies at a path · `summary` and `index`: a line for each trajectory, in DuckDB.
- `query` and `search` choose among them · `curves` and `evaluations`: runs over steps, and how good they got.
- `detail` and `tokens` show one trajectory · `library` is all of these as one face.
- `app` and `server` serve it · `export` puts some of it into one file · `assets` is the page, built from `viewer/`.
- `demo/` is a small sample; `benchmarks/view_demo.py` made it.

Nothing here writes to a store, and nothing is asked of any other machine.

Limits: one reader on one machine; there are no accounts. What a store doesn't hold can't be shown: why resampling kept
a rollout must be in `extra["roc"]`, and where tokens end is known from a `tokenizer.json` beside the store.
"""

from pathlib import Path

DEMO = Path(__file__).parent / "demo"
"""The sample that ships with the package."""

__all__ = ["DEMO"]
