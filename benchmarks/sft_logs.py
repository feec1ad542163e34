"""Measures whether purified logs train a better model: `python -m benchmarks.sft_logs --json`.

A toy model writes agent logs: it fails often and corrects itself. As for rejection sampling, only logs with right
answers are kept. The same model is then fine-tuned on the same logs, prepared in several ways:

- `raw`: all turns of the assistant are in the loss.
- `masked`: turns with a failed call stay in the context, and are left out of the loss.
- `dropped`: logs with a failed call are left out.
- `purified`: what `cleaner purify --sft jsonl --sandbox …` writes. Repaired turns are in the loss; failed turns that
  stay are not.
- `every_correction`: every correction is taken, as in training, also where `cleaner purify` finds that no repair is
  warranted. It shows what these rules cost.

All get the same number of updates with batches of the same size. Each has the learning rate that gave it the best
accuracy in a development world, which is none of the worlds that are reported. Held-out tasks run in the real sandbox,
at temperature 1, without repair. A world has its own names, tasks and start model (`benchmarks.sft_logs_world`).
Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.models import qwen3
from benchmarks.record import save
from benchmarks.serving import Part, free_port, running
from benchmarks.sft_logs_world import REGIMES, World, demonstrations, vocabulary
from benchmarks.toy import library
from benchmarks.toy.local import LocalEngine
from benchmarks.toy.model import Lesson, batches, summed_loss
from benchmarks.toy.questions import TEST, TRAIN
from benchmarks.toy.sandboxes import offered
from cleaner_rl.evaluate.student import t_quantile
from cleaner_rl.logs import LogSettings, Reading, Record, SftKind, purify, read_record
from cleaner_rl.logs.sft import sft_rows
from cleaner_rl.purify import RepairConfig, hindsight
from cleaner_rl.replay import ReplayCheck, ReplaySettings, checker
from cleaner_rl.rollout import ChatRenderer, RolloutBudget, RolloutRunner, TokenModel
from cleaner_rl.tasks import Grader, MathGrader, MathPool, Message, Task, ToolKind
from cleaner_rl.tools import derive_seed, feedback
from cleaner_rl.trajectory import TokenSpan, Trajectory, first_attempt_tally

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WAYS = ("raw", "masked", "dropped", "purified", "every_correction")
FIGURES = ("accuracy", "failed_calls", "first_call_works")
DEVELOPMENT = 1_000
"""Seed of the first development world."""
CONFIDENCE = 0.9
WINDOW = 512
WARM = 10
"""Updates until the learning rate is at its highest; in the second half it falls to 0."""
WIDTH, LAYERS, HEADS = 64, 2, 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is made, trained and measured in each world."""

    demonstrations: int = 800
    start_updates: int = 350
    start_batch: int = 16
    start_lr: float = 4e-3
    tasks: int = 200
    """Tasks of the logs, with `samples` rollouts each."""
    samples: int = 2
    updates: int = 80
    batch: int = 8
    rates: tuple[float, ...] = (1e-3, 3e-3)
    held_out: int = 160


SHORT = Sizes(demonstrations=400, tasks=32, samples=1, updates=2, rates=(1e-3,), held_out=8)
"""For a check that everything still runs together."""


def encode(row: Record, chat: ChatRenderer) -> Lesson:
    """Return a row for supervised training as ids, put together as a rollout does it."""
    messages, mask = row["messages"], row["loss_mask"]
    first = next(index for index, each in enumerate(messages) if each["role"] == "assistant")
    said = chat.prompt([Message(each["role"], each["content"]) for each in messages[:first]]).ids
    pieces = [(said, False)]
    for each, trained in zip(messages[first:], mask[first:], strict=True):
        if each["role"] == "assistant":
            said = chat.written(each["content"]).ids
            pieces.append((said, bool(trained)))
        else:
            pieces.append((chat.observation(said, [each["content"]]).ids, False))
    return Lesson(
        np.concatenate([ids for ids, _ in pieces]).astype(np.int64),
        np.concatenate([np.full(len(ids), own) for ids, own in pieces]),
    )


