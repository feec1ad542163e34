"""How near schedulers of requests come to the least time possible: `python -m benchmarks.balance --json`.

In simulation (see `balance_world` and `balance_replica`): 2,048 trajectories, several seeds that nothing was tuned on.
On 64 replicas their KV caches hold all trajectories, on 16 they don't. The speeds are those of SmolLM2 on a CPU, which
were measured, and of a 14B model on a GPU, which are only calculated.

`makespan_over_bound` has the mean of each scheduler over the seeds, `worst` its worst. `even_pace` and `oracle` are no
rivals: one is what perfect division would reach without knowing lengths, the other knows them.
`benchmarks.balance_real` runs real replicas.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.balance_limits import Oracle, even_pace
from benchmarks.balance_rivals import LeastRequests, RoundRobin, StaticSplit, StickyLeastRequests
from benchmarks.balance_simulator import Outcome, simulate
from benchmarks.balance_world import CAP, Script, Speed, bound, calculated, measured, scripts
from benchmarks.record import save
from cleaner_rl.rollout.balance import EvenConfig, EvenScheduler, Scheduler

TUNED_ON = (0, 1, 2, 3)
HELD_OUT = (100, 101, 102, 103, 104)

SCHEDULERS: dict[str, Callable[[Sequence[Script], Speed, int, int], Scheduler]] = {
    "ours": lambda *_: EvenScheduler(EvenConfig(longest=CAP)),
    "static_split": lambda work, *_: StaticSplit(len(work)),
    "round_robin": lambda *_: RoundRobin(),
    "least_requests": lambda _work, _speed, _replicas, seed: LeastRequests(seed),
    "sticky_least_requests": lambda _work, _speed, _replicas, seed: StickyLeastRequests(seed),
    "oracle": lambda work, speed, replicas, _: Oracle(work, speed, replicas),
}


def main() -> None:
    """Simulate, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seeds", type=int, nargs="+", default=HELD_OUT, help=f"default: {HELD_OUT}")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    figures = {
        f"{name}, {replicas} replicas": simulated(arguments.seeds, speed, replicas)
        for name, speed in (("smollm2 on a CPU", measured()), ("14B on a GPU", calculated()))
        for replicas in (64, 16)
    }
    if arguments.save:
        save(arguments.save, figures, {"seeds": arguments.seeds, "tuned_on": TUNED_ON})
    if arguments.json:
        print(json.dumps(figures))
        return
    for world, found in figures.items():
        print(f"{world:24} mean of bound   worst   preemptions   computed again")
        for name, ratio in found["makespan_over_bound"].items():
            rest = [found[key].get(name, 0) for key in ("worst", "preemptions", "recomputed_over_sampled")]
            print(f"{name:24} {ratio:13.3f} {rest[0]:7.3f} {rest[1]:13.0f} {rest[2]:16.3f}")


def simulated(seeds: Sequence[int], speed: Speed, replicas: int) -> dict[str, dict[str, float]]:
    """The figures of each scheduler over these seeds."""
    runs: dict[str, list[tuple[float, Outcome, int]]] = {name: [] for name in SCHEDULERS}
    paces = []
    for seed in seeds:
        work = scripts(seed)
        least = bound(work, speed, replicas)
        sampled = sum(script.sampled for script in work)
        paces.append(even_pace(work, speed, replicas) / least)
        for name, make in SCHEDULERS.items():
            outcome = simulate(work, make(work, speed, replicas, seed), speed, replicas)
            runs[name].append((outcome.makespan / least, outcome, sampled))

    def each(figure: Callable[[list[tuple[float, Outcome, int]]], float]) -> dict[str, float]:
        return {name: round(figure(outcomes), 3) for name, outcomes in runs.items()}

    return {
        "makespan_over_bound": each(lambda ran: mean(ratio for ratio, _, _ in ran))
        | {"even_pace": round(mean(paces), 3)},
        "worst": each(lambda ran: max(ratio for ratio, _, _ in ran)) | {"even_pace": round(max(paces), 3)},
        "preemptions": each(lambda ran: mean(outcome.preemptions for _, outcome, _ in ran)),
        "recomputed_over_sampled": each(lambda ran: mean(outcome.recomputed / sampled for _, outcome, sampled in ran)),
        "busy": each(lambda ran: mean(outcome.busy / outcome.makespan / replicas for _, outcome, _ in ran)),
    }


if __name__ == "__main__":
    main()
