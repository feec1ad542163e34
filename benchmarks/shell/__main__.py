"""Rollouts on tasks in a shell, on vLLM, with repair off and on: python -m benchmarks.shell --json

The toy model (`lessons`) works on tasks of another seed than its lessons, both ways alike. Counted are right answers,
and failed calls that stand in the final histories. Every repaired trajectory is replayed from the task's setup on. The
same model is trained in the lab's local backend with `python -m benchmarks.shell.local`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import save
from benchmarks.rollout_repair import Made, Setting
from benchmarks.serving import serve
from benchmarks.shell.lessons import PROMPT, make
from benchmarks.shell.tasks import HELD_OUT, library_tasks
from cleaner_rl.purify import PurifyConfig
from cleaner_rl.replay import ReplaySettings
from cleaner_rl.replay.replayer import Replayer
from cleaner_rl.rollout import ChatRenderer, Purifier, TokenModel, tool_env_of
from cleaner_rl.rollout.engines import Address, VllmEngine
from cleaner_rl.tasks import StateGrader, Task
from cleaner_rl.tools import ToolSet, call_format
from cleaner_rl.trajectory import Phase
from cleaner_sandbox import Node, NodeConfig

RESULTS = Path(__file__).parents[1] / "results" / "shell.json"
WINDOW = 2_048
AT_ONCE = 8


async def rolled(url: str, model_folder: Path, chosen: Sequence[Task]) -> tuple[list[Made], list[Made]]:
    """Roll all tasks out with repair off and on."""
    from transformers import AutoTokenizer

    chat = ChatRenderer(AutoTokenizer.from_pretrained(model_folder), ToolSet(PROMPT.tool))
    repairing = Purifier(config=PurifyConfig(in_evaluation=True), phase=Phase.EVALUATION)
    async with Address(url) as address, Node(NodeConfig(slots=2)) as node:
        model = TokenModel(VllmEngine(address), chat, call_format(PROMPT.call_format), window=WINDOW)
        setting = Setting(PROMPT, model, tool_env_of(PROMPT, node), {"state": StateGrader()}, AT_ONCE)
        return await setting.both(chosen, repairing, seed=0)


def measure(count: int) -> dict[str, object]:
    """Make the model if it isn't there, serve it, and count."""
    model_folder = make()
    with tempfile.TemporaryDirectory() as folder, serve(model_folder, Path(folder), record=False) as served:
        off, on = asyncio.run(rolled(served.url, model_folder, library_tasks(HELD_OUT, count)))
    repaired = [each for each in on if any(edit.commits for _, edit in each.edits)]
    with Replayer(ReplaySettings()) as replayer:
        verdicts = Counter(str(each.verdict) for each in replayer.replay_all(repaired))
    return {
        "tasks": count,
        "right_off": sum(bool(each.success) for each in off),
        "right_on": sum(bool(each.success) for each in on),
        "failed_calls_off": failed_calls(off),
        "failed_calls_on": failed_calls(on),
        "failed_calls_if_right_off": failed_calls([each for each in off if each.success]),
        "failed_calls_if_right_on": failed_calls([each for each in on if each.success]),
        "faults": sum(not each.usable for each in (*off, *on)),
        "repaired": len(repaired),
        "replayed": verdicts["same"],
        "verdicts": dict(verdicts),
    }


def failed_calls(made: Sequence[Made]) -> int:
    """Count the failed calls that the final histories hold."""
    return sum(result.failed for each in made for turn in each.turns for result in turn.results)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=80)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--save", type=Path, nargs="?", const=RESULTS, help="keep the figures, with commit and machine")
    arguments = parser.parse_args()
    figures = measure(arguments.tasks)
    if arguments.save:
        save(arguments.save, figures, {"tasks": arguments.tasks})
    print(json.dumps(figures) if arguments.json else "\n".join(f"{name:26} {each}" for name, each in figures.items()))


if __name__ == "__main__":
    main()