def fit(model: PreTrainedModel, lessons: Sequence[Lesson], updates: int, batch: int, lr: float, seed: int) -> int:
    """Train a model in place, every token with the same weight; return how many tokens were in the loss."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    usual = batch * sum(int(each.own.sum()) for each in lessons) / len(lessons)
    chosen = (each for epoch in count() for each in batches(lessons, batch, seed, epoch))
    tokens = 0
    model.train()
    for update, rows in enumerate(islice(chosen, updates)):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (update + 1) / WARM, 2 * (updates - update) / updates)
        (summed_loss(model, rows, model.config.pad_token_id) / usual).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens += sum(int(each.own.sum()) for each in rows)
    model.eval()
    return tokens


@dataclass(frozen=True, slots=True)
class Bench:
    """One world, its start model, and the sandbox with its library."""

    world: World
    sizes: Sizes
    start: PreTrainedModel
    chat: TokenModel
    runner: RolloutRunner[TokenSpan]
    folder: Path

    async def roll(
        self, model: PreTrainedModel, tasks: Sequence[Task], samples: int, stream: str
    ) -> list[Trajectory[TokenSpan]]:
        """Return rollouts of tasks in order, the same random streams for every model."""
        served = self.chat.served_by(LocalEngine(model), self.chat.sampling, WINDOW)
        runner = replace(self.runner, model=served, seed=derive_seed(self.world.regime.seed, stream))
        made = [each async for each in runner.run(tasks, samples)]
        places = {task.id: place for place, task in enumerate(tasks)}
        return sorted(made, key=lambda each: (places[each.key.task], each.key.rollout))

    async def held_out(self, model: PreTrainedModel) -> dict[str, float]:
        """Measure a model on held-out tasks."""
        return measured(await self.roll(model, self.world.tasks(TEST)[: self.sizes.held_out], 1, "held out"))

    async def logs(self) -> tuple[Path, dict[str, float]]:
        """Write the start model's logs with right answers, and return the file and figures about all of them."""
        tasks = {each.id: each for each in self.world.tasks(TRAIN)[: self.sizes.tasks]}
        made = await self.roll(self.start, list(tasks.values()), self.sizes.samples, "logs")
        right = [each for each in made if each.usable and each.success]
        file = self.folder / "logs.jsonl"
        with file.open("w") as out:
            for each in right:
                before = self.world.prompt.messages(tasks[each.key.task])
                out.write(json.dumps(log(each, before, self.chat)) + "\n")
        failing = [each for each in right if first_attempt_tally(each).failed]
        return file, {
            "rollouts": len(made),
            "right": len(right),
            "with_failed_calls": len(failing),
            "failed_calls": sum(first_attempt_tally(each).failed for each in right),
        }

    def fine_tuned(self, rows: Sequence[Record], lr: float) -> tuple[PreTrainedModel, int]:
        """Return the start model after training on rows, and the tokens in the loss."""
        model = copy.deepcopy(self.start)
        lessons = [encode(each, self.chat.chat) for each in rows]
        tokens = fit(model, lessons, self.sizes.updates, self.sizes.batch, lr, self.world.regime.seed)
        return model, tokens


def log(trajectory: Trajectory[TokenSpan], before: Sequence[Message], model: TokenModel) -> Record:
    """Return a rollout as a chat in OpenAI's form, as an agent without function calling would log it."""
    messages = [{"role": each.role, "content": each.content} for each in before]
    for turn in trajectory.turns:
        messages.append({"role": "assistant", "content": model.answer(turn)})
        messages += [{"role": "tool", "content": feedback(each)} for each in turn.results]
    return {"id": str(trajectory.key), "task_id": trajectory.key.task, "messages": messages, "success": True}


def measured(trajectories: Sequence[Trajectory[TokenSpan]]) -> dict[str, float]:
    """Return the figures of rollouts; those that a fault ended are not counted."""
    usable = [each for each in trajectories if each.usable]
    failed = [first_attempt_tally(each).failed for each in usable]
    return {
        "accuracy": mean(bool(each.success) for each in usable),
        "failed_calls": mean(failed),
        "first_call_works": mean(each.turns[0].verified for each in usable),
    }


