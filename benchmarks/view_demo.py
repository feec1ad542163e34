"""Makes the sample that ships with the viewer: `python -m benchmarks.view_demo`.

Three small runs of one toy policy: a table of probabilities over written turns (`view_demo_script`). Its programs are
really run, its failures really repaired (live or in hindsight), its groups really resampled, and the table is trained
by policy gradients on their advantages, so every number in the sample was computed and none is made up. It says nothing
about how well a method works on a language model.

Limits: the policy can only say what is written. Its log-probs are exact, with a little mass for everything else, so
that a turn moved into another context has a finite one there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.view_demo_script import PROBLEMS, Problem, Say
from cleaner_rl.evaluate import Evaluation, Repair, measure
from cleaner_rl.evaluate.scores import score_set
from cleaner_rl.purify import Draft, PurifyConfig, RepairBudget, RepairConfig, SampleRequest, hindsight, repair, rescore
from cleaner_rl.resample import PlainConfig, RocConfig, group_of, select, verdicts
from cleaner_rl.tools import ExceptionInfo, Status, ToolResult, ToolSet, call_format, derive_seed, feedback, python_tool
from cleaner_rl.trajectory import (
    Floats,
    Ids,
    Key,
    RolloutInfo,
    Scores,
    Seeds,
    StopReason,
    TokenSpan,
    Trajectory,
    Turn,
    Vocabulary,
    read_tokens,
    token_span,
)
from cleaner_rl.trajectory.store import ParquetWriter
from cleaner_rl.view.summary import Summary, summarise

DEMO = Path(__file__).parents[1] / "src" / "cleaner_rl" / "view" / "demo"
RUNS = ("grpo", "hindsight + roc", "saar + roc")
STEPS = 24
STORED = (0, 12, 23)
ROLLOUTS = 16
ROC = RocConfig(keep=8)
RATE = 0.06
OTHERWISE = 1e-3
"""The mass that the policy keeps for all that isn't written."""
SECONDS = 2.0
TOOLS = ToolSet(python_tool())
END = "<|im_end|>"
WATCHED = """
import json, sys, traceback
source = sys.stdin.read()
try:
    exec(compile(source, "<cell>", "exec"), {"__name__": "__main__"})
except BaseException as error:
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<cell>"]
    line = frames[0] if frames else getattr(error, "lineno", None)
    shown = traceback.format_exception_only(error)[-1].strip()
    print(json.dumps([type(error).__name__, str(error).split(" (<cell>")[0], line, shown]), file=sys.stderr)
    sys.exit(1)
"""


@cache
def run(code: str) -> ToolResult:
    """Really run a program, once."""
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-c", WATCHED],
            input=code,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ToolResult(
            Status.TIMEOUT, explanation=f"The program was stopped after {SECONDS:g} seconds.", seconds=SECONDS
        )
    if not ran.returncode:
        return ToolResult(Status.OK, ran.stdout, seconds=0.02)
    kind, message, line, shown = json.loads(ran.stderr.splitlines()[-1])
    where = f'  File "<cell>", line {line}\n' if line else ""
    traceback = f"Traceback (most recent call last):\n{where}{shown}\n"
    return ToolResult(Status.ERROR, ran.stdout, exception=ExceptionInfo(kind, message, line, traceback), seconds=0.02)


