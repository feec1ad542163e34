"""The whole training loop on one page: rollouts, purification, advantages, clipped loss, step.

A toy model runs a JavaScript expression with a Python tool, reads a real error, and mostly calls the right one next:
`'pear'.length`, then `len('pear')`. GRPO rewards all of it; hindsight puts the correction in the failed call's place.

Run `python examples/train_loop.py [--json]`; it needs torch, transformers and math-verify, and two minutes on one CPU
core. It prints how many calls per trajectory fail on held-out tasks, where nothing is repaired, at every third step.
"""

import asyncio
import json
import sys
import time
from dataclasses import replace
from random import Random

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from torch.nn.utils.rnn import pad_sequence
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from cleaner_rl.resample import PlainConfig, group_of, select
from cleaner_rl.rollout import Purifier, RolloutBudget, RolloutRunner, TokenModel, open_runner
from cleaner_rl.rollout import tool_result as seen
from cleaner_rl.rollout.engines import TransformersEngine
from cleaner_rl.tasks import Message, Task, load_prompt
from cleaner_rl.tools import feedback
from cleaner_rl.trajectory import RepairMode, TokenSpan, Trajectory, first_attempt_tally
from cleaner_sandbox import BARE, Node, NodeConfig, RunRequest

SEEDS, STEPS, GROUPS, SAMPLES, BUDGET = (0, 1, 2), 12, 6, 8, RolloutBudget(turns=3, tokens=64)
METHODS = {"hindsight": Purifier(RepairMode.HINDSIGHT), "grpo": None}
PROMPT, CALL, ANSWER = load_prompt("fenced"), "```python\nprint({})\n```", "\\boxed{{{}}}"
WORDS = "ant bee cake deer eagle fig goose hare idea jelly kite lemon maple nest olive pear rice seed tea wave".split()
EXPRESSIONS = {  # JavaScript: Python
    "'{}'.length": "len('{}')",
    "'{}'.indexOf('e')": "'{}'.find('e')",
    "'{}'.lastIndexOf('e')": "'{}'.rfind('e')",
    "'{}'.charCodeAt(0)": "ord('{}'[0])",
    "'{}'.split('e').length": "len('{}'.split('e'))",
}
PYTHON = {javascript.format(word): code.format(word) for javascript, code in EXPRESSIONS.items() for word in WORDS}
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
SPECIAL, END, PAD = ["<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"], 0, 1
TOY = {"n_embd": 64, "n_layer": 1, "n_head": 4, "initializer_range": 0.1, "bos_token_id": END, "eos_token_id": END}


def demonstrate(task: Task, runner: RolloutRunner[TokenSpan], rng: Random) -> Trajectory[TokenSpan]:
    """Write a trajectory to imitate: the expression as it is, mostly once or twice, then in Python, then the answer."""
    model = runner.model
    codes = [task.id] * rng.choices([0, 1, 2], [1, 14, 5])[0] + [PYTHON[task.id]]
    calls = [(model.written(CALL.format(code)).turn, str(task.extra[code])) for code in codes]
    turns = [replace(call, observation=model.observe(call, [result])) for call, result in calls]
    return Trajectory(model.begin(PROMPT.messages(task)), (*turns, model.written(ANSWER.format(task.truth)).turn))


class TorchEngine(TransformersEngine):
    """Serves the toy model to rollouts, and trains it."""

    def __init__(self, vocabulary: int) -> None:
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, **TOY)).eval()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        super().__init__(self.model)

    def logprobs(self, ids_BT: torch.Tensor) -> torch.Tensor:
        return self.model(ids_BT).logits[:, :-1].log_softmax(-1).gather(-1, ids_BT[:, 1:, None])[..., 0]

    def update(self, rows: list[tuple[Trajectory[TokenSpan], float]]) -> None:
        """Take one step on the clipped loss of trajectories and their advantages, a mean over all sampled tokens."""
        columns = zip(*[(each.ids(), each.loss_mask(), each.logprobs()) for each, _ in rows], strict=True)
        ids_BT, mask_BT, old_BT = (pad_sequence([torch.tensor(each) for each in column], True) for column in columns)
        new_BT, old_BT, advantage_B1 = self.logprobs(ids_BT.long()), old_BT[:, 1:], torch.tensor([[a] for _, a in rows])
        # Nobody sampled the demonstrations, so they have no log-probs (NaN): at a ratio of 1 this is cross-entropy.
        ratio_BT = (new_BT - torch.where(old_BT.isnan(), new_BT.detach(), old_BT)).exp()
        loss_BT = -torch.minimum(ratio_BT * advantage_B1, ratio_BT.clamp(0.8, 1.28) * advantage_B1)
        self.optimizer.zero_grad()
        loss_BT[mask_BT[:, 1:]].mean().backward()
        self.optimizer.step()


