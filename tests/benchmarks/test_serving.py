"""A server that a benchmark starts ends with it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STARTS = """
import sys, time
from pathlib import Path
from benchmarks.serving import leashed
# A server with a child of its own, as engines have them; both hold the pipe.
leashed(["sh", "-c", f"exec >{sys.argv[1]}; sleep 600 & echo up; exec sleep 600"], Path(sys.argv[2]), {})
time.sleep(600)
"""


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_what_a_benchmark_started(by: signal.Signals, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    benchmark = subprocess.Popen([sys.executable, "-c", STARTS, str(pipe), str(tmp_path / "log")])
    with pipe.open("rb") as held:
        assert held.readline() == b"up\n"
        benchmark.send_signal(by)
        assert benchmark.wait(60) == -by
        assert held.read() == b""  # which ends once nobody holds the other end
