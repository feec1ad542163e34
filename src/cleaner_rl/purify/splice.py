"""One rule for both ways: what the turn looks like that stands for a failure and its verified correction."""

from __future__ import annotations

from collections.abc import Iterator

from cleaner_rl.purify.policies import SplicePolicy
from cleaner_rl.purify.similarity import similarity
from cleaner_rl.purify.stale import stale_mentions
from cleaner_rl.trajectory import Edit, Granularity, Mode, Turn
from cleaner_rl.trajectory.spans import S


def splices(mode: Mode, original: tuple[Turn[S], ...], policy: SplicePolicy) -> Iterator[Turn[S]]:
    """The turns that may stand for `original` (a failure, perhaps more of them, the verified correction), best first.

    Similarity is between the first failure and what was verified in the end, whatever lies between. Where the code is
    alike, a graft comes first and a replacement is what remains if the graft is refused; else only a replacement.
    """
    failed, correction = original[0], original[-1]
    alike = similarity(failed.code, correction.code, policy.measure)
    failures = [result for turn in original for result in turn.results if result.failed]
    granularities = [Granularity.REPLACE]
    if alike.value >= policy.threshold:
        granularities.insert(0, Granularity.GRAFT)
    for granularity in granularities:
        grafted = granularity is Granularity.GRAFT
        # The original reasoning was written before there was an error to talk of.
        stale = () if grafted else stale_mentions(correction.reasoning.text, failures)
        yield Turn(
            failed.reasoning if grafted else correction.reasoning,
            correction.action,
            correction.observation,
            correction.calls,
            correction.results,
            edit=Edit(mode, granularity, original, alike.value, alike.measure, stale=stale),
        )
