"""Samples and results for tests that need many of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cleaner_rl.evaluate import Evaluation, Repair
from cleaner_rl.evaluate.measures import Sample
from cleaner_rl.evaluate.scores import score_set


def sample(task: str = "p0", rollout: int = 0, right: bool | None = True, **values: object) -> Sample:
    return Sample(task, rollout, right, **values)  # type: ignore[arg-type]


def simulated(problems: int, samples: int, lift: float = 0.0, seed: int = 0) -> list[Sample]:
    """A made-up model: each problem has its own chance, each sample some calls that fail now and then."""
    generator = np.random.default_rng(seed)
    chances = np.random.default_rng(99).beta(0.8, 1.4, problems)
    made: list[Sample] = []
    for index, chance in enumerate(chances):
        for number in range(samples):
            calls = int(generator.integers(0, 4))
            failed = int(generator.binomial(calls, 0.3))
            left = int(generator.binomial(failed, 1 - 3 * lift)) if lift else failed
            made.append(
                Sample(
                    f"p{index:03}",
                    number,
                    bool(generator.random() < chance + lift),
                    turns=calls + 1,
                    calls=calls,
                    failed_first=failed,
                    failed_left=left,
                    episodes=min(failed, 1),
                    recovered=int(failed > 0 and generator.random() < 0.6),
                    sampled=int(generator.integers(100, 900)),
                    lookahead=40 * (failed - left),
                    tool_seconds=0.05 * calls,
                    seconds=float(generator.gamma(2.0, 2.0)),
                    stop_reason="answered" if generator.random() < 0.9 else "turn_limit",
                )
            )
    return made


def evaluation(names: Sequence[str] = ("aime24", "gpqa-diamond"), *, lift: float = 0.08, seed: int = 0) -> Evaluation:
    sets = [
        score_set(
            name,
            {Repair.OFF: simulated(30, 8, seed=seed + n), Repair.ON: simulated(30, 8, lift, seed=seed + 50 + n)},
            8,
        )
        for n, name in enumerate(names)
    ]
    return Evaluation("a-made-up-model", {"temperature": 1.0, "top_p": 0.6, "seed": seed}, tuple(sets))
