"""Tier 1: runs of a node have no right to its files, and no thread less because of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleaner_sandbox import Tier
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver, needs

CHANGES = """
import os
above, own = os.getcwd(), os.getcwd() + "/link"
os.symlink(os.__file__, own)
for _ in range(3):
    above = os.path.dirname(above)
    opened = os.open(os.__file__, os.O_RDONLY)
    for change in (
        lambda: os.chmod(above, 0), lambda: os.chmod(own, 0), lambda: os.fchmod(opened, 0),
        lambda: os.utime(above, (0, 0)), lambda: os.utime(own), lambda: os.utime(opened, (0, 0)),
        lambda: os.chmod(f"/proc/self/fd/{opened}", 0), lambda: os.chmod("../..", 0, dir_fd=os.open(".", os.O_RDONLY)),
    ):
        try:
            change()
            print("changed")
        except PermissionError:
            pass
"""
COPIES = """
import os, pathlib, shutil, tarfile
open("a", "w").write("text")
os.chmod("a", 0o640)
os.utime("a", (5, 6))
shutil.copy("a", "b")
shutil.copy2("a", "c")
with tarfile.open("all.tar", "w") as archive:
    for name in "abc":
        archive.add(name)
os.mkdir("out")
with tarfile.open("all.tar") as archive:
    archive.extractall("out")
for name in ("a", "b", "c", "out/a", "out/c"):
    found = os.stat(name)
    print(name, oct(found.st_mode & 0o7777), found.st_mtime == 6)
opened = os.open("a", os.O_RDONLY)
os.fchmod(opened, 0o600)
os.utime(opened, ns=(7, 8))
print(oct(os.stat("a").st_mode & 0o7777), os.stat("a").st_mtime_ns)
os.symlink("a", "link")
os.utime("link", (9, 10), follow_symlinks=False)
pathlib.Path("b").touch()
print(os.lstat("link").st_mtime, os.stat("a").st_mtime_ns, os.stat("b").st_mtime > 1e9)
os.chmod(os.open("out", os.O_RDONLY), 0o700)
os.chmod("a", 0o444, dir_fd=os.open("out", os.O_RDONLY))
print(oct(os.stat("out/a").st_mode & 0o7777))
for wrong in ("", "missing", "a" * 5000, "a/b"):
    try:
        os.chmod(wrong, 0)
    except OSError as error:
        print(type(error).__name__)
"""
COPIED = """a 0o640 True
b 0o640 False
c 0o640 True
out/a 0o640 True
out/c 0o640 True
0o600 8
10.0 8 True
0o444
FileNotFoundError
FileNotFoundError
OSError
NotADirectoryError
"""
THREADS = """
import threading
count = 0
try:
    while True:
        threading.stack_size(65536)
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        count += 1
except RuntimeError:
    print(count)
"""
NODE = """
import asyncio, ctypes, os, resource, sys, threading
from cleaner_sandbox import BARE, Node, NodeConfig, RunRequest, Tier
from cleaner_sandbox.inside import kernel

{before}

async def main():
    async with Node(NodeConfig(slots=4, environments=(BARE,), sessions=1)) as node:
        async def run(code):
            return (await node.run(RunRequest(code))).result.output
        {main}
        print(node.status.tier.name, node.status.uids)

asyncio.run(main())
"""
WITHOUT = """
for number in range(41):
    if number not in {kept}:
        kernel.prctl(24, number)
version_3 = bytes([0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0])
kept = sum(1 << number for number in {kept}).to_bytes(4, "little")
assert ctypes.CDLL(None).capset(version_3, (2 * kept + bytes(4)) + bytes(12)) == 0
"""
"""Drops capabilities, from what a program that is executed by root gets, too."""
PLAIN_USER = """
kernel.prctl(8, 1)
os.setgroups([]); os.setresgid(54321, 54321, 54321); os.setresuid(54321, 54321, 54321)
version_3 = bytes([0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0])
assert ctypes.CDLL(None).capset(version_3, 3 * bytes([4, 0, 0, 0]) + bytes(12)) == 0
assert ctypes.CDLL(None).prctl(47, 2, 2, 0, 0) == 0  # to find the interpreter, wherever it is
kernel.prctl(4, 1)
for _ in range(40):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
"""Another user, who has more threads already than a run may."""
TWELVE_EACH = """
        twelve = "import threading, time\\nall = [threading.Thread(target=time.sleep, args=(0.5,)) for _ in range(12)]"
        twelve += "\\n[each.start() for each in all]\\nprint(len(all))"
        print(await asyncio.gather(*(run(twelve) for _ in range(4))))
"""


def started(before: str, main: str = "print(await run('import os; print(os.getuid())'))") -> str:
    needs(Tier.T2)  # root, who can play the others
    command = [sys.executable, "-c", NODE.format(before=before, main=main)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd="/tmp")
    return done.stdout + done.stderr


def test_finding_no_program_changes_files_of_others(t1: Driver) -> None:
    modes = [os.stat(path).st_mode for path in (os.__file__, "/tmp")]
    assert t1.run(CHANGES).output == ""
    assert [os.stat(path).st_mode for path in (os.__file__, "/tmp")] == modes
    assert t1.run("print(1)").output == "1\n"


def test_copies_and_archives_of_own_files_keep_modes_and_times(box: Driver) -> None:
    assert box.run(COPIES).output == COPIED


def test_who_asks_all_the_time_is_still_timed(t1: Driver) -> None:
    code = "import os\nopen('a', 'w')\nwhile True: os.chmod('a', 0o600)"
    assert t1.run(code, wall_seconds=0.5).status is RunStatus.TIMEOUT


@pytest.mark.parametrize("processes", [5, 20])
def test_a_run_has_the_threads_that_it_may(t1: Driver, processes: int) -> None:
    assert t1.run(THREADS, processes=processes).output == f"{processes - 1}\n"


@pytest.mark.timeout(120)
def test_finding_threads_do_not_depend_on_others_of_the_user(tmp_path: Path) -> None:
    assert started(PLAIN_USER, TWELVE_EACH) == "['12\\n', '12\\n', '12\\n', '12\\n']\nT1 None\n"


@pytest.mark.timeout(120)
def test_finding_runs_of_a_root_without_namespaces_are_not_root() -> None:
    said = started(WITHOUT.format(kept=(0, 1, 2, 5, 6, 7))).split()
    assert int(said[0]) >= 1_900_000_000
    assert said[1:3] == ["T1", "(1900000000,"]


@pytest.mark.timeout(120)
def test_finding_a_root_that_cannot_change_its_user_refuses() -> None:
    said = started(WITHOUT.format(kept=(0, 1, 2, 5, 6)))
    assert "tier T1 is required" in said
    assert "it has no SETUID" in said
    assert "--user 10001" in said
