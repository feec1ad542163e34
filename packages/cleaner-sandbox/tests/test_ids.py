"""User ids of slots: of nobody else, and mapped where a node runs in a user namespace, as in many containers."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_sandbox import Tier
from cleaner_sandbox.isolation.ids import NOBODY, USUAL, first_id, problem
from tests.conftest import needs

IN_A_NAMESPACE_OF_ITS_OWN = """
import asyncio, os, sys
from cleaner_sandbox import BARE, Node, NodeConfig, RunRequest
from cleaner_sandbox.inside import kernel

told, tell = os.pipe()
if os.fork() == 0:
    os.read(told, 1)
    for kind in ("uid", "gid"):
        with open(f"/proc/{os.getppid()}/{kind}_map", "w") as file:
            file.write("0 0 65536")
    os._exit(0)
kernel.unshare(kernel.CLONE_NEWUSER)
os.write(tell, b"x")
os.wait()

async def main():
    async with Node(NodeConfig(slots=1, environments=(BARE,), sessions=1)) as node:
        result = (await node.run(RunRequest("import os; print(os.getuid())"))).result
        print(node.status.tier.name, result.output, node.status.probes["namespaces"])

asyncio.run(main())
"""


def maps(folder: Path, *texts: str) -> tuple[Path, ...]:
    files = tuple(folder / str(number) for number in range(len(texts)))
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return files


@pytest.mark.parametrize(
    ("users", "groups", "first"),
    [
        ("         0          0 4294967295\n", "0 0 4294967295\n", USUAL),  # a machine
        ("0 1000 1\n1 100000 65536\n", "0 1000 1\n1 100000 65536\n", NOBODY - 300),  # rootless podman
        ("0 100000 65536\n", "0 100000 65536\n", NOBODY - 300),
        ("0 100000 65536\n", "0 100000 1000\n", 700),  # as few as there are groups
        ("0 100000 400000\n", "0 100000 400000\n", 399_700),
        ("0 1000 1\n", "0 1000 1\n", None),  # rootless, and no ids were given to the user
        ("0 5 300\n", "0 5 300\n", None),  # root's own can't be a slot's
    ],
)
def test_finding_slots_take_ids_that_are_mapped(tmp_path: Path, users: str, groups: str, first: int | None) -> None:
    assert first_id(300, maps(tmp_path, users, groups)) == first


def test_a_kernel_without_user_namespaces_has_all_ids(tmp_path: Path) -> None:
    assert first_id(300, (tmp_path / "none", tmp_path / "none")) == USUAL


lengths = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 70_000)), min_size=1, max_size=4)


@given(lengths, lengths, st.integers(1, 2000))
def test_all_ids_are_mapped_twice_and_nobody_elses(
    tmp_path_factory: pytest.TempPathFactory, users: list[tuple[int, int]], groups: list[tuple[int, int]], count: int
) -> None:
    mapped, texts = [], []
    for ranges in (users, groups):
        begin, lines, ids = 0, "", set[int]()
        for gap, length in ranges:
            lines += f"{begin + gap} {100_000 + begin} {length}\n"
            ids |= set(range(begin + gap, begin + gap + length))
            begin += gap + length
        mapped.append(ids)
        texts.append(lines)
    both = (mapped[0] & mapped[1]) - {0, NOBODY}
    first = first_id(count, maps(tmp_path_factory.mktemp("maps"), *texts))
    rows = itertools.groupby(enumerate(sorted(both)), lambda pair: pair[1] - pair[0])
    assert (first is not None) is any(len(list(row)) >= count for _, row in rows)
    assert first is None or set(range(first, first + count)) <= both


def test_who_has_too_few_ids_is_told_how_to_have_more() -> None:
    assert problem(300) is None
    assert "--uidmap" in str(problem(1 << 32))


@pytest.mark.timeout(120)
def test_finding_a_node_in_a_user_namespace_has_tier_2() -> None:
    needs(Tier.T2)
    command = [sys.executable, "-c", IN_A_NAMESPACE_OF_ITS_OWN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "T2 1000\n ok\n", done.stderr
