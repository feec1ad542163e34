"""Our own CPU time for repairing a long trajectory: reading sampled tokens, SAAR, hindsight, re-scoring, the arrays.

Every one of the 16 turns fails and is repaired: far more than a real rollout, so that no cost hides. Sampling,
execution and scoring return at once; what is left is ours. A token is 4 characters on average, as in English and code.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from cleaner_rl.purify import Draft, PurifyConfig, RepairBudget, RepairOutcome, SampleRequest, repair, rescore
from cleaner_rl.tools import ExceptionInfo, Status, ToolResult, ToolSet, call_format, python_tool
from cleaner_rl.trajectory import Ids, Scores, Seeds, TokenSpan, Trajectory, Turn, Vocabulary, read_tokens, token_span

TURNS = 16
CODE_CHARACTERS = 600
WORDS = [b"the ", b"sum of ", b"valu", b"es is", b" then", b"\n", b"we ", b"know", b" that", b" \xc3\xa9", b"max"]
VOCABULARY = Vocabulary([bytes([byte]) for byte in range(256)] + WORDS)
TOOLS = ToolSet(python_tool())
FENCED = call_format("fenced")
FAILED = ToolResult(Status.ERROR, exception=ExceptionInfo("NameError", "name 'totl' is not defined", 9))
OK = ToolResult(Status.OK, "42\n")
LINE = "total_{0} = sum(value * weight for value, weight in zip(values_{0}, weights[{0}:]))\n"


def repair_ms(tokens: int, repeats: int = 7) -> float:
    """Median CPU milliseconds for a trajectory of so many tokens in 16 turns, all repaired."""
    script = [_sampled(tokens // TURNS, turn) for turn in range(TURNS)]
    return median(_timed(script, tokens) for _ in range(repeats))


def _timed(script: Sequence[tuple[TokenSpan, TokenSpan, TokenSpan]], tokens: int) -> float:
    start = time.process_time()
    clean = asyncio.run(_roll_out(script))
    spent = time.process_time() - start
    assert len(clean.turns) == TURNS == len(clean.edits)
    assert abs(len(clean) - tokens) < tokens / 10, len(clean)
    return spent * 1e3


async def _roll_out(script: Sequence[tuple[TokenSpan, TokenSpan, TokenSpan]]) -> Trajectory[TokenSpan]:
    history = Trajectory(token_span("q", b"q"))
    seeds, config = Seeds(1, "task", 0), PurifyConfig()
    for failing, correcting, observation in script:

        async def sample(_: SampleRequest[TokenSpan], ids: TokenSpan = correcting) -> Draft[TokenSpan]:
            return Draft(read_tokens(ids, VOCABULARY, FENCED, TOOLS))

        async def execute(turn: Turn[TokenSpan], span: TokenSpan = observation) -> Turn[TokenSpan]:
            return replace(turn, results=(OK,), observation=span)

        turn = read_tokens(failing, VOCABULARY, FENCED, TOOLS)
        failed = replace(turn, results=(FAILED,), observation=observation)
        budget = RepairBudget(lookahead=100_000, context=100_000, response=100_000)
        repaired = await repair(
            history, failed, sample=sample, execute=execute, config=config, budget=budget, seeds=seeds
        )
        assert repaired.verdict is RepairOutcome.REPAIRED
        history = replace(history, turns=history.turns + repaired.turns)
    clean = await rescore(history, _score)
    clean.ids(), clean.loss_mask(), clean.logprobs()
    return clean


async def _score(_: Ids, suffix: Ids) -> Scores:
    return Scores(np.full(len(suffix), -1.0, np.float32))


def _sampled(tokens: int, seed: int) -> tuple[TokenSpan, TokenSpan, TokenSpan]:
    """Tokens of a failing turn, of its correction, and of an observation, together as long as one turn should be."""
    draw = random.Random(seed)
    program = "".join(LINE.format(number) for number in range(CODE_CHARACTERS // len(LINE)))
    observation = [256 + draw.randrange(len(WORDS)) for _ in range(tokens // 4)]
    reasoning_length = tokens - len(observation) - len(program)
    spans = []
    for code in (program.replace("total_1 ", "totl "), program):
        reasoning = [256 + draw.randrange(len(WORDS)) for _ in range(reasoning_length)]
        ids = [*reasoning, *f"\n```python\n{code}```".encode()]
        spans.append(token_span("", ids, (-draw.random() for _ in ids)))
    return spans[0], spans[1], token_span("observed", observation)
