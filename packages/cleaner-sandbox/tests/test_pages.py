"""A process whose memory was rearranged is the same process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "cleaner_sandbox" / "inside"
PROGRAM = f"""
import ctypes, decimal, json, os, re, sys
sys.path.insert(0, {str(PACKAGE)!r})
import pages

def work():
    text = json.dumps([str(decimal.Decimal(n) / 7) for n in range(200)])
    return len(re.findall("[0-9]+", text)), sorted(map(hash, range(-50, 50)))[:3], sum(json.loads("[1, 2, 3]"))

before = work()
for _ in range(3):
    work()
pages.fill_holes()
block = bytes(512 - 33)
assert id(block) % pages.POOL == pages.POOL_HEAD, "not at the start of a pool"
before_joining = len(pages._mappings())
pages.join_mappings()
assert len(pages._mappings()) < 0.7 * before_joining
pages.own_code()
pages.use_huge_pages()
assert work() == before
pid = os.fork()
if pid == 0:
    os._exit(0 if work() == before else 1)
assert os.waitpid(pid, 0)[1] == 0
code = [(end - start) for start, end, rights, name in pages._mappings() if rights == "r-xp" and not name]
print(max(code, default=0))
"""


def test_a_process_with_its_code_moved_goes_on() -> None:
    """It computes what it computed before, and so do its forks."""
    done = subprocess.run([sys.executable, "-sSPBc", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if not int(done.stdout):
        pytest.skip("the kernel had no huge page to give")
    assert int(done.stdout) % (1 << 21) == 0
