"""Which user ids slots take: ids of nobody else, and only such as the node's user namespace has."""

from __future__ import annotations

from pathlib import Path

USUAL = 1_900_000_000
"""Out of the way of people's ids, and of those that containers are given."""
NOBODY = 65_534
"""The kernel shows whoever isn't mapped by this id, so no slot may have it."""
MAPS = (Path("/proc/self/uid_map"), Path("/proc/self/gid_map"))


def first_id(count: int, maps: tuple[Path, ...] = MAPS) -> int | None:
    """Return the first of `count` ids in a row that are users and groups here; None if there is no such row.

    That is `USUAL` wherever it is mapped. A user namespace of a container usually maps fewer ids; of those slots take
    the last ones, because images give their own users the first ones.
    """
    rows = [(1, NOBODY), (NOBODY + 1, 1 << 32)]
    for map_ in maps:
        lines = map_.read_text(encoding="ascii").splitlines() if map_.exists() else ["0 0 4294967295"]
        mapped = [(int(first), int(first) + int(length)) for first, _, length in map(str.split, lines)]
        rows = [(max(begin, first), min(end, last)) for begin, end in rows for first, last in mapped]
    if any(begin <= USUAL and USUAL + count <= end for begin, end in rows):
        return USUAL
    return max((end - count for begin, end in rows if end - count >= begin), default=None)


def problem(count: int) -> str | None:
    """Why slots can't have ids of their own here; None if they can."""
    if first_id(count) is not None:
        return None
    return (
        f"this user namespace has no {count} ids in a row for the slots: give the container more ids (/etc/subuid and "
        "/etc/subgid, or --uidmap), or the node fewer slots and sessions"
    )
