"""Repair at work, on real mistakes: a part of `python -m benchmarks.rollout`, and alone, with a server that runs:

    python -m benchmarks.rollout_repair http://127.0.0.1:8000 FOLDER --tasks 500

The toy model, which makes and corrects ten kinds of mistakes (`benchmarks.toy`), works on held-out tasks in the
real sandbox, once with repair off and once with it on, over the same tasks with the same seeds. Counted are the failed
calls that stand in the final histories; every repaired trajectory is replayed in a fresh session. A task is done both
ways one after the other, in turns which is first, with other tasks at the same time: so the two share the engine, its
caches and the machine's neighbours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.record import save
from benchmarks.toy.folder import tasks
from benchmarks.toy.measure import Figures, figures
from benchmarks.toy.questions import TEST
from benchmarks.toy.regimes import REGIMES, Regime
from benchmarks.toy.sandboxes import offered
from cleaner_rl.purify import PurifyConfig, ReplayVerdict, replay
from cleaner_rl.rollout import (
    ChatRenderer,
    Engine,
    Purifier,
    RolloutBudget,
    TokenModel,
    ToolEnv,
    grade_and_purify,
    rollout,
)
from cleaner_rl.rollout.engines import Address, VllmEngine
from cleaner_rl.rollout.grading import calls_of
from cleaner_rl.tasks import Grader, MathGrader, MathPool, Prompt, Task
from cleaner_rl.tools import ToolSet, call_format
from cleaner_rl.trajectory import Key, Phase, Seeds, TokenSpan, Trajectory, sampled_turns

PAPERS_OVERHEAD = 0.088
"""Latency that repair costs at test time, as the CLEANER paper reports it for its own error rate on GPUs."""
WINDOW = 2_048
TURNS = 12
PARTS = 5
"""Of the tasks: how far a figure goes up and down with them."""


Made = Trajectory[TokenSpan]


@dataclass(frozen=True, slots=True)
class Setting:
    """What both ways share."""

    prompt: Prompt
    model: TokenModel
    tool_env: ToolEnv
    graders: Mapping[str, Grader]
    at_once: int

    async def both(self, chosen: Sequence[Task], purifier: Purifier, seed: int) -> tuple[list[Made], list[Made]]:
        """Roll every task out with repair off and on, and grade."""
        free = asyncio.Semaphore(self.at_once)
        with click.progressbar(length=len(chosen), label="repair off and on", file=sys.stderr) as bar:

            async def one(number: int, task: Task) -> tuple[Made, Made]:
                seeds = Seeds(seed, task.id, 0)
                async with free:
                    if number % 2:
                        off, on = await self._one(task, seeds, None), await self._one(task, seeds, purifier)
                    else:
                        on, off = await self._one(task, seeds, purifier), await self._one(task, seeds, None)
                bar.update(1)
                return off, on

            async with asyncio.TaskGroup() as group:
                running = [group.create_task(one(number, task)) for number, task in enumerate(chosen)]
        return [each.result()[0] for each in running], [each.result()[1] for each in running]

    async def _one(self, task: Task, seeds: Seeds, purifier: Purifier | None) -> Trajectory[TokenSpan]:
        made = await rollout(
            task,
            Key("repair", 0, task.id, 0),
            prompt=self.prompt,
            model=self.model,
            tool_env=self.tool_env,
            seeds=seeds,
            budget=RolloutBudget(turns=TURNS, tokens=WINDOW, lookahead=WINDOW),
            purifier=purifier,
        )
        return await grade_and_purify(
            made,
            task,
            model=self.model,
            tool_env=self.tool_env,
            graders=self.graders,
            seeds=seeds,
            purifier=purifier,
        )


async def measure(engine: Engine, world: Path, count: int, *, at_once: int = 32, seed: int = 0) -> dict[str, object]:
    """Both passes, counted, compared and replayed."""
    from transformers import AutoTokenizer

    regime = _regime(world)
    chat = ChatRenderer(AutoTokenizer.from_pretrained(world / "model"), ToolSet(regime.prompt.tool))
    model = TokenModel(engine, chat, call_format(regime.prompt.call_format), window=WINDOW)
    chosen = tasks(regime, TEST, count)
    repairing = Purifier(config=PurifyConfig(in_evaluation=True), phase=Phase.EVALUATION)
    with MathPool(1) as pool:
        async with offered([world / "kit"], regime.tool) as (tool_env,):
            setting = Setting(regime.prompt, model, tool_env, {"math": MathGrader(pool)}, at_once)
            await setting.both(chosen[:at_once], repairing, seed + 1)  # fills the caches
            off, on = await setting.both(chosen, repairing, seed)
            verdicts = await _replayed(on, tool_env, at_once)
    return report(off, on, verdicts)


def report(off: Sequence[Made], on: Sequence[Made], verdicts: Counter[ReplayVerdict]) -> dict[str, object]:
    """The figures of `benchmarks.rollout` that repair has, and all that they rest on."""
    without, with_ = figures(off), figures(on)
    parts = [slice(start, None, PARTS) for start in range(min(PARTS, len(off)))]
    proven, undecided = verdicts[ReplayVerdict.SAME], verdicts[ReplayVerdict.NONDETERMINISTIC]
    decided = verdicts.total() - undecided
    return {
        "errors_off": _left(without),
        "errors_on": _left(with_),
        "errors_on_over_off": round(sum(with_.left.values()) / max(1, sum(without.left.values())), 4),
        "replayed": round(proven / decided, 4) if decided else None,
        "nondeterministic": round(undecided / verdicts.total(), 4) if verdicts else None,
        "repaired_trajectories": verdicts.total(),
        "repair_overhead": _longer(off, on),
        "repair_overhead_of_parts": [_longer(off[part], on[part]) for part in parts],
        "repair_overhead_tokens": round(sum(map(_drawn, on)) / sum(map(_drawn, off)) - 1, 4),
        "papers_overhead": PAPERS_OVERHEAD,
        "off": without.to_json(),
        "on": with_.to_json(),
    }


def _longer(off: Sequence[Made], on: Sequence[Made]) -> float:
    """By how much the mean rollout takes longer."""
    before, after = (sum(each.info.seconds or 0.0 for each in way) for way in (off, on))
    return round(after / before - 1, 4)


def _drawn(trajectory: Made) -> int:
    """Tokens that were sampled, in lookaheads too."""
    turns = [sampled.turn for sampled in sampled_turns(trajectory)]
    return sum(len(span) for turn in turns for span in (turn.reasoning, turn.action) if span is not None)


def _left(counted: Figures) -> float:
    """Failed calls per trajectory of the final history."""
    return round(sum(counted.left.values()) / max(1, counted.trajectories - counted.faults), 4)


async def _replayed(
    trajectories: Sequence[Trajectory[TokenSpan]], tool_env: ToolEnv, at_once: int
) -> Counter[ReplayVerdict]:
    """What a fresh session finds of each repaired trajectory."""
    free = asyncio.Semaphore(at_once)

    async def one(trajectory: Trajectory[TokenSpan]) -> ReplayVerdict:
        async with free:
            return (await replay(trajectory, lambda: calls_of(tool_env, trajectory.key))).verdict

    repaired = [each for each in trajectories if each.usable and any(edit.commits for _, edit in each.edits)]
    return Counter(await asyncio.gather(*map(one, repaired)))


def _regime(world: Path) -> Regime:
    name = json.loads((world / "toy.json").read_text())["regime"]["name"]
    return REGIMES[name]


async def at(url: str, world: Path, count: int) -> dict[str, object]:
    """The figures with a model that vLLM serves."""
    async with Address(url) as address:
        return await measure(VllmEngine(address), world, count)


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of a vLLM server with the world's model")
    parser.add_argument("world", type=Path, help="a folder of `python -m benchmarks.toy make mistakes`")
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    found = asyncio.run(at(arguments.url, arguments.world, arguments.tasks))
    if arguments.save:
        save(arguments.save, found, {"tasks": arguments.tasks, "world": arguments.world.name})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