class Toy:
    """The policy: for each state a distribution over what can be said there."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.get_vocab()
        added = {END: vocabulary[END]}
        self.vocabulary = Vocabulary.from_byte_level(vocabulary, added)
        self._tokenizer = tokenizer
        self._ids: dict[str, list[int]] = {}
        self._size = len(vocabulary)
        self._logits: dict[tuple[str, str], np.ndarray] = {}

    def ids(self, text: str) -> list[int]:
        """Tokens of a text."""
        if text not in self._ids:
            self._ids[text] = self._tokenizer.encode(text).ids
        return self._ids[text]

    def span(self, text: str) -> TokenSpan:
        """Tokens that nobody sampled."""
        return token_span(text, self.ids(text))

    def choices(self, problem: Problem, turns: Iterable[Turn[TokenSpan]]) -> tuple[tuple[str, str], tuple[Say, ...]]:
        """The state after some turns, and what can be said in it."""
        stage, failed = 0, ""
        for turn in turns:
            stage, failed = (stage + 1, "") if turn.verified else (stage, turn.code)
        if not failed:
            return (problem.name, str(stage)), problem.first[min(stage, len(problem.first) - 1)]
        word = next(word for word in problem.after if word in failed)
        return (problem.name, f"after {word}"), problem.after[word]

    def probabilities(self, state: tuple[str, str], count: int) -> np.ndarray:
        """Of what can be said in a state."""
        logits = self._logits.setdefault(state, np.zeros(count))
        exponentials: np.ndarray = np.exp(logits - logits.max())
        return np.asarray(exponentials / exponentials.sum())

    def logprobs(self, state: tuple[str, str], says: tuple[Say, ...], ids_T: list[int]) -> list[float]:  # noqa: N803
        """Of each token of a turn, in a state: by all that can be said and begins the same way."""
        chances = self.probabilities(state, len(says))
        written = [self.ids(say.text + END) for say in says]
        logprobs = []
        same = list(range(len(says)))  # those that begin like this turn
        for place, token in enumerate(ids_T):
            mass = sum(chances[i] for i in same)
            same = [i for i in same if len(written[i]) > place and written[i][place] == token]
            share = sum(chances[i] for i in same) / mass if same else 0.0
            logprobs.append(float(np.log((1 - OTHERWISE) * share + OTHERWISE / self._size)))
        return logprobs

    def sample(self, problem: Problem, history: Trajectory[TokenSpan], seed: int) -> Turn[TokenSpan]:
        """Draw a turn."""
        state, says = self.choices(problem, history.turns)
        chosen = np.random.default_rng(seed).choice(len(says), p=self.probabilities(state, len(says)))
        ids = self.ids(says[chosen].text + END)
        span = token_span("", ids, self.logprobs(state, says, ids), history.key.step)
        return read_tokens(span, self.vocabulary, call_format("fenced"), TOOLS, [self.ids(END)[0]])

    def clean_logprobs(self, problem: Problem, trajectory: Trajectory[TokenSpan]) -> Floats:
        """Of every token of a trajectory in the context in which it stands; 0 where nothing was sampled."""
        parts = [np.zeros(len(trajectory.prompt), np.float32)]
        for index, turn in enumerate(trajectory.turns):
            state, says = self.choices(problem, trajectory.turns[:index])
            ids = [*turn.reasoning.ids.tolist(), *(turn.action.ids.tolist() if turn.action is not None else [])]
            parts.append(np.array(self.logprobs(state, says, ids), np.float32))
            parts.append(np.zeros(0 if turn.observation is None else len(turn.observation), np.float32))
        return np.concatenate(parts)

    def learn(self, problem: Problem, trajectory: Trajectory[TokenSpan], advantage: float) -> None:
        """A step of policy gradient: towards what was said, as the trajectory has it after all edits."""
        for index, turn in enumerate(trajectory.turns):
            state, says = self.choices(problem, trajectory.turns[:index])
            chances = self.probabilities(state, len(says))
            said = [i for i, say in enumerate(says) if say.text == turn.text.removesuffix(END)]
            if said:
                gradient = -chances
                gradient[said[0]] += 1
                self._logits[state] = self._logits[state] + RATE * advantage * gradient


def execute(toy: Toy, turn: Turn[TokenSpan]) -> Turn[TokenSpan]:
    """Run a turn's calls and show the model what came back."""
    results = tuple(call.refusal or run(call.code) for call in turn.calls)
    words = "\n".join(feedback(result) for result in results)
    shown = toy.span(f"\n<|im_start|>tool\n{words}{END}\n<|im_start|>assistant\n")
    return replace(turn, results=results, observation=shown)


async def rollout(toy: Toy, problem: Problem, key: Key, seeds: Seeds, *, live: bool) -> Trajectory[TokenSpan]:
    """One rollout of at most six turns, graded."""
    history: Trajectory[TokenSpan] = Trajectory(
        toy.span(f"<|im_start|>user\n{problem.question}{END}\n<|im_start|>assistant\n"), key=key
    )

    async def sample(request: SampleRequest[TokenSpan]) -> Draft[TokenSpan]:
        return Draft(toy.sample(problem, request.context, request.seed))

    async def executed(turn: Turn[TokenSpan]) -> Turn[TokenSpan]:
        return execute(toy, turn)

    stop_reason = StopReason.TURN_LIMIT
    budget = RepairBudget(lookahead=4096, context=8192, response=8192)
    while len(history.turns) < 6:
        turn = toy.sample(problem, history, seeds.request(len(history.turns)))
        if not turn.calls:
            history, stop_reason = replace(history, turns=(*history.turns, turn)), StopReason.ANSWERED
            break
        turn = execute(toy, turn)
        turns: tuple[Turn[TokenSpan], ...] = (turn,)
        if live and turn.failed:
            policy = PurifyConfig(attempts=2, repair=RepairConfig(threshold=0.6))
            repaired = await repair(
                history, turn, sample=sample, execute=executed, config=policy, budget=budget, seeds=seeds
            )
            turns = repaired.turns
        history = replace(history, turns=(*history.turns, *turns))
    success = f"\\boxed{{{problem.answer}}}" in (history.turns[-1].text if stop_reason is StopReason.ANSWERED else "")
    return replace(history, stop_reason=stop_reason, success=success, reward=float(success))


