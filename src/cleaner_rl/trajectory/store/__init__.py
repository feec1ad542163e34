"""The store: trajectories in Parquet and JSONL files, streaming both ways.

- `ParquetWriter` makes or extends a folder `run=…/step=…/part-….parquet`, one row a trajectory.
- `JsonlWriter` makes one file, one object a line, with the same content.
- `read` iterates over either; `read_at` gives one trajectory by its place in a file.

DuckDB, Hugging Face datasets and anything else that knows Parquet read the files without our code; `schema` says what
each column holds. A file appears under its name only when it is whole, and none is ever written to again.

Limits: text must be valid Unicode (no lone surrogates), and a group of 256 rows must stay under 2 GB in each column. A
store has no index: to find some trajectories fast, ask DuckDB. pyarrow alone takes half of our import budget, so
`cleaner_rl.trajectory` doesn't import this package.
"""

from cleaner_rl.trajectory.store.errors import StoreError
from cleaner_rl.trajectory.store.jsonl import JsonlWriter
from cleaner_rl.trajectory.store.parquet import ParquetWriter
from cleaner_rl.trajectory.store.reading import read, read_at
from cleaner_rl.trajectory.store.schema import SCHEMA_VERSION

__all__ = ["SCHEMA_VERSION", "JsonlWriter", "ParquetWriter", "StoreError", "read", "read_at"]
