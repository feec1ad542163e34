from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner_rl.tasks import Message, Task, load_prompt, write_verl
from cleaner_rl.train.recipe.checks import check_prompts
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.recipe.settings import RecipeError
from tests.train.recipes import values


def test_prompts_without_room_are_counted_before_anything_starts(tmp_path: Path) -> None:
    words = {"short": "a" * 10, "long": "b " * 300, "longest": "c " * 310, "dense": "d" * 900}
    tasks = [Task(name, (Message("user", text),), "math", "1") for name, text in words.items()]
    write_verl(tmp_path / "tasks.parquet", tasks, load_prompt("stateless"), "cleaner")
    rendered = []

    def tokens(messages: Sequence[Message]) -> int:
        rendered.append(messages[-1].content)
        return sum(len(each.content.split()) for each in messages)

    frame = tokens(load_prompt("stateless").messages(tasks[0]))

    def check(room: int) -> None:
        files = {"train": [str(tmp_path / "tasks.parquet"), "hdfs://far/away.parquet"]}
        check_prompts(to_recipe(values(tasks=files, budget={"prompt_tokens": room})), tokens)

    with pytest.raises(RecipeError, match=rf"^2 tasks .*longest.* {frame + 309}\b"):
        check(frame + 100)
    check(frame + 309)
    rendered.clear()
    check(frame + 2_000)
    assert len(rendered) == 1, "what can't be too long isn't rendered"
