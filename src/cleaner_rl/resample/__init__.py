"""Select the rollouts of a group that are trained on: GRPO-RoC and the filters around it, as pure functions.

- `quality`: how clean a rollout is, from the results of its calls and its edits.
- `roc`: the cleanest successes and a fair sample of the failures, at an exact size.
- `groups`: excludes faults, checks size and variance, applies RoC, computes advantages.
- `learning_signal`: what the groups of a step can teach about the first call.
- `roc_verdicts`: why each rollout was kept or not, in words, for the store and the viewer.
- `draws`: one random number per rollout, which does not depend on the order of arrival.

It works on repaired groups like on raw ones, so SAAR or hindsight and RoC combine.

Limits: it samples nothing. The caller samples the groups in `refill`, and takes care of ranks and padding (see
`groups`).
"""

from cleaner_rl.resample.groups import (
    PlainConfig,
    RefillReason,
    RolloutGroup,
    Selection,
    advantages,
    group_of,
    is_positive,
    select,
)
from cleaner_rl.resample.learning_signal import learning_signal
from cleaner_rl.resample.quality import Quality, QualityOf, assess
from cleaner_rl.resample.roc import PositiveSelection, RocConfig, resample
from cleaner_rl.resample.roc_verdicts import REFILL_MESSAGES, verdicts

__all__ = [
    "REFILL_MESSAGES",
    "PlainConfig",
    "PositiveSelection",
    "Quality",
    "QualityOf",
    "RefillReason",
    "RocConfig",
    "RolloutGroup",
    "Selection",
    "advantages",
    "assess",
    "group_of",
    "is_positive",
    "learning_signal",
    "resample",
    "select",
    "verdicts",
]