def prepared(logs: Path, folder: Path) -> tuple[dict[str, list[Record]], dict[str, Any]]:
    """Return the rows of each way from the same logs, and the summary of `purify`, which replays in a sandbox."""
    reading = Reading(call_format="fenced")
    plain = LogSettings(reading=reading, repair=None, sft=SftKind.JSONL)
    masked, _ = _rows(logs, folder / "plain", plain)
    dropped, _ = _rows(logs, folder / "clean", replace(plain, clean_only=True))
    port = free_port()
    command = (sys.executable, "-m", "benchmarks.toy", "serve", folder, "--port", port)
    node = Part(f"http://127.0.0.1:{port}", folder / "node.log", command, {}, "/healthz")
    with running(node):
        check = checker(ReplaySettings(nodes=(node.url,), reading=reading))
        repairing = replace(plain, repair=RepairConfig())
        purified, summary = _rows(logs, folder / "purified", repairing, check)
    raw = [{**each, "loss_mask": [int(one["role"] == "assistant") for one in each["messages"]]} for each in masked]
    read = [read_record(json.loads(line), "openai", 0, reading) for line in logs.read_text().splitlines()]
    every = [row for each in read for row in sft_rows(hindsight(each, RepairConfig()).trajectory)]
    return {
        "raw": raw,
        "masked": masked,
        "dropped": dropped,
        "purified": purified,
        "every_correction": every,
    }, summary


def _rows(
    logs: Path, out: Path, settings: LogSettings, check: ReplayCheck | None = None
) -> tuple[list[Record], dict[str, Any]]:
    summary = purify(logs, out, settings, check=check).to_json()
    files = sorted((out / "sft").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()], summary


@asynccontextmanager
async def opened(world: World, sizes: Sizes, folder: Path) -> AsyncIterator[Bench]:
    """Yield a world with its start model, which is trained first."""
    seed = world.regime.seed
    rows = await demonstrations(world, sizes.demonstrations, folder)
    tokenizer = vocabulary(rows)
    start = qwen3(tokenizer, width=WIDTH, layers=LAYERS, heads=HEADS, seed=seed % 2**31)
    chat = TokenModel.for_prompt(LocalEngine(start), tokenizer, world.prompt, window=WINDOW)
    fit(start, [encode(each, chat.chat) for each in rows], sizes.start_updates, sizes.start_batch, sizes.start_lr, seed)
    written = library.write(folder / library.MODULE, world.regime.current, hint=True)
    budget = RolloutBudget(turns=world.regime.calls + 1, tokens=WINDOW)
    with MathPool(1) as pool:
        graders: dict[str, Grader] = {"math": MathGrader(pool)}
        async with offered([written], ToolKind.STATELESS) as (tool_env,):
            runner = RolloutRunner(chat, tool_env, world.prompt, graders, budget)
            yield Bench(world, sizes, start, chat, runner, folder)


