"""The viewer on a large store: `python -m benchmarks.view --trajectories 1000000 --json`.

Makes a store of that many small trajectories (kept in `--folder` for the next time), starts `cleaner view` on it, and
asks for pages over HTTP as the page does: the first one, each filter, sorts, a far page, text. Each figure is the
median over `--rounds`.

    first_look_seconds      from the command's start, on a store never seen before, to the first page with its rows
    filter_early_seconds    a filter right after that, while the index is being made
    index_seconds           from the command's start to a whole index
    open_again_seconds      from the command's start to the first page of a store that is indexed
    browser_…_seconds       in Chromium, if it is installed: from an address or a filter's choice to what is seen

Limits: the trajectories are shorter than real ones (some 250 tokens) and more alike, so that a million fit on a disk;
the index holds one line for each, whatever their length, but making it takes longer for longer ones.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import numpy as np
from playwright.sync_api import sync_playwright

from benchmarks.record import save
from cleaner_rl.tools import ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import (
    Edit,
    Key,
    RepairKind,
    RepairMode,
    RolloutInfo,
    Scores,
    StopReason,
    TokenSpan,
    Trajectory,
    Turn,
)
from cleaner_rl.trajectory.store import ParquetWriter

ROLLOUTS = 32
PER_STEP = 8192
REQUESTS = {
    "first_page": "",
    "filter_reward": "reward_min=1",
    "filter_task": "task=task-77",
    "filter_status": "status=timeout",
    "filter_edits": "edits=replace",
    "filter_similarity": "similarity_min=0.5&similarity_max=0.6",
    "filter_turns_and_length": "turns_min=4&length_max=240",
    "filter_all": "outcome=solved&edits=any&kept=yes&step_min=10&reward_min=0.5",
    "text": "q=number%20777",
    "sort_reward": "sort=-reward",
    "sort_similarity": "sort=similarity",
    "far_page": "sort=-length&page=5000",
}
OUTPUTS = ["12\n", "3.5\n", "Traceback (most recent call last):\n  …\nNameError: name 'y' is not defined\n"]


def make(folder: Path, count: int) -> None:
    """The store, by two processes."""
    steps = range((count + PER_STEP - 1) // PER_STEP)
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(_make_step, [(folder, step, min(PER_STEP, count - step * PER_STEP)) for step in steps]))


def _make_step(what: tuple[Path, int, int]) -> None:
    folder, step, count = what
    with ParquetWriter(folder) as writer:
        for each in _trajectories(step, count):
            writer.write(each)


def _trajectories(step: int, count: int) -> Iterator[Trajectory[TokenSpan]]:
    random = np.random.default_rng(step)
    ids = random.integers(0, 150_000, 4096).astype(np.int32)
    logprobs = (-random.exponential(0.4, 4096)).astype(np.float32)
    ids.setflags(write=False)
    logprobs.setflags(write=False)
    draws = random.random((count, 8))
    for number in range(count):
        draw = draws[number]
        task = f"task-{step * PER_STEP // ROLLOUTS + number // ROLLOUTS}"
        turns = tuple(_turn(ids, logprobs, draw, place) for place in range(2 + int(4 * draw[0])))
        success = bool(draw[1] < 0.5)
        answer = _span(f"The answer is {number % 1000}.", ids, logprobs, 8, sampled=True)
        yield Trajectory(
            _span(f"What is the number {step * PER_STEP + number} of {task}?", ids, logprobs, 20),
            (*turns, Turn(answer)),
            Key("grpo" if step % 2 else "saar", step, task, number % ROLLOUTS),
            reward=float(success) if draw[2] < 0.9 else float(round(draw[2], 2)),
            success=success,
            stop_reason=StopReason.ANSWERED if draw[3] < 0.9 else StopReason.TURN_LIMIT,
            info=RolloutInfo(verdict={"kept": bool(draw[4] < 0.5), "why": "a success, among the 8 cleanest of 16"}),
        )


def _turn(ids: np.ndarray, logprobs: np.ndarray, draw: np.ndarray, place: int) -> Turn[TokenSpan]:
    code = f"x = {place}\nprint(x + {int(100 * draw[5])})"
    status = Status.OK if draw[6] < 0.8 or place else (Status.TIMEOUT if draw[6] < 0.85 else Status.ERROR)
    error = ExceptionInfo("NameError", "name 'y' is not defined", 2) if status is Status.ERROR else None
    result = ToolResult(status, OUTPUTS[int(3 * draw[7])], exception=error)
    turn = Turn(
        _span(
            "I compute the next value with a short program and look at what it prints.", ids, logprobs, 30, sampled=True
        ),
        _span(f"```python\n{code}\n```", ids, logprobs, 15, sampled=True),
        _span(f"\n{result.output}", ids, logprobs, 6),
        (ToolCall("python", {"code": code}, code, 0, len(code)),),
        (result,),
    )
    if place == 1 and draw[5] < 0.3:
        kind = RepairKind.GRAFT if draw[5] < 0.2 else RepairKind.REPLACE
        return Turn(
            *(turn.reasoning, turn.action, turn.observation, turn.calls, turn.results),
            edit=Edit(RepairMode.SAAR, kind, (turn,), float(draw[5] * 3), "difflib"),
        )
    return turn


def _span(text: str, ids: np.ndarray, logprobs: np.ndarray, length: int, *, sampled: bool = False) -> TokenSpan:
    start = len(text) * 7 % 4000
    scores = Scores(logprobs[start : start + length], 3) if sampled else None
    return TokenSpan(text, ids[start : start + length], scores)


@contextmanager
def viewer(store: Path, cache: Path) -> Iterator[tuple[str, int]]:
    """The command as a person starts it: the address that it serves, and its process."""
    command = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "view", str(store), "--no-open"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[0], process.pid
        finally:
            process.send_signal(signal.SIGINT)


def measure(store: Path, folder: Path, rounds: int) -> dict[str, float]:
    """Seconds of everything."""
    figures: dict[str, float] = {}
    looks: list[float] = []
    for number in range(rounds):
        start = time.perf_counter()
        with viewer(store, folder / str(number)) as (address, _):
            looks.append(_until_rows(address, start))
            figures["filter_early_seconds"] = _median(f"{address}api/list?outcome=solved", 1)
    figures["first_look_seconds"] = median(looks)
    cache = folder / "cache"
    start = time.perf_counter()
    with viewer(store, cache) as (address, process):
        while _get(f"{address}api/list")["progress"]["left"]:
            time.sleep(0.1)
        figures["index_seconds"] = time.perf_counter() - start
        for name, query in REQUESTS.items():
            figures[f"{name}_seconds"] = _median(f"{address}api/list?{query}", rounds)
        for name, text in (("inside_common", "short%20program"), ("inside_nowhere", "no%20such%20words")):
            start = time.perf_counter()
            url = f"{address}api/list?inside=yes&q={text}"
            page = _get(url)
            figures[f"{name}_first_answer_seconds"] = time.perf_counter() - start
            while page["searching"]:
                time.sleep(0.4)  # as the page does
                page = _get(url)
            figures[f"{name}_seconds"] = time.perf_counter() - start
        figures["overview_seconds"] = _median(f"{address}api/overview", rounds)
        listed = _get(f"{address}api/list?sort=-length")["rows"]
        figures["trajectory_seconds"] = _median(f"{address}api/trajectory?id={listed[0]['id']}", rounds)
        figures |= in_browser(address, rounds)
        status = Path(f"/proc/{process}/status").read_text()
        figures["memory_megabytes"] = int(status.partition("VmHWM:")[2].split()[0]) / 1e3
    again: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        with viewer(store, cache) as (address, _):
            again.append(_until_rows(address, start))
    figures["open_again_seconds"] = median(again)
    figures["worst_filter_seconds"] = max(value for name, value in figures.items() if name.startswith("filter_"))
    figures["index_megabytes"] = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file()) / 1e6
    return figures


def in_browser(address: str, rounds: int) -> dict[str, float]:
    """What a person waits for."""
    chromium = os.environ.get("CLEANER_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        return {}
    seconds: dict[str, list[float]] = {}

    def took(name: str, start: float) -> None:
        seconds.setdefault(f"browser_{name}_seconds", []).append(time.perf_counter() - start)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(rounds):
            page = browser.new_page()
            start = time.perf_counter()
            page.goto(f"{address}#/list")
            page.locator("table.rows tbody tr").first.wait_for()
            took("first_page", start)
            count = page.locator(".count").inner_text()
            start = time.perf_counter()
            page.get_by_label("Outcome", exact=True).select_option("failed")
            page.wait_for_function("count => document.querySelector('.count').innerText !== count", arg=count)
            took("filter", start)
            start = time.perf_counter()
            page.goto(address)
            page.locator("figure").first.wait_for()
            took("overview", start)
            page.close()
        browser.close()
    return {name: median(each) for name, each in seconds.items()}


def _until_rows(address: str, start: float) -> float:
    while not _get(f"{address}api/list")["rows"]:
        pass
    return time.perf_counter() - start


def _median(url: str, rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        _get(url)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def _get(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=120) as answer:
        value: dict[str, Any] = json.load(answer)
    return value


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "cleaner-rl-view")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--save", type=Path, help="also write a record there")
    options = parser.parse_args()
    store = options.folder / str(options.trajectories) / "store"
    figures = {}
    if not store.exists():
        start = time.perf_counter()
        unfinished = store.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        make(unfinished, options.trajectories)
        unfinished.rename(store)
        print(f"made the store in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=options.folder) as cache:
        figures = measure(store, Path(cache), options.rounds)
    figures = {name: round(value, 4) for name, value in figures.items()}
    if options.save:
        save(options.save, figures, {"trajectories": options.trajectories, "rounds": options.rounds})
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:32}{value:>12}")


if __name__ == "__main__":
    main()