async def finished(toy: Toy, problem: Problem, trajectory: Trajectory[TokenSpan], method: str) -> Trajectory[TokenSpan]:
    """Hindsight where it is asked for, and log-probs for all that moved."""
    if method.startswith("hindsight"):
        trajectory = hindsight(trajectory, RepairConfig(threshold=0.6)).trajectory
    logprobs = toy.clean_logprobs(problem, trajectory)

    async def scored(prefix_T: Ids, suffix_T: Ids) -> Scores:  # noqa: N803
        return Scores(logprobs[len(prefix_T) : len(prefix_T) + len(suffix_T)], trajectory.key.step)

    return await rescore(trajectory, scored)


def step_of(toy: Toy, name: str, step: int) -> Iterator[Trajectory[TokenSpan]]:
    """All rollouts of one step, with what resampling said of them; the policy learns from those it kept."""
    policy = ROC if name.endswith("roc") else PlainConfig()
    for problem in PROBLEMS:
        group = []
        for number in range(ROLLOUTS):
            seeds = Seeds(derive_seed(7, step), problem.name, number)
            key = Key(name, step, problem.name, number)
            drawn = asyncio.run(rollout(toy, problem, key, seeds, live=name.startswith("saar")))
            group.append(asyncio.run(finished(toy, problem, drawn, name)))
        selection = select(group_of(group), policy, 7)
        for index, advantage in zip(selection.kept, selection.advantages, strict=selection.refill is None):
            toy.learn(problem, group[index], advantage)
        for each, verdict in zip(group, verdicts(selection, policy), strict=True):
            yield replace(each, info=RolloutInfo(stateful=False, verdict=verdict))


def metrics_of(lines: list[Summary]) -> dict[str, float]:
    """What a trainer would log of a step."""
    failed = sum(line.failed_turns for line in lines)
    gaps = [line.logprob_gap for line in lines if line.logprob_gap is not None]
    known = {
        "reward": fmean(line.reward or 0.0 for line in lines),
        "accuracy": fmean(bool(line.success) for line in lines),
        "errors_per_trajectory": fmean(line.failed for line in lines),
        "first_attempt_success": 1 - sum(line.first_failed for line in lines) / sum(line.first_calls for line in lines),
        "grafts": fmean(line.grafts for line in lines),
        "replacements": fmean(line.replacements for line in lines),
        "tokens": fmean(line.length for line in lines),
        "rollouts/turns": fmean(line.turns for line in lines),
    }
    if failed:
        known["repaired"] = sum(line.repaired_turns for line in lines) / failed
    return known | ({"logprob_gap": fmean(gaps)} if gaps else {})


def tokenizer_of(texts: list[str]) -> Tokenizer:
    """A byte-level BPE, trained on what can be said."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [END, "<|im_start|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def texts() -> Iterator[str]:
    """All that can be said."""
    for problem in PROBLEMS:
        yield problem.question
        for say in (*(each for stage in problem.first for each in stage), *sum(problem.after.values(), ())):
            yield say.text
            yield feedback(run(say.code)) if say.code else ""


def evaluation(toy: Toy, name: str) -> Evaluation:
    """The trained policy alone, without any repair."""
    samples = []
    for problem in PROBLEMS:
        for number in range(2 * ROLLOUTS):
            key = Key(name, STEPS, problem.name, number)
            drawn = asyncio.run(rollout(toy, problem, key, Seeds(11, problem.name, number), live=False))
            samples.append(measure(drawn))
    return Evaluation(
        name, {"policy": "toy", "repair": "off"}, (score_set("toy problems", {Repair.OFF: samples}, 2 * ROLLOUTS),)
    )


def main() -> None:
    """Make the sample anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=DEMO)
    folder: Path = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = tokenizer_of(list(texts()))
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    with (folder / "metrics.jsonl").open("w") as log, ParquetWriter(folder / "trajectories") as writer:
        for name in RUNS:
            toy = Toy(tokenizer)
            for step in range(STEPS):
                group = list(step_of(toy, name, step))
                values = {
                    key: round(value, 4) for key, value in metrics_of([summarise(each) for each in group]).items()
                }
                log.write(json.dumps({"run": name, "step": step, "metrics": values}) + "\n")
                if step in STORED:
                    for each in group:
                        writer.write(each)
            results = evaluation(toy, name).to_json()
            (folder / f"{name.replace(' + ', '-')}.json").write_text(json.dumps(results, indent=1) + "\n")
    for old in folder.rglob("part-*.parquet"):  # so that making it again gives the same files
        old.rename(old.with_name(f"{old.name[:10]}-{'0' * 8}.parquet"))


if __name__ == "__main__":
    main()
