"""What a model made of the failures that were put in.

| figure | of the trajectories that began with a failure, the share in which |
| --- | --- |
| `retried` | the model called a tool again |
| `ran_next` | its very next turn had calls, and all of them ran |
| `recovery` | some later turn did |
| `pass@1` | the final answer was right |

The turn that was put in is in no figure: not in calls, lengths or errors.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from cleaner_rl.evaluate.bootstrap import Figure, estimates
from cleaner_rl.evaluate.measures import Sample, measure
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.results import RecoveryResult, RunScore
from cleaner_rl.trajectory import AnyTrajectory, TextSpan, Trajectory

DID_NOT_FAIL = "The injected call did not fail."


@dataclass(frozen=True, slots=True)
class Recovered:
    """One rollout after a failure that was put in."""

    kind: str
    sample: Sample
    """Of what the model did itself."""
    retried: bool
    ran_next: bool
    recovered: bool


FIGURES: dict[str, Callable[[Recovered], bool]] = {
    "retried": lambda each: each.retried,
    "ran_next": lambda each: each.ran_next,
    "recovery": lambda each: each.recovered,
    "pass@1": lambda each: each.sample.right is True,
}


def recovered(trajectory: AnyTrajectory) -> Recovered:
    """What followed the first turn."""
    whole = cast("Trajectory[TextSpan]", trajectory)  # or of the other kind
    own = replace(whole, turns=whole.turns[1:])
    sample = measure(own)
    if not trajectory.turns or not trajectory.turns[0].failed:
        # Another sandbox, perhaps, in which the program runs: nothing is known about recovery.
        sample = replace(sample, right=None, fault=measure(trajectory).fault or DID_NOT_FAIL)
    return Recovered(
        kind=trajectory.info.injected,
        sample=sample,
        retried=any(turn.calls for turn in own.turns),
        ran_next=bool(own.turns) and own.turns[0].verified,
        recovered=any(turn.verified for turn in own.turns),
    )


def score_recovery(rollouts: Iterable[Recovered], *, seed: int = 0) -> RecoveryResult:
    """The figures by kind and over all."""
    kinds: dict[str, list[Recovered]] = defaultdict(list)
    for each in rollouts:
        kinds[each.kind].append(each)
    return RecoveryResult(
        overall=_arm([each for some in kinds.values() for each in some], seed),
        kinds={kind: _arm(some, seed) for kind, some in sorted(kinds.items())},
    )


def _arm(rollouts: Sequence[Recovered], seed: int) -> RunScore:
    problems: dict[str, list[Recovered]] = defaultdict(list)
    faults: Counter[str] = Counter()
    for each in rollouts:
        if each.sample.right is None:
            faults[each.sample.fault] += 1
        else:
            problems[each.sample.task].append(each)
    problems = dict(sorted(problems.items()))
    figures = {
        name: Figure([sum(map(of, some)) / len(some) for some in problems.values()], share=True)
        for name, of in FIGURES.items()
    }
    stop_reasons = Counter(each.sample.stop_reason for some in problems.values() for each in some)
    return RunScore(
        problems=_rates(problems, FIGURES["pass@1"]),
        figures=dict(zip(figures, estimates(list(figures.values()), seed=seed), strict=True)) if problems else {},
        faults=dict(faults.most_common()),
        stop_reasons=dict(stop_reasons.most_common()),
        repaired=_rates(problems, FIGURES["recovery"]),
    )


def _rates(problems: dict[str, list[Recovered]], of: Callable[[Recovered], bool]) -> dict[str, Rate]:
    return {task: Rate(sum(map(of, some)), len(some)) for task, some in problems.items()}
