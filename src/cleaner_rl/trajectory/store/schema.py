"""What the columns hold: version 1 of the schema.

A row is a trajectory. `turns` is its history. Edits nest and Arrow's types can't, so `replaced` holds all the turns
that stand under edits, flat: number a trajectory's turns 0 to n-1 and its replaced turns from n on, and `under` is the
number of the turn whose edit holds this one, in the order of `Edit.original`. A turn always comes after the one it is
under.

A text trajectory has no `ids` (null) in any span. `sampled` and `rescored` are null where there are no log-probs.
`arguments`, `versions` and `extra` are JSON in a string, because their keys differ from row to row.

`run` and `step` stand in the path and in the file. DuckDB takes that well; pyarrow and pandas must be told not to look
at the path (`partitioning=None`), because they give its values other types than the columns have.

A change of the schema raises the version; readers of older versions stay. Files say their version in their metadata,
and each row says it in a column, for tools that copy rows and drop the metadata.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cleaner_rl.trajectory.store.errors import StoreError

SCHEMA_VERSION = 1
VERSION_KEY = b"cleaner_rl.schema_version"

SPAN = pa.struct(
    [
        ("text", pa.string()),
        ("ids", pa.list_(pa.int32())),
        ("sampled", pa.list_(pa.float32())),
        ("sampled_version", pa.int64()),
        ("rescored", pa.list_(pa.float32())),
        ("rescored_version", pa.int64()),
    ]
)
CALL = pa.struct(
    [
        ("name", pa.string()),
        ("arguments", pa.string()),
        ("code", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("problem", pa.string()),
    ]
)
EXCEPTION = pa.struct(
    [("type", pa.string()), ("message", pa.string()), ("line", pa.int64()), ("traceback", pa.string())]
)
RESULT = pa.struct(
    [
        ("status", pa.string()),
        ("output", pa.string()),
        ("stderr", pa.string()),
        ("exception", EXCEPTION),
        ("explanation", pa.string()),
        ("output_length", pa.int64()),
        ("seconds", pa.float64()),
        ("versions", pa.string()),
    ]
)
EDIT = pa.struct(
    [
        ("mode", pa.string()),
        ("granularity", pa.string()),
        ("similarity", pa.float64()),
        ("measure", pa.string()),
        ("refusal", pa.string()),
        ("stale", pa.list_(pa.string())),
    ]
)
TURN = pa.struct(
    [
        ("reasoning", SPAN),
        ("action", SPAN),
        ("observation", SPAN),
        ("calls", pa.list_(CALL)),
        ("results", pa.list_(RESULT)),
        ("attempt", pa.int32()),
        ("edit", EDIT),
    ]
)
REPLACED = pa.struct([*TURN, ("under", pa.int32())])
SCHEMA = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("run", pa.string()),
        ("step", pa.int64()),
        ("task", pa.string()),
        ("rollout", pa.int64()),
        ("reward", pa.float64()),
        ("success", pa.bool_()),
        ("ending", pa.string()),
        ("extra", pa.string()),
        ("prompt", SPAN),
        ("turns", pa.list_(TURN)),
        ("replaced", pa.list_(REPLACED)),
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)


def check_version(version: object, where: Path) -> None:
    """Refuse what this release can't know."""
    if not isinstance(version, int):
        raise StoreError(f"{where} has no schema version, so it isn't ours; import logs of other tools with an adapter")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{where} has schema version {version}, and this release reads up to {SCHEMA_VERSION}: "
            "upgrade cleaner-rl to read it"
        )
