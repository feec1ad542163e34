"""The smallest toy environment in which repairs occur, made in seconds: its model knows a few programs by heart.

The model learns a handful of calls that run, a handful that don't, and to try again after one that didn't. It answers
at random, so that some rollouts of a group are right and others aren't. The folder has what a recipe needs of a folder
of `benchmarks.toy`.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from benchmarks.models import save
from benchmarks.toy import library, regimes
from benchmarks.toy.demonstrations import Demonstration
from benchmarks.toy.folder import AGENT
from benchmarks.toy.model import Lessons, train_model
from benchmarks.toy.questions import Question, task
from cleaner_rl.tasks import write_verl

REGIME = regimes.REGIMES["drift"]
LESSONS = Lessons(demonstrations=256, epochs=8, batch=16, lr=5e-3, width=64, layers=2, heads=2, vocabulary=512)
ANSWERS = range(3)
LONG = "print('a'*300)"
RIGHT = {
    "print(1)": "1",
    "print(2)": "2",
    "x=1\nprint(x)": "1",
    "x=2\nprint(x)": "2",
    "print(1+1)": "2",
    LONG: "a" * 300,
}
TRACE = 'Traceback (most recent call last):\n  File "program.py", line 1, in <module>\n'
WRONG = {
    "print(y)": TRACE + "    print(y)\n          ^\nNameError: name 'y' is not defined",
    "print(1": "  File \"program.py\", line 1\n    print(1\n         ^\nSyntaxError: '(' was never closed",
    "import kits\nprint(1)": TRACE + "    import kits\nModuleNotFoundError: No module named 'kits'",
    "x=z\nprint(x)": TRACE + "    x=z\n      ^\nNameError: name 'z' is not defined",
}


def make(folder: Path, opening: str = "") -> Path:
    """The toy environment below a folder, which must not lie in /tmp; every turn of its model begins with `opening`."""
    library.write(folder / library.MODULE, REGIME.current, hint=REGIME.hint)
    shutil.copy(REGIME.prompt_file, folder / "prompt.toml")
    asked = [Question((first, second), ("turn", "last")) for first, second in product(ANSWERS, range(10))]
    write_verl(folder / "train.parquet", [task(each, REGIME.name) for each in asked], REGIME.prompt, AGENT)
    model, tokenizer, _ = train_model(list(_demonstrations(asked, opening)), REGIME, LESSONS)
    save(model, tokenizer, folder / "model")
    return folder


def _demonstrations(asked: list[Question], opening: str) -> Iterator[Demonstration]:
    draw = random.Random(1)
    for _ in range(LESSONS.demonstrations):
        turns: list[str] = []
        results: list[str] = []
        while len(turns) < 4 and draw.random() < 0.5:
            program = draw.choice(list(WRONG))
            turns.append(_call("Try." if draw.random() < 0.5 else "Work it out.", program))
            results.append(WRONG[program])
        program = LONG if draw.random() < 0.3 else draw.choice(list(RIGHT))
        turns.append(_call("Work it out.", program))
        results.append(RIGHT[program])
        answer = f"\\boxed{{{draw.choice(ANSWERS)}}}"
        said = tuple(f"{opening}{turn}" for turn in (*turns, answer))
        yield Demonstration(draw.choice(asked), said, tuple(results))


def _call(plan: str, program: str) -> str:
    code = json.dumps({"name": "python", "arguments": {"code": program}})
    return f"{plan}\n<tool_call>\n{code}\n</tool_call>"
