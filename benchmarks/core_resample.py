"""CPU time of resampling a training step's groups, from rewards and qualities to kept rollouts with advantages."""

from __future__ import annotations

import random
from statistics import median
from time import process_time

from cleaner_rl.resample import Quality, RocConfig, RolloutGroup, select
from cleaner_rl.trajectory import Tally


def resample_ms(groups: int = 512, size: int = 32, repeats: int = 9) -> float:
    """Milliseconds of CPU time for all groups together, the median of some repeats; half of each group is kept."""
    random_of = random.Random(0)
    columns = [
        ([float(random_of.random() < 0.5) for _ in range(size)], [_quality(random_of) for _ in range(size)])
        for _ in range(groups)
    ]
    usable = [True] * size
    config = RocConfig(keep=size // 2)
    times = []
    for step in range(repeats):
        start = process_time()
        step_groups = [
            RolloutGroup(str(task), step, rewards, qualities, [reward > 0 for reward in rewards], range(size), usable)
            for task, (rewards, qualities) in enumerate(columns)
        ]
        for group in step_groups:
            select(group, config, run_seed=0)
        times.append(process_time() - start)
    return median(times) * 1_000


def _quality(random_of: random.Random) -> Quality:
    """One rollout in eight uses no tool; the others make up to eight calls, and a third of them was repaired."""
    calls = random_of.randrange(8)
    failed = random_of.randint(0, calls)
    repaired = random_of.random() < 1 / 3
    return Quality(Tally(failed, calls), Tally(0 if repaired else failed, calls), random_of.choice([0.0, 0.0, 0.5]))


if __name__ == "__main__":
    print(f"{resample_ms():.1f} ms")
