"""How near schedulers of requests come to the least time possible: `python -m benchmarks.balance --json`.

In simulation (see `balance_world` and `balance_replica`): 64 replicas, 2,048 trajectories, several seeds that nothing
was tuned on. `makespan_over_bound` has the mean of each scheduler over the seeds, `worst` its worst. `even_pace` and
`oracle` are no rivals: one is what perfect division would reach without knowing lengths, the other knows them.
`--real MODEL` adds two vLLM replicas on this machine (the engine's environment; see `balance_real`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.balance_limits import Oracle, even_pace
from benchmarks.balance_rivals import LeastRequests, RoundRobin, StaticSplit, StickyLeastRequests
from benchmarks.balance_simulator import Outcome, simulate
from benchmarks.balance_world import CAP, REPLICAS, Script, Speed, bound, measured, scripts
from benchmarks.record import save
from cleaner_rl.rollout.balance import EvenConfig, EvenScheduler, Scheduler

TUNED_ON = (0, 1, 2, 3)
HELD_OUT = (100, 101, 102, 103, 104)

SCHEDULERS: dict[str, Callable[[Sequence[Script], Speed, int], Scheduler]] = {
    "ours": lambda *_: EvenScheduler(EvenConfig(longest=CAP)),
    "static_split": lambda work, *_: StaticSplit(len(work)),
    "round_robin": lambda *_: RoundRobin(),
    "least_requests": lambda _work, _speed, seed: LeastRequests(seed),
    "sticky_least_requests": lambda _work, _speed, seed: StickyLeastRequests(seed),
    "oracle": lambda work, speed, _: Oracle(work, speed, REPLICAS),
}


def main() -> None:
    """Simulate, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seeds", type=int, nargs="+", default=HELD_OUT, help=f"default: {HELD_OUT}")
    parser.add_argument("--real", type=Path, help="a Hugging Face folder: also run it on two vLLM replicas here")
    parser.add_argument("--repeats", type=int, default=5, help="of the real run (default: 5)")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    figures: dict[str, Any] = dict(simulated(arguments.seeds))
    if arguments.real:
        from benchmarks.balance_real import real

        figures["real"] = real(arguments.real, arguments.repeats)
    if arguments.save:
        save(arguments.save, figures, {"seeds": arguments.seeds, "tuned_on": TUNED_ON})
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{'':22} mean of bound   worst   preemptions   computed again")
    for name, ratio in figures["makespan_over_bound"].items():
        rest = [figures[key].get(name, 0) for key in ("worst", "preemptions", "recomputed_over_sampled")]
        print(f"{name:22} {ratio:13.3f} {rest[0]:7.3f} {rest[1]:13.0f} {rest[2]:16.3f}")
    if arguments.real:
        print(f"two replicas here, ours over: {figures['real']['ours_over']}")


def simulated(seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """The figures of each scheduler over these seeds."""
    speed = measured()
    runs: dict[str, list[tuple[float, Outcome, int]]] = {name: [] for name in SCHEDULERS}
    paces = []
    for seed in seeds:
        work = scripts(seed)
        least = bound(work, speed)
        sampled = sum(script.sampled for script in work)
        paces.append(even_pace(work, speed, REPLICAS) / least)
        for name, make in SCHEDULERS.items():
            outcome = simulate(work, make(work, speed, seed), speed)
            runs[name].append((outcome.makespan / least, outcome, sampled))

    def each(figure: Callable[[list[tuple[float, Outcome, int]]], float]) -> dict[str, float]:
        return {name: round(figure(outcomes), 3) for name, outcomes in runs.items()}

    return {
        "makespan_over_bound": each(lambda ran: mean(ratio for ratio, _, _ in ran))
        | {"even_pace": round(mean(paces), 3)},
        "worst": each(lambda ran: max(ratio for ratio, _, _ in ran)) | {"even_pace": round(max(paces), 3)},
        "preemptions": each(lambda ran: mean(outcome.preemptions for _, outcome, _ in ran)),
        "recomputed_over_sampled": each(lambda ran: mean(outcome.recomputed / sampled for _, outcome, sampled in ran)),
        "busy": each(lambda ran: mean(outcome.busy / outcome.makespan / REPLICAS for _, outcome, _ in ran)),
    }


if __name__ == "__main__":
    main()
