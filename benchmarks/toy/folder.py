"""Makes a toy environment and its model once, and keeps them in a folder named by a hash of all settings.

    model/            what vLLM, SGLang, verl and transformers load
    kit/              the current library, as an environment that a sandbox offers
    prompt.toml       the prompt
    train.jsonl, test.jsonl        tasks, one per line, as `cleaner rollout` and `cleaner eval` read them
    train.parquet, test.parquet    the same as verl's rows
    sft.parquet       the demonstrations: `messages` and `tools`
    toy.json          the settings and the losses

The demonstrations are kept beside the folders, one file for each regime, count and seed. All of it is below `--cache`,
else the environment's `CLEANER_TOY`, else `.cache/toy` below this checkout. Don't keep it in /tmp: programs in the
sandbox have their own /tmp.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from benchmarks.models import save
from benchmarks.toy import library
from benchmarks.toy.demonstrations import Demonstration, demonstrations
from benchmarks.toy.model import Lessons, train_model
from benchmarks.toy.questions import TEST, TRAIN, questions, task
from benchmarks.toy.regimes import Regime
from cleaner_rl.tasks import Task, write_verl

FORMAT = 1
"""Raised when the same settings give another folder."""
TASKS = {TRAIN: 4_096, TEST: 1_024}
AGENT = "cleaner"


def cache_folder() -> Path:
    """Return where made folders are kept."""
    return Path(os.environ.get("CLEANER_TOY") or Path(__file__).parents[2] / ".cache" / "toy")


def made(regime: Regime, lessons: Lessons, cache: Path | None = None) -> Path:
    """Return the folder of this environment and model; make it if it doesn't exist."""
    folder = place(regime, lessons, cache)
    if not (folder / "toy.json").exists():
        part = folder.with_name(f"{folder.name}.part{os.getpid()}")
        _make(part, regime, lessons)
        if folder.exists():  # somebody was quicker with the same
            shutil.rmtree(folder)
        part.rename(folder)
    if not (folder / library.MODULE).exists():
        library.write(folder / library.MODULE, regime.current, hint=regime.hint)
    return folder


def place(regime: Regime, lessons: Lessons, cache: Path | None = None) -> Path:
    """Return where that folder is, or will be."""
    return (cache or cache_folder()) / f"{regime.name}-{digest(_settings(regime, lessons))}"


def shown(regime: Regime, count: int, seed: int, cache: Path | None = None) -> list[Demonstration]:
    """The first demonstrations of a seed, kept in a file of their own: models of any size learn from the same."""
    cache = cache or cache_folder()
    settings = {"format": FORMAT, "regime": regime.to_json(), "count": count, "seed": seed}
    file = cache / f"{regime.name}-shown-{digest(settings)}.jsonl"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.part{os.getpid()}")
        with tempfile.TemporaryDirectory(dir=cache, prefix="libraries-") as libraries:
            fresh = asyncio.run(demonstrations(regime, count, seed, TRAIN, Path(libraries)))
        part.write_text("".join(json.dumps(each.to_json()) + "\n" for each in fresh))
        part.rename(file)
    return [Demonstration.from_json(json.loads(line)) for line in file.read_text().splitlines()]


def tasks(regime: Regime, split: str, count: int, seed: int = 0) -> list[Task]:
    """Tasks of a split. Those of the training split are other questions than the demonstrations', by their seed."""
    asked = questions(seed + 1, split, changes=regime.changes, stepwise=regime.stepwise, largest=regime.largest)
    return [task(each, regime.name) for each in islice(asked, count)]


def _settings(regime: Regime, lessons: Lessons) -> dict[str, object]:
    return {"format": FORMAT, "regime": regime.to_json(), "lessons": lessons.to_json()}


def _make(folder: Path, regime: Regime, lessons: Lessons) -> None:
    folder.mkdir(parents=True)
    shutil.copy(regime.prompt_file, folder / "prompt.toml")
    for split, count in TASKS.items():
        chosen = tasks(regime, split, count)
        lines = (json.dumps(each.to_json(), ensure_ascii=False) + "\n" for each in chosen)
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
        write_verl(folder / f"{split}.parquet", chosen, regime.prompt, AGENT)
    lesson = shown(regime, lessons.demonstrations, lessons.seed, folder.parent)
    _write_sft(folder / "sft.parquet", lesson, regime)
    model, tokenizer, losses = train_model(lesson, regime, lessons)
    save(model, tokenizer, folder / "model")
    record = {
        **_settings(regime, lessons),
        "losses": losses,
        "parameters": sum(each.numel() for each in model.parameters()),
    }
    (folder / "toy.json").write_text(json.dumps(record, indent=2) + "\n")


def digest(settings: Mapping[str, object]) -> str:
    """Return a name for these settings."""
    return blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=6).hexdigest()


def _write_sft(path: Path, lesson: Sequence[Demonstration], regime: Regime) -> None:
    """As verl's trainer for supervised learning reads it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tool = regime.prompt.tool
    schema = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    text = pa.string()
    columns = pa.schema({"messages": pa.list_(pa.struct({"role": text, "content": text})), "tools": text})
    rows = [
        {
            "messages": [{"role": each.role, "content": each.content} for each in one.messages(regime)],
            "tools": json.dumps([{"type": "function", "function": schema}]),
        }
        for one in lesson
    ]
    pq.write_table(pa.Table.from_pylist(rows, columns), path)
