"""Which rollouts of a group are learnt from: GRPO-RoC and the filters around it, as pure functions.

- `quality`: how clean a rollout is, from the results of its calls and its ledger.
- `roc`: the cleanest successes and a fair sample of the failures, at an exact size.
- `groups`: absent faults → size and equal rewards → RoC → advantages; then whole groups to a batch.
- `verdicts`: why each rollout was kept or not, in words, for the store and the viewer.
- `draws`: one random number for each rollout, the same in whatever order they come.

It works on repaired groups like on raw ones, so SAAR or hindsight and RoC combine.

Limits: it samples nothing: what is handed back for refill, the caller samples. Ranks and padding are the caller's too
(see `groups`).
"""

from cleaner_rl.resample.groups import (
    Batch,
    Group,
    PlainPolicy,
    RefillReason,
    Selection,
    advantages,
    fill_batch,
    group_of,
    is_positive,
    select,
)
from cleaner_rl.resample.quality import Quality, QualityOf, assess, format_penalty
from cleaner_rl.resample.roc import Positives, RocPolicy, resample
from cleaner_rl.resample.verdicts import RocVerdict, verdicts
from cleaner_rl.trajectory import Tally

__all__ = [
    "Batch",
    "Group",
    "PlainPolicy",
    "Positives",
    "Quality",
    "QualityOf",
    "RefillReason",
    "RocPolicy",
    "RocVerdict",
    "Selection",
    "Tally",
    "advantages",
    "assess",
    "fill_batch",
    "format_penalty",
    "group_of",
    "is_positive",
    "resample",
    "select",
    "verdicts",
]
