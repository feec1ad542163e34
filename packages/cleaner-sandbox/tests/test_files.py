"""Patterns of files that are fetched, against the standard library's."""

from __future__ import annotations

import asyncio
import glob
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_sandbox.node.files import fetched

NAMES = ("a", "b", "ab", ".c", "a/a", "a/b", "a/ab/a", "a/ab/b", "b/a", "b/.c/ab/a", "ab/b/b/b/a")
PARTS = st.sampled_from(["a", "b", "*", "?", "a*", "*b", "[ab]", "[!a]", "**", ".*", "*/*"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name in NAMES:
        file = folder / "/".join(f"{part}_" for part in name.split("/")[:-1]) / name.rpartition("/")[2]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return folder


@given(parts=st.lists(PARTS, min_size=1, max_size=5), suffix=st.sampled_from(["", "_"]))
def test_a_pattern_names_the_files_that_it_names_in_the_standard_library(
    tree: Path, parts: list[str], suffix: str
) -> None:
    folders = [part if part == "**" else f"{part}{suffix}" for part in parts[:-1]]
    pattern = "/".join([*folders, parts[-1]])
    named = glob.glob(pattern, root_dir=tree, recursive=True, include_hidden=True)
    if os.path.isdir(tree / pattern):  # a folder's own name stands for all that is in it
        named = glob.glob(f"{pattern}/**", root_dir=tree, recursive=True, include_hidden=True)
    folder = os.open(tree, os.O_PATH)
    try:
        found = asyncio.run(fetched(folder, [pattern], 1 << 20))
    finally:
        os.close(folder)
    assert set(found.files) == {name for name in named if os.path.isfile(f"{tree}/{name}")}
    assert found.left_out == 0