async def train(engine: TorchEngine, runner: RolloutRunner[TokenSpan], tasks: list[Task]) -> list[float]:
    """Train on demonstrations, then on rollouts. Return the failed calls per held-out trajectory, every third step."""
    rng, held_out, tasks, curve = Random(runner.seed), tasks[::3], tasks[1::3] + tasks[2::3], []
    demonstrations = [(demonstrate(rng.choice(tasks), runner, rng), 1.0) for _ in range(400)]
    for _ in range(120):
        engine.update(rng.sample(demonstrations, 32))
    for step in range(STEPS + 1):
        if step > 0:
            rows = []  # Rollouts come back graded and, if the runner has a purifier, repaired and re-scored.
            for group in await asyncio.gather(*[runner.run_group(task, SAMPLES) for task in rng.sample(tasks, GROUPS)]):
                chosen = select(group_of(group), PlainConfig(), runner.seed, dynamic_sampling=False)
                rows += [(group[index], each) for index, each in zip(chosen.kept, chosen.advantages, strict=True)]
            engine.update(rows)
        if step % 3 == 0:
            failed = [first_attempt_tally(each).failed async for each in replace(runner, purifier=None).run(held_out)]
            curve.append(sum(failed) / len(failed))
    return curve


async def main() -> None:
    torch.set_num_threads(1)
    begun, curves = time.monotonic(), {name: torch.zeros(STEPS // 3 + 1) for name in METHODS}
    async with Node(NodeConfig(environments=(BARE,))) as node:
        ran = {code: await node.run(RunRequest(f"print({code})")) for code in [*PYTHON, *PYTHON.values()]}
        results = {code: feedback(seen(each.result)) for code, each in ran.items()}
        tasks = [Task(js, (Message("user", js),), "math", results[py], extra=results) for js, py in PYTHON.items()]
        texts = [message.content for task in tasks for message in PROMPT.messages(task)]
        texts += [*results.values(), *map(CALL.format, results), *map(ANSWER.format, results.values()), "?"]
        words = pre_tokenizers.Split(Regex("|".join(WORDS)), "isolated")  # Each is a token, and so is the text between.
        backend = Tokenizer(models.WordLevel(unk_token="?"))
        backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
        backend.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=SPECIAL[END], chat_template=TEMPLATE)
        for name, purifier in METHODS.items():
            for seed in SEEDS:
                print(f"{time.monotonic() - begun:4.0f} s: {name}, seed {seed} of {SEEDS}", file=sys.stderr, flush=True)
                torch.manual_seed(seed)
                engine = TorchEngine(len(tokenizer))
                model = TokenModel.for_prompt(engine, tokenizer, PROMPT, window=256)
                async with open_runner(model, PROMPT, node, budget=BUDGET, purifier=purifier, seed=seed) as runner:
                    curves[name] += torch.tensor(await train(engine, runner, tasks)) / len(SEEDS)
    (first, *_, last), (*_, last_grpo) = ([round(each, 3) for each in curve.tolist()] for curve in curves.values())
    figures = {"seconds": round(time.monotonic() - begun), "steps": STEPS, "seeds": len(SEEDS)}
    figures |= {"failed_calls_first": first, "failed_calls_last": last, "failed_calls_last_grpo": last_grpo}
    table = [f"{name:>9}: {'  '.join(f'{value:.2f}' for value in curve)}" for name, curve in curves.items()]
    print(json.dumps(figures) if "--json" in sys.argv else "\n".join(table))


if __name__ == "__main__":
    asyncio.run(main())
