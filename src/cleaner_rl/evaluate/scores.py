"""From samples to figures.

| figure | what it is |
| --- | --- |
| `pass@k` | mean over problems of the unbiased estimate; a problem with fewer than k judged samples is not in it |
| `maj@k` | mean over problems of how often the majority of k samples is right (`majority`); k above 2 |
| `calls`, `turns`, `sampled`, `lookahead`, `tool_seconds`, `latency` | per trajectory |
| `errors_first` | failed calls per trajectory, as the model made them |
| `errors_residual` | failed calls per trajectory that its final history still holds |
| `error_share` | failed calls among calls, as the model made them |
| `recovery` | runs of failures that a working call ended, among all of them |
| `right_after_error` | right answers among trajectories in which a call failed |

Each problem counts the same in what is "per trajectory"; shares are of all calls, failures or trajectories together.
Faults are counted by reason and are in none of the figures; `RunScore.bounds` says what they could have changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from statistics import fmean

from cleaner_rl.evaluate.bootstrap import Figure, estimates
from cleaner_rl.evaluate.majority import maj_at_k
from cleaner_rl.evaluate.measures import Sample
from cleaner_rl.evaluate.paired import difference
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.results import Repair, RunScore, SetResult

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


def score(samples: Iterable[Sample], *, seed: int = 0) -> RunScore:
    """Compute the scores of one run mode on a set."""
    problems: Problems = defaultdict(list)
    faults: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for sample in samples:
        if sample.right is None:
            faults[sample.fault] += 1
            left_out[sample.task] += 1
        else:
            problems[sample.task].append(sample)
    problems = dict(sorted(problems.items()))
    rates = {task: Rate(sum(bool(each.right) for each in some), len(some)) for task, some in problems.items()}
    passing = {**_passing(list(rates.values())), **_majority(list(problems.values()))}
    figures = {**passing, **_per_trajectory(problems), **_shares(problems)}
    stop_reasons = Counter(sample.stop_reason for some in problems.values() for sample in some)
    return RunScore(
        problems=rates,
        figures=dict(zip(figures, estimates(list(figures.values()), seed=seed), strict=True)),
        faults=dict(faults.most_common()),
        stop_reasons=dict(stop_reasons.most_common()),
        bounds=_bounds(rates, left_out),
    )


def _bounds(rates: Mapping[str, Rate], left_out: Mapping[str, int]) -> tuple[float, float] | None:
    """pass@1 with the samples that were left out as all wrong, and as all right."""
    if not left_out:
        return None
    low, high = [], []
    for task in rates.keys() | left_out.keys():
        rate, more = rates.get(task, Rate(0, 0)), left_out.get(task, 0)
        low.append(rate.right / (rate.judged + more))
        high.append((rate.right + more) / (rate.judged + more))
    return fmean(low), fmean(high)


def score_set(name: str, runs: dict[Repair, Sequence[Sample]], samples: int, *, seed: int = 0) -> SetResult:
    """Compute the results of a set of problems in all modes in which it was run."""
    scored = {repair: score(some, seed=seed) for repair, some in runs.items()}
    off, on = scored.get(Repair.OFF), scored.get(Repair.ON)
    tokens = all(sample.tokens for some in runs.values() for sample in some)
    return SetResult(
        name=name,
        samples=samples,
        unit="tokens" if tokens else "characters",
        runs=scored,
        difference=difference(off.problems, on.problems, pairs=_pairs(runs), seed=seed) if off and on else None,
    )


def _pairs(runs: Mapping[Repair, Sequence[Sample]]) -> dict[str, list[int]]:
    """By problem, what repair changed in each sample: both runs have the same seeds."""
    off = {(each.task, each.rollout): each.right for each in runs[Repair.OFF]}
    pairs: dict[str, list[int]] = defaultdict(list)
    for each in runs[Repair.ON]:
        before = off.get((each.task, each.rollout))
        if before is not None and each.right is not None:
            pairs[each.task].append(each.right - before)
    return pairs


def _majority(problems: list[list[Sample]]) -> dict[str, Figure]:
    most = max((len(some) for some in problems), default=0)
    # A right sample whose answer nobody knows can't vote, so its problem has no majority.
    voting = [all(each.answer is not None for each in some if each.right) for some in problems]
    if not any(each.answer is not None for some in problems for each in some):
        return {}
    figures = {}
    for k in (k for k in ks(most) if k > 2):
        enough = [ok and len(some) >= k for ok, some in zip(voting, problems, strict=True)]
        shares = [_majority_of(some, k) if ok else 0.0 for ok, some in zip(enough, problems, strict=True)]
        figures[f"maj@{k}"] = Figure(shares, [float(ok) for ok in enough], share=True)
    return figures


def _majority_of(some: Sequence[Sample], k: int) -> float:
    return maj_at_k([each.answer for each in some], [bool(each.right) for each in some], k)


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


def pass_at_k(right: int, samples: int, k: int) -> float:
    """Return the unbiased estimate of Chen et al. (2021) for one problem: 1 - C(n-c, k) / C(n, k).

    In whole numbers up to one correctly rounded division: nothing overflows and nothing cancels.
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(
            f"pass@{k} of {right} right among {samples}: it needs 0 <= right <= samples and 1 <= k <= samples"
        )
    ways = comb(samples, k)
    return (ways - comb(samples - right, k)) / ways


def ks(samples: int) -> tuple[int, ...]:
    """Return the values of k to report for a number of samples: powers of two, and the number itself."""
    return (*(1 << power for power in range(samples.bit_length()) if 1 << power < samples), samples)
