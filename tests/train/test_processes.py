"""Runs that are told to stop, or killed: what they started ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_rl.train.launch.start import _alone_in, _run
from cleaner_rl.train.launch.watch import Watch
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.recipe.settings import RecipeError
from cleaner_rl.trajectory.store.files import only_writer
from cleaner_sandbox.processes import ended_by_signals
from tests.train.recipes import values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux's")
RUN = """
import sys
from pathlib import Path
from cleaner_sandbox.processes import ended_by_signals
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.launch.rewind import next_start
from cleaner_rl.train.launch.start import _run
from cleaner_rl.train.launch.watch import Watch
from tests.train.recipes import values

folder = Path(sys.argv[1])
child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
with ended_by_signals():
    watch = Watch(folder / "verl-0.jsonl", lambda line: print(line, flush=True))
    _run([sys.executable, "-c", child], to_recipe(values()), folder, watch, lambda: next_start(folder))
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A run, and the number of the process that stands for verl."""
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        log = tmp_path / "verl-0.log"
        assert process.stdout.readline() == f"Starting verl; its output is in {log}.\n"
        yield process, int(_line(log))
        process.kill()


def _line(file: Path) -> str:
    deadline = time.monotonic() + 60
    while not file.exists() or "\n" not in (text := file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return text


def _ended(process: int) -> bool:
    """Whether it is gone, or will be once its parent looks."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("checkpoint", [0, 7])
def test_a_run_that_is_interrupted_says_from_where_it_continues(
    run: tuple[subprocess.Popen[str], int], tmp_path: Path, checkpoint: int
) -> None:
    process, child = run
    if checkpoint:
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(checkpoint))
    os.kill(process.pid, signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "Stopping verl and the sandbox.\n"
    continues = f"resumes after step {checkpoint}," if checkpoint else "begins again with step 1"
    assert continues in process.stdout.readline()
    assert _ended(child), "it is said when it is true"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_verl_ends_with_the_run(run: tuple[subprocess.Popen[str], int], number: signal.Signals) -> None:
    process, child = run
    os.kill(process.pid, number)
    code = process.wait(60)
    assert code == (-number if number is signal.SIGKILL else 128 + number)
    deadline = time.monotonic() + 60
    while not _ended(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _ended(child)


def test_a_process_that_left_verls_group_ends_too(tmp_path: Path) -> None:
    """As Ray's own processes do, which outlive verl by seconds and make their folder anew."""
    daemon = "import os, time; print(os.getpid(), os.environ['RAY_TMPDIR'], flush=True); time.sleep(600)"
    verl = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {daemon!r}], start_new_session=True)"
    wait = "; from pathlib import Path; import time\nwhile not Path(sys.argv[1]).read_text(): time.sleep(0.05)"
    log = tmp_path / "verl-0.log"
    watch = Watch(tmp_path / "verl-0.jsonl", lambda _: None)
    _run([sys.executable, "-c", verl + wait, str(log)], to_recipe(values()), tmp_path, watch, lambda: "")
    process, folder = log.read_text().split()
    assert _ended(int(process))
    assert not Path(folder).exists()


def test_a_second_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    with (
        only_writer(tmp_path / ".lock"),
        pytest.raises(RecipeError, match="another process"),
        _alone_in(tmp_path),
    ):
        pass
    with _alone_in(tmp_path):
        pass  # the first has ended


def test_signals_mean_again_what_they_meant() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)), ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
