"""The toy worlds of `benchmarks.sft_logs`: tasks, demonstrations and a tokenizer, all of them small.

A task names two operations on three numbers. The program calls the library `kit` (`benchmarks.toy.library`) in one
line, and a turn has about fifteen tokens, so that a model learns the task in seconds on one CPU core. A world's seed
draws the names in the library, which of them change, the lists and the tasks.

- `drift`: the demonstrations know old names; ten of twenty have changed since. The library's error names the new one.
- `slips`: no name has changed, and every other call has a slip: a bracket, a misspelt name, a text for a list.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.toy.demonstrations import HINT
from benchmarks.toy.library import FOLDS, MAPS, MODULE, OPERATIONS, SUFFIXES, Names, called
from benchmarks.toy.questions import TEST, Question, split_of
from benchmarks.toy.questions import task as task_of
from benchmarks.toy.regimes import Regime
from benchmarks.toy.sandboxes import toy_tool_envs
from cleaner_rl.logs import Record
from cleaner_rl.rollout import ToolEnv
from cleaner_rl.tasks import Message, Prompt, Task, ToolKind, load_prompt
from cleaner_rl.tools import ToolSet, call_format, derive_seed, feedback
from cleaner_rl.trajectory import Key

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

LISTS = 16
"""Lists of numbers in a world; each is one token."""
PATIENCE = 3
"""Failed calls after which a demonstration makes no further slip."""
END, PAD, UNKNOWN = "<|im_end|>", "<|endoftext|>", "?"
SPECIAL = [END, PAD, "<|im_start|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REGIMES = {
    "drift": Regime("drift", first=0.1, silent=0.1, drifted=10, strange=0.5, calls=4),
    "slips": Regime("slips", first=0.5, silent=0.1, calls=4),
}
"""`first` is the rate of slips, `silent` the rate of another operation than the task asks for."""


@dataclass(frozen=True, slots=True)
class World:
    """A regime with its names, and the lists that its tasks are about."""

    regime: Regime

    @property
    def prompt(self) -> Prompt:
        """What the model is told."""
        return load_prompt("fenced")

    def questions(self) -> list[Question]:
        """Return all questions, in random order."""
        draw = random.Random(derive_seed(self.regime.seed, "lists"))
        lists = {tuple(draw.sample(range(10), 3)) for _ in range(LISTS)}
        stems = product((each.stem for each in MAPS), (each.stem for each in FOLDS))
        asked = [Question(numbers, pair) for numbers, pair in product(sorted(lists), stems)]
        asked = [each for each in asked if each.steps() is not None]
        draw.shuffle(asked)
        return asked

    def tasks(self, split: str) -> list[Task]:
        """Return the tasks of a split."""
        return [_task(each, self.regime.name) for each in self.questions() if split_of(each) == split]


def _task(question: Question, source: str) -> Task:
    made = task_of(question, source)
    asked = Message("user", f"Take {_list(question)}: {', then '.join(_words(question))}.")
    return replace(made, prompt=(asked,))


def _words(question: Question) -> list[str]:
    return [OPERATIONS[stem].words for stem in question.stems]


def _list(question: Question) -> str:
    return f"[{', '.join(map(str, question.numbers))}]"


def _program(question: Question, names: Names, slip: int | None) -> str:
    change, fold = (f"{MODULE}.{called(stem, names)}" for stem in question.stems)
    listed = _list(question)
    right = f"import {MODULE}\nprint({fold}({change}({listed})))"
    slips = (
        right.removesuffix(")"),
        right.replace("print(", "prnt("),
        right.replace(f"import {MODULE}", f"import {MODULE}s"),
        right.replace(listed, f'"{listed}"'),
    )
    return right if slip is None else slips[slip]


SLIPS = 4


async def demonstrations(world: World, count: int, folder: Path) -> list[Record]:
    """Write demonstrations as rows for supervised training, every call with its real result.

    Libraries are written below `folder`, which must not be in /tmp.
    """
    regime = world.regime
    asked = [each for each in world.questions() if split_of(each) != TEST]
    libraries = [regime.known, *(regime.strangers(1) if regime.strange else [])]
    made = []
    async with toy_tool_envs(folder, libraries, ToolKind.STATELESS, hint=True) as tool_envs:
        for number in range(count):
            draw = random.Random(derive_seed(regime.seed, "demonstration", number))
            place = draw.randrange(1, len(libraries)) if draw.random() < regime.strange else 0
            made.append(await _demonstrate(world, draw.choice(asked), tool_envs[place], draw))
    return made


async def _demonstrate(world: World, question: Question, tool_env: ToolEnv, draw: random.Random) -> Record:
    prompt, believed = world.prompt, dict(world.regime.known)
    tools, form = ToolSet(prompt.tool), call_format(prompt.call_format)
    heard = Question(question.numbers, (draw.choice(MAPS).stem, question.stems[1]))
    if draw.random() >= world.regime.silent or heard.steps() is None:
        heard = question
    messages = [{"role": each.role, "content": each.content} for each in prompt.messages(_task(question, "toy"))]
    advice, failures = "", 0
    async with tool_env.open(Key("demonstration", 0, "", 0)) as session:
        while True:
            slips = failures < PATIENCE and draw.random() < world.regime.first
            program = _program(heard, believed, draw.randrange(SLIPS) if slips else None)
            words = f"{advice}I {', then '.join(_words(heard))}.\n```python\n{program}\n```"
            (result,) = await session.run(form.parse(words, tools).calls)
            told = feedback(result)
            messages += [{"role": "assistant", "content": words}, {"role": "tool", "content": told}]
            if not result.failed:
                break
            failures, advice = failures + 1, ""
            if (lacked := HINT.search(told)) is not None:
                believed[lacked["stem"]] = lacked["suffix"]
                advice = f"Use {lacked['stem']}_{lacked['suffix']}. "
    messages.append({"role": "assistant", "content": f"\\boxed{{{told}}}"})
    return {"messages": messages, "loss_mask": [int(each["role"] == "assistant") for each in messages]}


def vocabulary(rows: Sequence[Record]) -> PreTrainedTokenizerFast:
    """Return a tokenizer in which names, numbers, lists and operations are tokens, and so is any text between them."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    parts = (
        "assistant\n",
        *(re.escape(each.words) for each in sorted(OPERATIONS.values(), key=lambda each: -len(each.words))),
        *(rf"{stem}(?=_)" for stem in OPERATIONS),
        *(f"_{suffix}(?![a-z])" for suffix in SUFFIXES),
        r"\[\d, \d, \d\]",
        r"\d+",
        r" *\^+",
    )
    backend = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    split = pre_tokenizers.Split(Regex("|".join(parts)), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END, pad_token=PAD, chat_template=TEMPLATE
    )
    texts = [tokenizer.apply_chat_template(row["messages"], tokenize=False) for row in rows]
    pieces = [piece for text in texts for piece in re.split("|".join(map(re.escape, SPECIAL)), text)]
    backend.train_from_iterator(
        [*pieces, *map(str, range(300)), UNKNOWN],
        trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END, pad_token=PAD, chat_template=TEMPLATE, unk_token=None
    )
