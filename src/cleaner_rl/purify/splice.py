"""Makes the turn that stands for a failure and its verified correction, by one rule for SAAR and hindsight.

A graft keeps the reasoning of the failed turn and takes the action of the correction. A replacement takes both from the
correction. Tokens are joined at the boundaries that were recorded when they were sampled.
"""

from __future__ import annotations

from collections.abc import Iterator

from cleaner_rl.purify.config import RepairConfig
from cleaner_rl.purify.similarity import similarity
from cleaner_rl.purify.stale import stale_mentions
from cleaner_rl.trajectory import Edit, RepairKind, RepairMode, S, Turn


def splices(mode: RepairMode, original: tuple[Turn[S], ...], config: RepairConfig) -> Iterator[Turn[S]]:
    """Yield the turns that may stand for `original` (one or more failures, then the verified correction), best first.

    If the similarity of the first failure and the correction reaches the threshold, a graft comes first, and a
    replacement is left in case the graft is refused. Otherwise there is only a replacement.
    """
    failed, correction = original[0], original[-1]
    alike = similarity(failed.code, correction.code, config.measure)
    failures = [result for turn in original for result in turn.results if result.failed]
    kinds = [RepairKind.REPLACE]
    if alike.value >= config.threshold:
        kinds.insert(0, RepairKind.GRAFT)
    for kind in kinds:
        grafted = kind is RepairKind.GRAFT
        # The original reasoning was written before there was an error to talk of.
        stale = () if grafted else stale_mentions(correction.reasoning.text, failures)
        yield Turn(
            failed.reasoning if grafted else correction.reasoning,
            correction.action,
            correction.observation,
            correction.calls,
            correction.results,
            edit=Edit(mode, kind, original, alike.value, alike.measure, stale=stale),
        )
