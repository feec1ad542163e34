"""How fast the real vLLM decodes at each batch size: `python -m benchmarks.balance_speed --model FOLDER`.

The curve under `benchmarks.balance`'s simulator. Each point is one batch of equally long sequences with nothing in
common, cached before. A decode step is what 16 more tokens take over 1: the least of some repeats, in CPU time, which
for one thread is wall time without the neighbours. Three terms are then fitted to the points,

    seconds of a step = step + sequence x (sequences in it) + context x (tokens of KV cache they attend to)

and two to the prefills: seconds = token x tokens + attention x (sum of the positions they attend to).

Needs the engine's environment. A model's weights don't matter, its shape does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import save

CONTEXTS = (128, 1_024, 4_096)
DECODED = 16


def main() -> None:
    """Measure, fit, and print or keep both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face folder")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--room", type=int, default=65_536, help="tokens of KV cache; larger batches are left out")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
    }
    points = _measure(arguments.model, arguments.room, arguments.repeats)
    figures = {**fit(points), "points": points}
    if arguments.save:
        save(arguments.save, figures, {"model": arguments.model.name, "dtype": "bfloat16", "threads": 1})
    print(json.dumps(figures))


def fit(points: Sequence[dict[str, float]]) -> dict[str, float]:
    """The terms in seconds, fitted by relative error, and what error is left in the decode points."""
    rows = np.array([[1, point["batch"], point["batch"] * (point["context"] + DECODED / 2)] for point in points])
    measured = np.array([point["decode_step"] for point in points])
    step, sequence, context = _least_squares(rows / measured[:, None])
    error = np.abs(rows @ [step, sequence, context] / measured - 1)
    tokens = np.array([[point["context"], point["context"] ** 2 / 2] for point in points])
    prefills = np.array([point["prefill"] for point in points])
    token, attention = _least_squares(tokens / prefills[:, None])
    terms = {"step": step, "sequence": sequence, "context": context, "token": token, "attention": attention}
    return {**terms, "decode_error_max": float(error.max()), "decode_error_mean": float(error.mean())}


def _least_squares(rows: Any) -> list[float]:
    """Terms of 0 or more whose products with each row come near 1: one below 0 is dropped and the others refitted."""
    keep = list(range(rows.shape[1]))
    while True:
        found = np.linalg.lstsq(rows[:, keep], np.ones(len(rows)), rcond=None)[0]
        if (found >= 0).all():
            break
        keep.pop(int(found.argmin()))
    terms = [0.0] * rows.shape[1]
    for column, value in zip(keep, found, strict=True):
        terms[column] = float(value)
    return terms


def _measure(model: Path, room: int, repeats: int) -> list[dict[str, float]]:
    from vllm import LLM, SamplingParams

    engine = LLM(
        str(model), dtype="bfloat16", skip_tokenizer_init=True, enforce_eager=True, block_size=32, seed=0,
        gpu_memory_utilization=0.1,
        max_model_len=max(CONTEXTS) + 2 * DECODED, max_num_batched_tokens=2_048,
        num_gpu_blocks_override=room // 32 + 128, disable_log_stats=True,
    )  # fmt: skip

    def seconds(prompts: list[list[int]], tokens: int) -> float:
        start = time.process_time()
        engine.generate(
            [{"prompt_token_ids": ids} for ids in prompts],
            SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0, detokenize=False),
            use_tqdm=False,
        )
        return time.process_time() - start

    random_of = random.Random(0)
    seconds([[1] * 64], DECODED)
    points = []
    for context in CONTEXTS:
        prompts = [[random_of.randrange(10, 1_000) for _ in range(context)] for _ in range(min(64, room // context))]
        prefill = seconds(prompts, 1) / len(prompts)
        batches = [2**power for power in range(7) if 2**power <= len(prompts)]
        # Turn about, so that a slow moment doesn't fall on one point alone.
        tries = [[_step(seconds, prompts[:batch]) for batch in batches] for _ in range(repeats)]
        for batch, steps in zip(batches, zip(*tries, strict=True), strict=True):
            points.append({"batch": batch, "context": context, "decode_step": min(steps), "prefill": prefill})
    return points


def _step(seconds: Callable[[list[list[int]], int], float], prompts: list[list[int]]) -> float:
    return (seconds(prompts, 1 + DECODED) - seconds(prompts, 1)) / DECODED


if __name__ == "__main__":
    main()
