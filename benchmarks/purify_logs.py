"""What `cleaner purify` costs: `python -m benchmarks.purify_logs --json`.

Made logs of OpenAI's messages in Parquet: six turns each, about 4,500 characters; in three of ten, one or two calls
fail and are mended. Each figure is of processes of their own.

    per_second_per_core     trajectories purified in a second of CPU, from Parquet to store, with all that lies between
    bare_per_second_per_core    the same rows read and written by pyarrow alone, as they are
    memory_mb               the largest resident size of the process, by number of logs
    two_over_one            trajectories a second of wall time with `--jobs 2`, over those with one process
    machine_two_over_one    the same of programs that share nothing and only compute: what this machine has to give
    cores_of_one            cores that one process keeps busy: above 1, because it compresses in the background

Limits: two_over_one can't be above 2 / cores_of_one on a machine with two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.record import save

ROWS_IN_GROUP = 2_000
TURNS = 6
WORDS = "the sum of first prime value list then index print loop over each total we need check number result"
BARE = """
import sys, pyarrow.parquet as pq
with pq.ParquetFile(sys.argv[1]) as source:
    with pq.ParquetWriter(sys.argv[2], source.schema_arrow, compression="zstd") as target:
        for batch in source.iter_batches(256):
            target.write_batch(batch)
"""
COMPUTE = """
import json
text = json.dumps([{"name": str(number), "values": [number] * 20} for number in range(200)])
for _ in range(12_000):
    json.loads(text)
"""


def made_logs(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Logs as unequal as a language: no text comes twice."""
    generator = random.Random(seed)
    for number in range(count):
        messages: list[dict[str, Any]] = [
            _message("system", "You may use Python."),
            _message("user", f"Problem {number}: {_prose(generator, 60)}?"),
        ]
        failing = generator.randint(1, TURNS - 2) if generator.random() < 0.3 else -1
        chain = generator.randint(1, 2)
        for turn in range(TURNS):
            code = _code(generator, turn)
            for _ in range(chain if turn == failing else 0):
                messages += _turn(generator, f"t{len(messages)}", code.replace("total", "totl", 1), failed=True)
            if turn == TURNS - 1:
                messages.append(_message("assistant", f"{_prose(generator, 40)} The answer is {number}."))
            else:
                messages += _turn(generator, f"t{len(messages)}", code, failed=False)
        yield {"messages": messages, "task_id": f"task-{number // 8}", "reward": float(generator.random() < 0.5)}


def _turn(generator: random.Random, name: str, code: str, *, failed: bool) -> list[dict[str, Any]]:
    function = {"name": "python", "arguments": json.dumps({"code": code})}
    call = {"id": name, "type": "function", "function": function}
    said = _message("assistant", _prose(generator, 60), tool_calls=[call])
    printed = str(generator.random())
    if failed:
        where = 'Traceback (most recent call last):\n  File "<stdin>", line 2, in <module>\n'
        printed = f"{where}NameError: name 'totl' is not defined. Did you mean: 'total'?"
    return [said, _message("tool", printed, tool_call_id=name)]


def _message(role: str, content: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "tool_calls": None, "tool_call_id": None, **fields}


def _prose(generator: random.Random, words: int) -> str:
    return " ".join(generator.choices(WORDS.split(), k=words)) + f" {generator.random()}."


def _code(generator: random.Random, turn: int) -> str:
    lines = [f"v{index} = {generator.randint(0, 10**6)} * v{max(0, index - 1)} + {turn}" for index in range(1, 9)]
    return "\n".join(["v0 = 1", *lines, "total = sum([v1, v2, v3])", "print(total)"])


def write_logs(path: Path, count: int) -> None:
    """As Parquet, a few thousand rows a row group."""
    function = pa.struct([("name", pa.string()), ("arguments", pa.string())])
    call = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", function)])
    message = pa.struct(
        [("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(call)), ("tool_call_id", pa.string())]
    )
    schema = pa.schema([("messages", pa.list_(message)), ("task_id", pa.string()), ("reward", pa.float64())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        rows: list[dict[str, Any]] = []
        for row in made_logs(count):
            rows.append(row)
            if len(rows) == ROWS_IN_GROUP:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows = []
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def measured(*command: str) -> dict[str, float]:
    """Wall and CPU seconds of a command, and the largest resident size of one of its processes."""
    probe = (
        "import json, resource, subprocess, sys, time\n"
        "start = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps({'wall': time.perf_counter() - start, 'cpu': used.ru_utime + used.ru_stime,"
        " 'mb': used.ru_maxrss / 1024}))"
    )
    ran = subprocess.run([sys.executable, "-c", probe, *command], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def machine_two_over_one(repeats: int) -> float:
    """How much more two processes compute here than one."""
    command = [sys.executable, "-c", COMPUTE]
    seconds: dict[int, float] = {}
    for processes in (1, 2):
        for _ in range(repeats):
            start = time.perf_counter()
            running = [subprocess.Popen(command) for _ in range(processes)]
            if any(each.wait() for each in running):
                raise RuntimeError("a process failed")
            seconds[processes] = min(seconds.get(processes, math.inf), time.perf_counter() - start)
    return 2 * seconds[1] / seconds[2]


def figures(count: int, memory: list[int], repeats: int) -> dict[str, Any]:
    """All of them."""
    purify = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "purify"]
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / "logs.parquet"
        write_logs(logs, count)
        one, two, bare = [], [], []
        for number in range(repeats):
            one.append(measured(*purify, str(logs), "--out", f"{folder}/one-{number}", "--json"))
            two.append(measured(*purify, str(logs), "--out", f"{folder}/two-{number}", "--jobs", "2", "--json"))
            bare.append(measured(sys.executable, "-c", BARE, str(logs), f"{folder}/bare.parquet"))
        sizes = {str(count): round(min(each["mb"] for each in one))}
        for number in memory:
            if number != count:
                write_logs(logs, number)
                found = measured(*purify, str(logs), "--out", f"{folder}/memory-{number}", "--json")
                sizes[str(number)] = round(found["mb"])
    # Neighbours on a shared machine only ever add to a time.
    least = {name: min(each["cpu"] for each in runs) for name, runs in (("one", one), ("bare", bare))}
    wall = {name: min(each["wall"] for each in runs) for name, runs in (("one", one), ("two", two))}
    fastest = min(one, key=lambda each: each["wall"])
    return {
        "trajectories": count,
        "per_second_per_core": round(count / least["one"]),
        "bare_per_second_per_core": round(count / least["bare"]),
        "memory_mb": dict(sorted(sizes.items(), key=lambda size: int(size[0]))),
        "two_over_one": round(wall["one"] / wall["two"], 2),
        "machine_two_over_one": round(machine_two_over_one(repeats), 2),
        "cores_of_one": round(fastest["cpu"] / fastest["wall"], 2),
        "wall_seconds": {name: round(seconds, 1) for name, seconds in wall.items()},
    }


def main() -> None:
    """Measure, and print one object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--count", type=int, default=100_000, help="logs for the speed (default: 100000)")
    parser.add_argument("--memory", type=int, nargs="*", default=[10_000, 1_000_000], help="logs for the memory")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    found = figures(arguments.count, arguments.memory, arguments.repeats)
    if arguments.save:
        save(arguments.save, found, {"repeats": arguments.repeats})
    print(json.dumps(found) if arguments.json else json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
