"""From samples to figures.

| figure | what it is |
| --- | --- |
| `pass@k` | mean over problems of the unbiased estimate; a problem with fewer than k judged samples is not in it |
| `calls`, `turns`, `sampled`, `lookahead`, `tool_seconds`, `latency` | per trajectory |
| `errors_first` | failed calls per trajectory, as the model made them |
| `errors_residual` | failed calls per trajectory that its final history still holds |
| `error_share` | failed calls among calls, as the model made them |
| `recovery` | runs of failures that a working call ended, among all of them |
| `right_after_error` | right answers among trajectories in which a call failed |

Each problem counts the same in what is "per trajectory"; shares are of all calls, failures or trajectories together.
Faults are counted by reason and are in none of the figures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from cleaner_rl.evaluate.bootstrap import Figure, estimates
from cleaner_rl.evaluate.measures import Sample
from cleaner_rl.evaluate.paired import difference
from cleaner_rl.evaluate.passing import ks, pass_at_k
from cleaner_rl.evaluate.results import Arm, Rate, Repair, SetResult

PER_TRAJECTORY: dict[str, Callable[[Sample], float]] = {
    "errors_first": lambda sample: sample.failed_first,
    "errors_residual": lambda sample: sample.failed_left,
    "calls": lambda sample: sample.calls,
    "turns": lambda sample: sample.turns,
    "sampled": lambda sample: sample.sampled,
    "lookahead": lambda sample: sample.lookahead,
    "tool_seconds": lambda sample: sample.tool_seconds,
}
SHARES: dict[str, tuple[Callable[[Sample], float], Callable[[Sample], float]]] = {
    "error_share": (lambda sample: sample.failed_first, lambda sample: sample.calls),
    "recovery": (lambda sample: sample.recovered, lambda sample: sample.episodes),
    "right_after_error": (
        lambda sample: sample.right is True and sample.failed_first > 0,
        lambda sample: sample.failed_first > 0,
    ),
}

Problems = dict[str, list[Sample]]


def score(samples: Iterable[Sample], *, seed: int = 0) -> Arm:
    """The figures of one way of running a set."""
    problems: Problems = defaultdict(list)
    faults: Counter[str] = Counter()
    for sample in samples:
        if sample.right is None:
            faults[sample.fault] += 1
        else:
            problems[sample.task].append(sample)
    problems = dict(sorted(problems.items()))
    rates = {task: Rate(sum(bool(each.right) for each in some), len(some)) for task, some in problems.items()}
    figures = {**_passing(list(rates.values())), **_per_trajectory(problems), **_shares(problems)}
    endings = Counter(sample.ending for some in problems.values() for sample in some)
    return Arm(
        problems=rates,
        figures=dict(zip(figures, estimates(list(figures.values()), seed=seed), strict=True)),
        faults=dict(faults.most_common()),
        endings=dict(endings.most_common()),
    )


def score_set(name: str, arms: dict[Repair, Sequence[Sample]], samples: int, *, seed: int = 0) -> SetResult:
    """A set of problems in all the ways that it was run."""
    scored = {repair: score(some, seed=seed) for repair, some in arms.items()}
    off, on = scored.get(Repair.OFF), scored.get(Repair.ON)
    tokens = all(sample.tokens for some in arms.values() for sample in some)
    return SetResult(
        name=name,
        samples=samples,
        unit="tokens" if tokens else "characters",
        arms=scored,
        difference=difference(off.rates, on.rates, seed=seed) if off and on else None,
    )


def _passing(rates: list[Rate]) -> dict[str, Figure]:
    most = max((rate.judged for rate in rates), default=0)
    figures = {}
    for k in ks(most) if most else ():
        enough = [rate.judged >= k for rate in rates]
        passing = [pass_at_k(rate.right, rate.judged, k) if ok else 0.0 for rate, ok in zip(rates, enough, strict=True)]
        figures[f"pass@{k}"] = Figure(passing, [float(ok) for ok in enough], share=True)
    return figures


def _per_trajectory(problems: Problems) -> dict[str, Figure]:
    figures = {
        name: Figure([fmean(map(of, some)) for some in problems.values()]) for name, of in PER_TRAJECTORY.items()
    }
    timed = [[each.seconds for each in some if each.seconds is not None] for some in problems.values()]
    means = [fmean(seconds) if seconds else 0.0 for seconds in timed]
    return {**figures, "latency": Figure(means, [float(bool(seconds)) for seconds in timed])}


def _shares(problems: Problems) -> dict[str, Figure]:
    return {
        name: Figure(
            [float(sum(map(part, some))) for some in problems.values()],
            [float(sum(map(whole, some))) for some in problems.values()],
            share=True,
        )
        for name, (part, whole) in SHARES.items()
    }
