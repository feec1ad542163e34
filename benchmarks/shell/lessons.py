"""Demonstrations of work in a shell, with mistakes and their corrections, and the toy model that learns from them.

Every command of a demonstration was run, so what the model reads in its lessons is what the sandbox answers. In each
epoch other names stand in the place of those that were drawn: so the model learns to copy them, and no name by heart.
Lists of names that are said twice come first, to begin with copying; what they add was not measured.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.models import qwen3, save
from benchmarks.shell.tasks import WORDS, ShellTask, shell_tasks
from benchmarks.toy.folder import cache_folder, digest
from benchmarks.toy.model import Lesson, Lessons, lesson, phrases, teach
from cleaner_rl.rollout import ChatRenderer, tool_env_of
from cleaner_rl.rollout.tool_env import prepared_for
from cleaner_rl.tasks import Message, Task, load_prompt
from cleaner_rl.tools import ToolSet, call_format, derive_seed, feedback
from cleaner_rl.trajectory import Key
from cleaner_sandbox import Node, NodeConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PROMPT_FILE = Path(__file__).with_name("prompt.toml")
PROMPT = load_prompt(PROMPT_FILE)
LESSONS = Lessons(demonstrations=400, epochs=24, batch=8, lr=2e-3, width=64, layers=3, heads=4)
FORMAT = 1
"""Raised when the same lessons give another model."""
DONE = "It is done."
MISTAKEN, AGAIN = 0.6, 0.3
"""How often the first call has a mistake, and how often one after a failed call."""
COPIES = Lessons(demonstrations=12_800, epochs=1, batch=32, lr=2e-3)
"""How many lists of names there are to copy, and how they are taught; the model's size is that of `LESSONS`."""
AT_ONCE = 8
NAME = re.compile(rf"\b(?:{'|'.join(WORDS)})\b")
"""A token of its own, so that it is easily copied."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A demonstration."""

    asked: str
    turns: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def prompt(self) -> list[Message]:
        """What the model is told."""
        return list(PROMPT.messages(Task("shown", (Message("user", self.asked),), "state", "-")))

    def renamed(self, draw: random.Random) -> Shown:
        """Return the same with other names."""
        other = dict(zip(WORDS, draw.sample(WORDS, len(WORDS)), strict=True))

        def put(text: str) -> str:
            return NAME.sub(lambda found: other[found[0]], text)

        return Shown(put(self.asked), tuple(map(put, self.turns)), tuple(map(put, self.results)))


async def demonstrations(count: int, seed: int) -> list[Shown]:
    """So many demonstrations, each in a session of its own."""
    free = asyncio.Semaphore(AT_ONCE)
    async with Node(NodeConfig(slots=2)) as node:

        async def one(number: int, task: ShellTask) -> Shown:
            async with free:
                return await _shown(task, node, random.Random(derive_seed(seed, "mistakes", number)))

        chosen = islice(shell_tasks(seed), count)
        return await asyncio.gather(*[one(number, task) for number, task in enumerate(chosen)])


async def _shown(task: ShellTask, node: Node, draw: random.Random) -> Shown:
    turns: list[str] = []
    results: list[str] = []
    rate = MISTAKEN
    tool_env = prepared_for(task.task("shown"), tool_env_of(PROMPT, node))
    async with tool_env.open(Key("demonstration", 0, "", 0)) as session:
        while True:
            mistaken = draw.random() < rate
            command = draw.choice(task.mistakes) if mistaken else task.solution
            turns.append(call(command, "That failed. " if turns else ""))
            (read,) = call_format(PROMPT.call_format).parse(turns[-1], ToolSet(PROMPT.tool)).calls
            (result,) = await session.run([read])
            assert result.failed == mistaken, (task, command, feedback(result))
            results.append(feedback(result))
            if not mistaken:
                return Shown(task.asked, (*turns, DONE), tuple(results))
            rate = AGAIN


def call(command: str, said: str = "") -> str:
    """A turn that runs a command."""
    written = json.dumps({"name": PROMPT.tool.name, "arguments": {"command": command}})
    return f"{said}I run a command.\n<tool_call>\n{written}\n</tool_call>"


def make(lessons: Lessons = LESSONS) -> Path:
    """Make the model of these lessons unless it is there, and return its folder."""
    folder = cache_folder() / f"shell-{FORMAT}-{digest(lessons.to_json())}"
    if not folder.exists():
        made = asyncio.run(demonstrations(lessons.demonstrations, lessons.seed))
        part = folder.with_name(f"{folder.name}.part")
        _train(part, made, lessons)
        part.rename(folder)
    return folder


def vocabulary(made: Sequence[Shown], lessons: Lessons) -> PreTrainedTokenizerFast:
    """A vocabulary in which the prompt is a few tokens, and each name one."""
    said = [text for each in made for text in (*each.turns, *each.results)]
    return phrases(said, [each.prompt for each in made], ToolSet(PROMPT.tool), lessons, [NAME.pattern])


def _train(folder: Path, made: Sequence[Shown], lessons: Lessons) -> None:
    tokenizer = vocabulary(made, lessons)
    model = qwen3(tokenizer, width=lessons.width, layers=lessons.layers, heads=lessons.heads, seed=lessons.seed)
    chat = ChatRenderer(tokenizer, ToolSet(PROMPT.tool))
    draw = random.Random(derive_seed(lessons.seed, "names"))
    shown = [each.renamed(draw) for _ in range(lessons.epochs) for each in made]
    sequences = [lesson(each.prompt, each.turns, each.results, chat, tokenizer) for each in shown]
    teach(model, _copies(tokenizer, draw), COPIES, tokenizer.pad_token_id)
    teach(model, sequences, replace(lessons, epochs=1), tokenizer.pad_token_id)
    save(model, tokenizer, folder)


def _copies(tokenizer: PreTrainedTokenizerFast, draw: random.Random) -> list[Lesson]:
    names = np.array(tokenizer.convert_tokens_to_ids(WORDS))
    lists = [draw.choices(names, k=draw.randrange(4, 16)) for _ in range(COPIES.demonstrations)]
    return [Lesson(np.array([*each, *each]), np.repeat([False, True], len(each))) for each in lists]
