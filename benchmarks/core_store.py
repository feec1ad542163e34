"""Writing and reading a store against pyarrow alone on the same columns.

    python -m benchmarks.core_store --count 10000 --tokens 7000

Ours is timed from and to `Trajectory` values. pyarrow's columns are built beforehand and are not turned into values.
Both write to the same file system with the same compression and encodings, in turns, and the medians of three are
compared: 1.0 is pyarrow's own speed. Ours flushes its files to the disk, pyarrow's doesn't.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import Key, Scores, TokenSpan, Trajectory, Turn
from cleaner_rl.trajectory.store import ParquetWriter, read
from cleaner_rl.trajectory.store.parquet import OPTIONS
from cleaner_rl.trajectory.store.record import table_of

TURNS = 6
REPEATS = 3
VOCABULARY = 150_000
WORDS = 20_000


def store_ratios(count: int, tokens: int) -> dict[str, float]:
    """Our speed over pyarrow's: of writing, and of reading."""
    return ratios(store_seconds(count, tokens))


def ratios(seconds: dict[str, float]) -> dict[str, float]:
    """The ratios of these seconds."""
    return {
        "store_write_ratio": seconds["pyarrow_write"] / seconds["write"],
        "store_read_ratio": seconds["pyarrow_read"] / seconds["read"],
    }


def store_seconds(count: int, tokens: int) -> dict[str, float]:
    """How long each side took, writing and reading."""
    trajectories = list(_trajectories(count, tokens))
    # In pieces, because one Arrow list holds at most 2³¹ characters.
    table = pa.concat_tables([table_of(trajectories[start : start + 256]) for start in range(0, count, 256)])
    times: dict[str, list[float]] = {"write": [], "read": [], "pyarrow_write": [], "pyarrow_read": []}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = Path(folder) / "pyarrow.parquet", Path(folder) / "store"
            times["pyarrow_write"].append(_seconds(partial(pq.write_table, table, theirs, **OPTIONS)))
            times["write"].append(_seconds(partial(_write, trajectories, ours)))
            times["pyarrow_read"].append(_seconds(partial(pq.read_table, theirs)))
            times["read"].append(_seconds(partial(_read, ours, count)))
    return {name: median(each) for name, each in times.items()}


def _write(trajectories: list[Trajectory[TokenSpan]], path: Path) -> None:
    with ParquetWriter(path) as writer:
        for trajectory in trajectories:
            writer.write(trajectory)


def _read(path: Path, count: int) -> None:
    assert sum(1 for _ in read(path)) == count


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _trajectories(count: int, tokens: int) -> Iterator[Trajectory[TokenSpan]]:
    """Like the paper's: most tokens are reasoning; words and ids as unequal as in a language."""
    generator = np.random.default_rng(0)
    letters = generator.choice(list("etaoinshrdlucmfw"), (WORDS, 9))
    lengths = generator.integers(1, 9, WORDS)
    words = np.array(["".join(row[:length]) for row, length in zip(letters, lengths, strict=True)], object)
    for number in range(count):
        ids = np.minimum(generator.zipf(1.3, tokens), VOCABULARY).astype(np.int32)
        logprobs = -generator.exponential(0.4, tokens).astype(np.float32)
        whole = TokenSpan(" ".join(words[ids % WORDS].tolist()), ids, Scores(logprobs, 3))
        key = Key("benchmark", 1, f"task-{number // 16}", number % 16)
        yield _trajectory(whole, key)


def _trajectory(whole: TokenSpan, key: Key) -> Trajectory[TokenSpan]:
    share = len(whole) // (TURNS + 1)

    def span(start: int, part: float, sampled: bool = True) -> TokenSpan:
        end = start + int(share * part)
        scores = Scores(whole.sampled.logprobs[start:end], 3) if sampled and whole.sampled else None
        return TokenSpan(whole.text[4 * start : 4 * end], whole.ids[start:end], scores)

    def turn(start: int) -> Turn[TokenSpan]:
        action = span(start + int(share * 0.6), 0.25)
        call = ToolCall("python", {"code": action.text}, action.text, 0, len(action.text))
        observation = span(start + int(share * 0.85), 0.15, sampled=False)
        result = ToolResult(Status.OK, observation.text, seconds=0.1, versions={"python": "3.11.7"})
        return Turn(span(start, 0.6), action, observation, (call,), (result,))

    turns = tuple(turn(share * (index + 1)) for index in range(TURNS))
    return Trajectory(span(0, 1.0, sampled=False), turns, key, reward=1.0, success=True)


def main() -> None:
    """Print the ratios, and the seconds behind them, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=7_000)
    options = parser.parse_args()
    seconds = store_seconds(options.count, options.tokens)
    print(json.dumps({**ratios(seconds), "seconds": seconds}, indent=2))


if __name__ == "__main__":
    main()
