"""The store: trajectories in Parquet and JSONL files, streaming both ways.

- `ParquetWriter` makes or extends a folder `run=…/phase=…/step=…/part-….parquet`, one row per trajectory.
- `JsonlWriter` makes one file, one object per line, with the same content.
- `read` iterates over either, or over one phase of it; `read_at` gives one trajectory by its place in a file.

DuckDB, Hugging Face datasets and anything else that knows Parquet read the files without our code; `record` says what
each column holds. A file appears under its name only when it is whole. Only `rewrite` puts another file in
its place, whole as well, with the same rollouts and other grades.

Limits: text must be valid Unicode (no lone surrogates), and a group of 256 rows must stay under 2 GB in each column. A
store has no index: to find some trajectories fast, ask DuckDB. pyarrow alone takes half of our import budget, so
`cleaner_rl.trajectory` doesn't import this package.
"""

from cleaner_rl.trajectory.store.errors import StoreError
from cleaner_rl.trajectory.store.files import BusyError, only_writer, publish
from cleaner_rl.trajectory.store.jsonl import JsonlWriter
from cleaner_rl.trajectory.store.parquet import ParquetWriter, bounded_batches, rewrite
from cleaner_rl.trajectory.store.reading import read, read_at
from cleaner_rl.trajectory.store.record import SCHEMA, VERSION_KEY

__all__ = [
    "SCHEMA",
    "VERSION_KEY",
    "BusyError",
    "JsonlWriter",
    "ParquetWriter",
    "StoreError",
    "bounded_batches",
    "only_writer",
    "publish",
    "read",
    "read_at",
    "rewrite",
]
