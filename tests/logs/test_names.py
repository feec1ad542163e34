"""No two pieces of logs are written to one file."""

from __future__ import annotations

from pathlib import PurePath

from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.logs.containers import Kind, Look, pieces_of
from cleaner_rl.logs.names import named
from cleaner_rl.logs.places import FoundFile

PARTS = st.sampled_from(["a", "b", "a-00000.jsonl", "a.jsonl", "a-00001.jsonl"])
PATHS = st.lists(PARTS, min_size=2, max_size=4).map("/".join)


def names_of(*files: tuple[str, str, int]) -> list[list[str]]:
    """Of files by their address, their path below the place they were found in, and their number of pieces."""
    found = [FoundFile(uri, size, name) for uri, name, size in files]
    pieces = [(one, [*pieces_of(one, Look(Kind.JSONL), 1)]) for one in found]
    return [[piece.name for piece in each] for each in named(pieces)]


def test_a_log_keeps_its_name_and_those_of_one_name_have_their_folders_before_it() -> None:
    assert names_of(("/r1/x.jsonl", "x.jsonl", 1), ("/r2/y.jsonl", "y.jsonl", 1)) == [["x.jsonl"], ["y.jsonl"]]
    assert names_of(("/r1/x.jsonl", "x.jsonl", 1), ("/r2/x.jsonl", "x.jsonl", 2)) == [
        ["r1/x.jsonl"],
        ["r2/x-00000.jsonl", "r2/x-00001.jsonl"],
    ]
    same_folder = names_of(("s3://one/logs/d/x?region=eu", "d/x", 1), ("s3://two/logs/d/x?region=eu", "d/x", 1))
    assert same_folder == [["logs/d/x"], ["two/logs/d/x"]]


def test_a_piece_is_not_called_like_another_log() -> None:
    names = names_of(("/logs/x-00000.jsonl", "x-00000.jsonl", 1), ("/logs/x.jsonl", "x.jsonl", 2))
    assert names == [["x-00000.jsonl"], ["logs/x-00000.jsonl", "logs/x-00001.jsonl"]]


@given(st.lists(st.tuples(PATHS, st.integers(0, 3), st.integers(1, 3)), max_size=8, unique_by=lambda file: file[0]))
def test_all_names_differ(files: list[tuple[str, int, int]]) -> None:
    below = [(f"/{path}", "/".join(PurePath(path).parts[-1 - depth :]), size) for path, depth, size in files]
    names = [name for each in names_of(*below) for name in each]
    assert len(names) == len(set(names))