async def work(regime: str, seed: int, sizes: Sizes, rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the figures of one world: its logs, its start model, and each way at each of its learning rates."""
    begun = time.process_time()
    # Not below /tmp: sandboxed programs have their own.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="cleaner-rl-sft-") as made:
        world = World(replace(REGIMES[regime], seed=seed))
        async with opened(world, sizes, Path(made)) as bench:
            logs, about = await bench.logs()
            rows, summary = await asyncio.to_thread(prepared, logs, bench.folder)
            found: dict[str, Any] = {"seed": seed, "logs": about, "purify": summary_of(summary)}
            found["start"] = await bench.held_out(bench.start)
            for way in WAYS:
                found[way] = {}
                for rate in rates[way]:
                    model, tokens = bench.fine_tuned(rows[way], rate)
                    about_rows = {"rows": len(rows[way]), "tokens_in_loss": tokens}
                    found[way][str(rate)] = {**await bench.held_out(model), **about_rows}
    found["cpu_seconds"] = round(time.process_time() - begun)
    sys.stderr.write(f"{regime}, world {seed}: {json.dumps(found)}\n")
    return found


def summary_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `purify` says of failed turns."""
    return {name: summary[name] for name in ("failed_turns", "repaired_turns", "edits", "left_alone", "replayed")}


def best_rates(development: Sequence[Mapping[str, Any]], sizes: Sizes) -> dict[str, float]:
    """Return the learning rate of each way with the best mean accuracy in the development worlds."""

    def accuracy(way: str, rate: float) -> float:
        return float(mean(each[way][str(rate)]["accuracy"] for each in development))

    return {way: max(sizes.rates, key=lambda rate: accuracy(way, rate)) for way in WAYS}


def paired(differences: Sequence[float]) -> dict[str, float]:
    """Return the mean of paired differences with its t interval."""
    half = 0.0
    if len(differences) > 1:
        quantile = t_quantile(CONFIDENCE, len(differences) - 1)
        half = quantile * stdev(differences) / len(differences) ** 0.5
    middle = mean(differences)
    return {"mean": round(middle, 4), "low": round(middle - half, 4), "high": round(middle + half, 4)}


def summarized(worlds: Sequence[Mapping[str, Any]], rates: Mapping[str, float]) -> dict[str, Any]:
    """Return the means over worlds, and for each way the paired differences from `raw`."""
    chosen = {way: [each[way][str(rates[way])] for each in worlds] for way in WAYS}
    found: dict[str, Any] = {
        "start": {name: round(mean(each["start"][name] for each in worlds), 4) for name in FIGURES}
    }
    for way, figures in chosen.items():
        found[way] = {name: round(mean(each[name] for each in figures), 4) for name in figures[0]}
        if way != "raw":
            pairs = list(zip(figures, chosen["raw"], strict=True))
            found[way]["against_raw"] = {
                name: paired([one[name] - raw[name] for one, raw in pairs]) for name in FIGURES
            }
    return found


def measure(regime: str, worlds: int, development: int, sizes: Sizes) -> dict[str, Any]:
    """Choose learning rates in development worlds, then measure in others."""
    seeds = range(DEVELOPMENT, DEVELOPMENT + development)
    grid = dict.fromkeys(WAYS, sizes.rates)
    tried = [asyncio.run(work(regime, seed, sizes, grid)) for seed in seeds]
    rates = best_rates(tried, sizes)
    found = [asyncio.run(work(regime, seed, sizes, {way: [rates[way]] for way in WAYS})) for seed in range(worlds)]
    return {"rates": rates, "summary": summarized(found, rates), "worlds": found, "development": tried}


def main() -> None:
    """Print a table for each regime, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    parser.add_argument("--regime", choices=REGIMES, action="append", help="this regime alone; all of them by default")
    parser.add_argument("--worlds", type=int, default=5)
    parser.add_argument("--development", type=int, default=1, help="worlds for the choice of learning rates")
    parser.add_argument("--short", action="store_true", help="so small that the figures mean nothing")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    sizes = SHORT if arguments.short else Sizes()
    found = {}
    for regime in arguments.regime or REGIMES:
        found[regime] = measure(regime, arguments.worlds, arguments.development, sizes)
        if arguments.save:  # after each regime: it takes many minutes
            save(arguments.save, found, {**asdict(sizes), "confidence": CONFIDENCE, "model": [WIDTH, LAYERS, HEADS]})
    if arguments.json:
        print(json.dumps(found))
        return
    for regime, figures in found.items():
        print(f"{regime}\n{table(figures['summary'])}")


def table(summary: Mapping[str, Any]) -> str:
    """Return the means, and the differences from `raw`, as a table in Markdown."""
    lines = ["| | accuracy | failed calls per task | first call works | tokens in the loss |", "| --- |" + " --- |" * 4]
    for way, figures in summary.items():
        cells = [f"{figures[name]:.2f}{_interval(figures, name)}" for name in FIGURES]
        lines.append(f"| {way} | {' | '.join(cells)} | {figures.get('tokens_in_loss', 0):,.0f} |")
    return "\n".join(lines) + "\n"


def _interval(figures: Mapping[str, Any], name: str) -> str:
    if "against_raw" not in figures:
        return ""
    found = figures["against_raw"][name]
    return f" ({found['low']:+.2f} to {found['high']:+.2f})"


if __name__ == "__main__":
    main()
